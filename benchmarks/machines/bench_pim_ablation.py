"""What each improvement over the published kernels, merge and partition gains, alone and among the others.

    python benchmarks/machines/bench_pim_ablation.py [--graphs reddit,proteins,arxiv] [--widths 256,32]
        [--scale 1] [--add] [--json benchmarks/results/machines/pim_ablation.json]

"alone" adds one improvement to published Parallelism Fusion; "without" and "with" take it from, or add it to,
all that are marked as kept. Each time the plan is tuned anew, within what is allowed. Times are of one
aggregation. The last table streams a graph that does not fit.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from onehop import Graph, MachineMemoryError, datasets
from onehop.bench import command
from onehop.cli.console import Bar, progress
from onehop.machines.pim import BalancedShapes, Machine, PimPlan, prior_art, upmem_v1a
from onehop.machines.pim.search import candidates
from onehop.machines.pim.tuner import rank


@dataclass(frozen=True)
class Improvement:
    """One.

    Attributes:
        fixed: Fields of a plan that the search does not touch.
        without: Which plans the search may choose without it; None means all.
        order: How the graph is numbered, if otherwise than it was.
        kept: Whether it belongs to the improved plan: what costs more than it gains at width 256 does not.
    """

    fixed: dict[str, Any] = field(default_factory=dict)
    without: Any = None
    order: str | None = None
    kept: bool = True


IMPROVEMENTS = {
    "kernels without multiply": Improvement({"unit_weights": True}),
    "readers that fetch once": Improvement({"reader": "block"}),
    "COO cleared by all, folded in a tree": Improvement({"clear": "shared", "fold": "tree"}),
    "hubs in working memory": Improvement({"hub_bytes": 16 << 10}, kept=False),
    "merge by 16 threads": Improvement({"merge_threads": 16}),
    "merge row by row": Improvement({"merge_order": "row"}),
    "kept result buffers": Improvement({"reuse_buffers": True}),
    "two rounds, merged behind kernels": Improvement({"rounds": 2, "pipelined": True}, kept=False),
    "columns cut by edges": Improvement(without=lambda plan: plan.column_cut == "equal"),
    "several clusters a rank": Improvement(without=lambda plan: plan.sp * plan.ds <= 32),
    "COO searched": Improvement(without=lambda plan: plan.format == "csr"),
    "nodes ordered by degree": Improvement(order="degree", kept=False),
}
KEPT = frozenset(name for name, each in IMPROVEMENTS.items() if each.kept)
AMAZON = BalancedShapes(1_569_960, 1_569_960, 264_339_468)


class Ablation:
    """One graph, which is counted once."""

    def __init__(self, graph: Graph, width: int, dtype: str) -> None:
        self.width, self.dtype = width, dtype
        self.machine = Machine()
        self._graphs: dict[str | None, Graph] = {None: graph}

    def best(self, on: frozenset[str]) -> tuple[float, PimPlan]:
        """The best plan with some improvements, and its milliseconds."""
        base, order = prior_art.PUBLISHED, None
        for name in on:
            base = replace(base, **IMPROVEMENTS[name].fixed)
            order = IMPROVEMENTS[name].order or order
        if order not in self._graphs:
            self._graphs[order] = self._graphs[None].reorder(str(order)).graph
        machine = Machine(upmem_v1a())
        plans = [
            plan
            for plan in candidates(machine.config, base)
            if all(
                name in on or each.without is None or each.without(plan)
                for name, each in IMPROVEMENTS.items()
            )
        ]
        shapes = self.machine.shapes(self._graphs[order])
        best_plan, best_ns, _ = rank(machine, shapes, self.width, self.dtype, plans)[0]
        return best_ns / 1e6, best_plan


def ablation(name: str, scale: float, width: int, dtype: str, bar: Bar) -> list[dict[str, Any]]:
    """All rows for one graph."""
    found = datasets.twin(name, scale=scale, features=False)
    study = Ablation(Graph.from_edge_index(found.edge_index, found.num_nodes), width, dtype)
    none_ms, plan = study.best(frozenset())
    all_ms, full = study.best(KEPT)
    print(f"{name}, width {width}: published {none_ms:.1f} ms ({plan}); kept {all_ms:.1f} ms ({full})")
    rows: list[dict[str, Any]] = [
        {"graph": name, "width": width, "what": "published", "ms": none_ms, "plan": str(plan)},
        {"graph": name, "width": width, "what": "kept", "ms": all_ms, "plan": str(full)},
    ]
    for each, improvement in IMPROVEMENTS.items():
        alone, _ = study.best(frozenset({each}))
        other, _ = study.best(KEPT ^ {each})
        without, with_it = (other, all_ms) if improvement.kept else (all_ms, other)
        print(
            f"  {each:36} alone {alone:8.1f} ms ({none_ms / alone:.2f}x)   among the others "
            f"{without:8.1f} -> {with_it:8.1f} ms ({without / with_it:.2f}x)",
            flush=True,
        )
        rows.append(
            {
                "graph": name,
                "width": width,
                "what": each,
                "kept": improvement.kept,
                "alone_ms": alone,
                "without_ms": without,
                "with_ms": with_it,
            }
        )
        bar.advance()
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
    parser = command.parser(__doc__)
    parser.add_argument("--graphs", default="reddit,proteins,arxiv")
    parser.add_argument("--widths", default="256,32")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--dtype", default="int32")
    parser.add_argument("--add", action="store_true", help="keep what the file has of other graphs")
    o = command.read(parser)
    rows = []
    if o.add and o.json is not None and o.json.exists():
        rows = json.loads(o.json.read_text())["ablation"]
    graphs, widths = o.graphs.split(","), [int(width) for width in o.widths.split(",")]
    with progress(len(graphs) * len(widths) * len(IMPROVEMENTS), "tuning") as bar:
        for name in graphs:
            for width in widths:
                rows = [row for row in rows if (row["graph"], row["width"]) != (name, width)]
                rows += ablation(name, o.scale, width, o.dtype, bar)
    found = {
        "ablation": rows,
        "streaming": streaming(),
        "options": {k: v for k, v in vars(o).items() if not isinstance(v, Path)},
    }
    command.write(o, "benchmarks/machines/bench_pim_ablation.py", found)


if __name__ == "__main__":
    main()
