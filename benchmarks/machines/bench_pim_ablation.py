"""What each improvement over the published kernels, merge and partition gains, alone and among the others.

    python -m benchmarks.machines.bench_pim_ablation [--graphs reddit,proteins,arxiv] [--widths 256,32]
        [--scale 1] [--add] [--json benchmarks/results/machines/pim_ablation.json]

"alone" adds one improvement to published Parallelism Fusion; "without" and "with" take it from, or add it to,
all that are marked as kept. Each time the plan is tuned anew, within what is allowed. Times are of one
aggregation. The last table streams a graph that does not fit.
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks import columns
from benchmarks.harness import Benchmark, Option, Options, Row
from onehop import Graph, MachineMemoryError, datasets
from onehop.machines.pim import BalancedShapes, Machine, PimPlan, prior_art, upmem_v1a
from onehop.machines.pim.search import candidates
from onehop.machines.pim.tuner import rank
from onehop.tables import Table


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
STREAMING = columns.of("grid; rounds; block_rounds; ms | ms | {:.0f}; MiB of a bank | mib | {:.1f}")


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


def ablation(name: str, width: int, options: Options) -> Iterator[Row]:
    """All rows for one graph and width."""
    found = datasets.twin(name, scale=options.scale, features=False)
    study = Ablation(Graph.from_edge_index(found.edge_index, found.num_nodes), width, options.dtype)
    none_ms, plan = study.best(frozenset())
    all_ms, full = study.best(KEPT)
    about = {"graph": name, "width": width}
    yield {**about, "what": "published", "ms": none_ms, "plan": str(plan)}
    yield {**about, "what": "kept", "ms": all_ms, "plan": str(full)}
    for each, improvement in IMPROVEMENTS.items():
        alone, _ = study.best(frozenset({each}))
        other, _ = study.best(KEPT ^ {each})
        without, with_it = (other, all_ms) if improvement.kept else (all_ms, other)
        yield {
            **about, "what": each, "kept": improvement.kept, "alone_ms": alone, "without_ms": without,
            "with_ms": with_it,
        }  # fmt: skip


def rows(options: Options) -> Iterator[Row]:
    """Tunes for every graph and width; with ``--add``, after what the file has of others."""
    chosen = list(itertools.product(options.graphs, options.widths))
    if options.add and options.json is not None and options.json.exists():
        before = json.loads(options.json.read_text())["ablation"]
        yield from (row for row in before if (row["graph"], row["width"]) not in chosen)
    for name, width in chosen:
        yield from ablation(name, width, options)


def streaming(options: Options, rows: list[Row]) -> Row:
    """A graph that does not fit, in rounds and in a grid that fits; and the options."""
    found = []
    for sp in (1, 2, 4):
        plan = prior_art.published(sp, 32 // sp)
        try:
            report = Machine().simulate(AMAZON, 256, plan, "int32")
        except MachineMemoryError:
            report = Machine().simulate(AMAZON, 256, replace(plan, stream=True), "int32")
        ran = report.plan
        found.append(
            {
                "grid": f"{sp}x{32 // sp}",
                "rounds": ran.rounds,
                "block_rounds": ran.block_rounds,
                "ms": report.total_ms,
                "mib": report.mram_bytes_max / 2**20,
            }
        )
    given = {key: getattr(options, key) for key in ("scale", "dtype", "add")}
    given |= {key: ",".join(map(str, getattr(options, key))) for key in ("graphs", "widths")}
    return {"streaming": found, "options": given}


BENCHMARK = Benchmark(
    "benchmarks/machines/bench_pim_ablation.py",
    rows,
    "graph; width; improvement | what; ms | ms | {:.1f}; alone, ms | alone_ms | {:.1f}; "
    "without, ms | without_ms | {:.1f}; with, ms | with_ms | {:.1f}; plan",
    {
        "graphs": ("reddit", "proteins", "arxiv"),
        "widths": (256, 32),
        "scale": 1.0,
        "dtype": "int32",
        "add": Option(False, "keep what the file has of other graphs"),
    },
    key="ablation",
    threads=False,
    finish=streaming,
    notes=lambda options, rows: [Table(STREAMING, options.noted["streaming"], "AmazonProducts in rounds")],
)

if __name__ == "__main__":
    BENCHMARK.main()
