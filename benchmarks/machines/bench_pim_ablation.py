"""What each improvement over the published kernels, merge and partition gains, alone and among the others.

    python benchmarks/machines/bench_pim_ablation.py [--graphs proteins,arxiv] [--scale 1]
        [--json benchmarks/results/machines/pim_ablation.json]

"alone" adds one improvement to published Parallelism Fusion, "without" takes one from all of them. Each time
the plan is tuned anew, within what is allowed. Times are of one aggregation. The last table streams a graph
that does not fit.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from onehop import Graph, MachineMemoryError, datasets
from onehop.bench.report import write_json
from onehop.machines.pim import BalancedShapes, Machine, PimPlan, prior_art
from onehop.machines.pim.shapes import Shapes
from onehop.machines.pim.tuner import candidates, rank

# Fields of a plan that are not searched.
FIXED: dict[str, dict[str, Any]] = {
    "kernels without multiply": {"unit_weights": True},
    "merge by 16 threads": {"merge_threads": 16},
    "merge row by row": {"merge_order": "row"},
    "kept result buffers": {"reuse_buffers": True},
}
# Choices that the search has with the improvement, and has not without.
SEARCHED = {
    "columns cut by edges": lambda plan: plan.column_cut == "equal",
    "several clusters a rank": lambda plan: plan.sp * plan.ds <= 32,
    "COO": lambda plan: plan.format == "csr",
}
AMAZON = BalancedShapes(1_569_960, 1_569_960, 264_339_468)


def best_ms(machine: Machine, shapes: Shapes, width: int, dtype: str, on: set[str]) -> tuple[float, PimPlan]:
    """The best plan with some improvements."""
    base = prior_art.PUBLISHED
    for name in on & FIXED.keys():
        base = replace(base, **FIXED[name])
    plans = [
        plan
        for plan in candidates(machine.config, base)
        if all(name in on or published(plan) for name, published in SEARCHED.items())
    ]
    ranked = rank(machine, shapes, width, dtype, plans)
    return ranked[0][1] / 1e6, ranked[0][0]


def ablation(name: str, scale: float, width: int, dtype: str) -> list[dict[str, Any]]:
    """All rows for one graph."""
    machine = Machine()
    found = datasets.twin(name, scale=scale, features=False)
    graph = Graph.from_edge_index(found.edge_index, found.num_nodes)
    shapes, every = machine.shapes(graph), {*FIXED, *SEARCHED}
    none_ms, plan = best_ms(machine, shapes, width, dtype, set())
    all_ms, full = best_ms(machine, shapes, width, dtype, every)
    print(f"{name}: published {none_ms:.1f} ms ({plan}); all {all_ms:.1f} ms ({full})")
    rows = [{"graph": name, "what": "published", "ms": none_ms}, {"graph": name, "what": "all", "ms": all_ms}]
    for each in (*FIXED, *SEARCHED):
        alone, _ = best_ms(machine, shapes, width, dtype, {each})
        without, _ = best_ms(machine, shapes, width, dtype, every - {each})
        print(
            f"  {each:26} alone {alone:9.1f} ms ({none_ms / alone:.2f}x)   without {without:9.1f} ms "
            f"({without / all_ms:.2f}x)",
            flush=True,
        )
        rows.append({"graph": name, "what": each, "alone_ms": alone, "without_ms": without})
    return rows


def streaming() -> list[dict[str, Any]]:
    """A graph that does not fit, in rounds and in a grid that fits."""
    rows = []
    for sp in (1, 2, 4):
        plan = prior_art.published(sp, 32 // sp)
        try:
            report = Machine().simulate(AMAZON, 256, plan, "int32")
        except MachineMemoryError:
            report = Machine().simulate(AMAZON, 256, replace(plan, stream=True), "int32")
        ran = report.plan
        print(
            f"AmazonProducts {sp}x{32 // sp} in {ran.rounds} x {ran.block_rounds} rounds: "
            f"{report.total_ms:.0f} ms, {report.mram_bytes_max / 2**20:.1f} MiB of a bank"
        )
        rows.append(
            {
                "grid": f"{sp}x{32 // sp}",
                "rounds": ran.rounds,
                "block_rounds": ran.block_rounds,
                "ms": report.total_ms,
                "mib": report.mram_bytes_max / 2**20,
            }
        )
    return rows


def main() -> None:
    """Prints and writes everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", default="proteins,arxiv")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--dtype", default="int32")
    parser.add_argument("--add", action="store_true", help="keep what the file has of other graphs")
    parser.add_argument("--json", type=Path)
    o = parser.parse_args()
    rows = []
    if o.add and o.json is not None and o.json.exists():
        rows = json.loads(o.json.read_text())["ablation"]
    for name in o.graphs.split(","):
        rows = [row for row in rows if row["graph"] != name] + ablation(name, o.scale, o.width, o.dtype)
    found = {"ablation": rows, "streaming": streaming(), "options": {k: str(v) for k, v in vars(o).items()}}
    if o.json is not None:
        write_json(o.json, "benchmarks/machines/bench_pim_ablation.py", found)


if __name__ == "__main__":
    main()
