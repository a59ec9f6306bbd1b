"""How far the tuner's plans are from the best of all candidates, and how much faster it finds them.

    python -m benchmarks.machines.bench_pim_regret [--only NUMBER]
        [--json benchmarks/results/machines/pim_regret.json]

Regret is the time of the tuner's plan over that of the best plan, less one, both in full simulation. Cases
are graphs of many sizes and shapes, by widths and dtypes; widths and dtypes share what is counted on a graph.
Once for each graph the tuner's processor time is set against that of simulating all candidates: times alone,
without the sums, both with nothing counted before.
"""

import json
import statistics
import time
from collections.abc import Iterator
from itertools import product

from benchmarks.harness import Benchmark, Option, Options, Row
from onehop import Graph
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


def judge(graph: Graph, about: Row) -> Iterator[Row]:
    """All widths and dtypes on one graph."""
    machine, settings = Machine(), list(product(WIDTHS, DTYPES))
    tuned = {setting: tune(machine, graph, *setting) for setting in settings}
    best = dict.fromkeys(settings, float("inf"))
    # Candidate by candidate, so that what is counted for one serves all widths and dtypes.
    for plan in candidates(machine.config, PimPlan()):
        for setting in settings:
            best[setting] = min(best[setting], simulated_ns(machine, plan, graph, *setting))
    for (width, dtype), found in tuned.items():
        yield {
            **about,
            "width": width,
            "dtype": dtype,
            "plan": str(found.plan),
            "tuned_ms": found.predicted_ns / 1e6,
            "best_ms": best[width, dtype] / 1e6,
            "regret": found.predicted_ns / best[width, dtype] - 1,
        }


def compare_times(graph: Graph, about: Row) -> Row:
    """Seconds of the processor for one width and dtype: the tuner's, and of simulating all candidates."""
    began = time.process_time()
    tune(Machine(), graph, 128, "int32")
    tuned = time.process_time()
    exhaustive(Machine(), graph, 128, "int32")
    return {**about, "tuner_s": tuned - began, "exhaustive_s": time.process_time() - tuned}


def rows(options: Options) -> Iterator[Row]:
    """Judges every graph; with ``--only``, after what the file has of others."""
    graphs = list(product(SIZES, SKEWS))
    times = options.noted["times"] = []
    if options.only is not None:
        graphs = graphs[options.only : options.only + 1]
        if options.json is not None and options.json.exists():
            before = json.loads(options.json.read_text())
            of_others = [((each["nodes"], each["edges"]), each["skew"]) for each in before["times"]]
            times += [t for t, which in zip(before["times"], of_others, strict=True) if which not in graphs]
            yield from (
                case
                for case in before["cases"]
                if ((case["nodes"], case["edges"]), case["skew"]) not in graphs
            )
    for (nodes, edges), skew in graphs:
        # Node numbers say nothing of degrees.
        graph = Graph.from_edge_index(chung_lu(nodes, edges, exponent=skew), nodes)
        about = {"nodes": nodes, "edges": edges, "skew": skew}
        times.append(compare_times(graph, about))
        yield from judge(graph, about)


def summary(options: Options, rows: list[Row]) -> Row:
    """Figures of all cases."""
    regrets = [row["regret"] for row in rows]
    shares = [each["tuner_s"] / each["exhaustive_s"] for each in options.noted["times"]]
    found = {
        "cases": len(rows),
        "candidates": len(candidates(Machine().config, PimPlan())),
        "regret_mean": statistics.mean(regrets),
        "regret_worst": max(regrets),
        "time_share_mean": statistics.mean(shares),
        "time_share_worst": max(shares),
    }
    return {"summary": found}


BENCHMARK = Benchmark(
    "benchmarks/machines/bench_pim_regret.py",
    rows,
    "nodes; edges; skew; width; dtype; tuned, ms | tuned_ms | {:.3f}; best, ms | best_ms | {:.3f}; "
    "regret | regret | {:.2%}",
    {"only": Option(None, "one graph by its number, added to what the file has", kind=int)},
    key="cases",
    threads=False,
    finish=summary,
    notes=lambda options, rows: [str(options.noted["summary"])],
)

if __name__ == "__main__":
    BENCHMARK.main()
