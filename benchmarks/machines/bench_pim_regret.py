"""How far the tuner's plans are from the best of all candidates, and how much faster it finds them.

    python benchmarks/machines/bench_pim_regret.py [--only NUMBER]
        [--json benchmarks/results/machines/pim_regret.json]

Regret is the time of the tuner's plan over that of the best plan, less one, both in full simulation. Cases
are graphs of many sizes and shapes, by widths and dtypes. The tuner's time is set against the time that it
takes to simulate all candidates, times alone, without the sums. Both begin with nothing counted.
"""

import argparse
import json
import statistics
import time
from itertools import product
from pathlib import Path
from typing import Any

from onehop import Graph
from onehop.bench.report import write_json
from onehop.cli.console import progress
from onehop.datasets import chung_lu
from onehop.machines.pim import Machine, PimPlan, tune
from onehop.machines.pim.tuner import candidates, exhaustive

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


def judge(nodes: int, edges: int, skew: float, width: int, dtype: str) -> dict[str, Any]:
    """One case, on a random graph whose node numbers say nothing of degrees."""
    graph = Graph.from_edge_index(chung_lu(nodes, edges, exponent=skew), nodes)
    began = time.perf_counter()
    found = tune(Machine(), graph, width, dtype)
    tuned = time.perf_counter()
    every = exhaustive(Machine(), graph, width, dtype)
    ended = time.perf_counter()
    return {
        "nodes": nodes,
        "edges": edges,
        "skew": skew,
        "width": width,
        "dtype": dtype,
        "plan": str(found.plan),
        "tuned_ms": found.predicted_ns / 1e6,
        "best_ms": every[0][1] / 1e6,
        "regret": found.predicted_ns / every[0][1] - 1,
        "tuner_s": tuned - began,
        "exhaustive_s": ended - tuned,
    }


def summary(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of all cases."""
    regrets = [case["regret"] for case in cases]
    shares = [case["tuner_s"] / case["exhaustive_s"] for case in cases]
    return {
        "cases": len(cases),
        "candidates": len(candidates(Machine().config, PimPlan())),
        "regret_mean": statistics.mean(regrets),
        "regret_worst": max(regrets),
        "time_share": sum(case["tuner_s"] for case in cases) / sum(case["exhaustive_s"] for case in cases),
        "time_share_worst": max(shares),
    }


def main() -> None:
    """Prints and writes everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=int, help="one graph by its number, added to what the file has")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    graphs = [(nodes, edges, skew) for (nodes, edges), skew in product(SIZES, SKEWS)]
    cases = []
    if options.only is not None:
        graphs = graphs[options.only : options.only + 1]
        if options.json is not None and options.json.exists():
            cases = json.loads(options.json.read_text())["cases"]
    settings = list(product(WIDTHS, DTYPES))
    with progress(len(graphs) * len(settings), "cases") as bar:
        for each in graphs:
            cases = [case for case in cases if (case["nodes"], case["edges"], case["skew"]) != each]
            for width, dtype in settings:
                cases.append(judge(*each, width, dtype))
                bar.advance()
            last = cases[-len(settings) :]
            print(each, f"regret at most {100 * max(case['regret'] for case in last):.2f} %", flush=True)
    print(summary(cases))
    if options.json is not None:
        found = {"summary": summary(cases), "cases": cases}
        write_json(options.json, "benchmarks/machines/bench_pim_regret.py", found)


if __name__ == "__main__":
    main()
