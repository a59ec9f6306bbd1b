"""How far the tuner's plans are from the best of all candidates.

    python benchmarks/machines/bench_pim_regret.py [--only NUMBER]
        [--json benchmarks/results/machines/pim_regret.json]

Regret is the time of the tuner's plan over that of the best plan, less one, both in full simulation. Cases
are graphs of many sizes and shapes, by widths and dtypes. The tuner's time is set against the time that
simulating all candidates takes, and against what computing their results as well would take, from one
measured.
"""

import argparse
import json
import statistics
import time
from itertools import product
from pathlib import Path
from typing import Any

import torch

from onehop import Graph
from onehop.bench.report import write_json
from onehop.datasets import chung_lu
from onehop.machines.pim import Machine, PimPlan, tune
from onehop.machines.pim.tuner import candidates, simulated_ns

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


def graph(nodes: int, edges: int, skew: float) -> Graph:
    """A random graph whose node numbers say nothing of degrees."""
    return Graph.from_edge_index(chung_lu(nodes, edges, exponent=skew), nodes)


def judge(nodes: int, edges: int, skew: float) -> list[dict[str, Any]]:
    """All widths and dtypes on one graph."""
    machine, base, g = Machine(), PimPlan(), graph(nodes, edges, skew)
    settings = list(product(WIDTHS, DTYPES))
    tuned = {s: tune(Machine(), g, *s, base=base) for s in settings}
    best: dict[tuple[int, str], float] = {s: float("inf") for s in settings}
    spent = 0.0
    plans = candidates(machine.config, base)
    # Candidate by candidate, so that widths and dtypes share what is counted on the graph.
    for plan in plans:
        for width, dtype in settings:
            began = time.perf_counter()
            took = simulated_ns(machine, plan, g, width, dtype)
            spent += time.perf_counter() - began
            best[width, dtype] = min(best[width, dtype], took)
    cases = []
    for (width, dtype), found in tuned.items():
        x = torch.ones(g.num_src, width, dtype=getattr(torch, dtype))
        began = time.perf_counter()
        machine.aggregate(g, x, found.plan)
        once = time.perf_counter() - began
        cases.append(
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
                "tuner_s": found.seconds,
                "all_times_s": spent / len(settings),
                "all_results_s": once * len(plans),
            }
        )
    return cases


def summary(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of all cases."""
    regrets = [case["regret"] for case in cases]
    tuner = sum(case["tuner_s"] for case in cases)
    return {
        "cases": len(cases),
        "candidates": len(candidates(Machine().config, PimPlan())),
        "regret_mean": statistics.mean(regrets),
        "regret_worst": max(regrets),
        "share_of_all_times": tuner / sum(case["all_times_s"] for case in cases),
        "share_of_all_results": tuner / sum(case["all_results_s"] for case in cases),
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
    for each in graphs:
        cases = [case for case in cases if (case["nodes"], case["edges"], case["skew"]) != each]
        found = judge(*each)
        cases += found
        print(each, f"regret at most {100 * max(case['regret'] for case in found):.2f} %", flush=True)
    print(summary(cases))
    if options.json is not None:
        write_json(
            options.json, "benchmarks/machines/bench_pim_regret.py", {"summary": summary(cases), "cases": cases}
        )


if __name__ == "__main__":
    main()
