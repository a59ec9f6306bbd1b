"""How far the tuner's plans are from the best of all candidates, and how much faster it finds them.

    python benchmarks/machines/bench_pim_regret.py [--only NUMBER]
        [--json benchmarks/results/machines/pim_regret.json]

Regret is the time of the tuner's plan over that of the best plan, less one, both in full simulation. Cases
are graphs of many sizes and shapes, by widths and dtypes; widths and dtypes share what is counted on a graph.
Once for each graph the tuner's processor time is set against that of simulating all candidates: times alone,
without the sums, both with nothing counted before.
"""

import json
import statistics
import time
from itertools import product
from typing import Any

from onehop import Graph
from onehop.bench import command
from onehop.cli.console import progress
from onehop.datasets import chung_lu
from onehop.machines.pim import Machine, PimPlan, tune
from onehop.machines.pim.search import candidates
from onehop.machines.pim.tuner import exhaustive, simulated_ns

WIDTHS, DTYPES = (16, 50, 128, 256), ("int8", "int32", "float32")
SIZES = (
    (700, 3_000),
    (2_000, 120_000),
    (5_000, 20_000),
    (9_000, 500_000),
    (20_000, 60_000),
    (30_000, 1_000_000),
)
SKEWS = (0.0, 0.6, 0.9)


def judge(graph: Graph, nodes: int, edges: int, skew: float) -> list[dict[str, Any]]:
    """All widths and dtypes on one graph."""
    machine, settings = Machine(), list(product(WIDTHS, DTYPES))
    tuned = {setting: tune(machine, graph, *setting) for setting in settings}
    best = dict.fromkeys(settings, float("inf"))
    # Candidate by candidate, so that what is counted for one serves all widths and dtypes.
    for plan in candidates(machine.config, PimPlan()):
        for setting in settings:
            best[setting] = min(best[setting], simulated_ns(machine, plan, graph, *setting))
    return [
        {
            "nodes": nodes,
            "edges": edges,
            "skew": skew,
            "width": width,
            "dtype": dtype,
            "plan": str(found.plan),
            "tuned_ms": found.predicted_ns / 1e6,
            "best_ms": best[width, dtype] / 1e6,
            "regret": found.predicted_ns / best[width, dtype] - 1,
        }
        for (width, dtype), found in tuned.items()
    ]


def compare_times(graph: Graph, nodes: int, edges: int, skew: float) -> dict[str, Any]:
    """Seconds of the processor for one width and dtype: the tuner's, and of simulating all candidates."""
    began = time.process_time()
    tune(Machine(), graph, 128, "int32")
    tuned = time.process_time()
    exhaustive(Machine(), graph, 128, "int32")
    ended = time.process_time()
    return {
        "nodes": nodes,
        "edges": edges,
        "skew": skew,
        "tuner_s": tuned - began,
        "exhaustive_s": ended - tuned,
    }


def summary(cases: list[dict[str, Any]], times: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of all cases."""
    regrets = [case["regret"] for case in cases]
    shares = [each["tuner_s"] / each["exhaustive_s"] for each in times]
    return {
        "cases": len(cases),
        "candidates": len(candidates(Machine().config, PimPlan())),
        "regret_mean": statistics.mean(regrets),
        "regret_worst": max(regrets),
        "time_share_mean": statistics.mean(shares),
        "time_share_worst": max(shares),
    }


def _without(entries: list[dict[str, Any]], which: tuple[int, int, float]) -> list[dict[str, Any]]:
    return [each for each in entries if (each["nodes"], each["edges"], each["skew"]) != which]


def main() -> None:
    """Prints and writes everything."""
    parser = command.parser(__doc__)
    parser.add_argument("--only", type=int, help="one graph by its number, added to what the file has")
    options = command.read(parser)
    graphs = [(nodes, edges, skew) for (nodes, edges), skew in product(SIZES, SKEWS)]
    cases, times = [], []
    if options.only is not None:
        graphs = graphs[options.only : options.only + 1]
        if options.json is not None and options.json.exists():
            before = json.loads(options.json.read_text())
            cases, times = before["cases"], before["times"]
    with progress(len(graphs), "graphs") as bar:
        for which in graphs:
            # Node numbers say nothing of degrees.
            graph = Graph.from_edge_index(chung_lu(*which[:2], exponent=which[2]), which[0])
            found = judge(graph, *which)
            cases, times = _without(cases, which), _without(times, which)
            cases += found
            times.append(compare_times(graph, *which))
            bar.advance()
            print(which, f"regret at most {100 * max(case['regret'] for case in found):.2f} %", flush=True)
    print(summary(cases, times))
    content = {"summary": summary(cases, times), "cases": cases, "times": times}
    command.write(options, "benchmarks/machines/bench_pim_regret.py", content)


if __name__ == "__main__":
    main()
