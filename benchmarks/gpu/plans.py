"""What other plans than the default give on a GPU: ``python -m benchmarks.gpu --plans``.

The default plan of a case runs in turns with the tuned one, with the mapping by feature, and with every order
of rows under either mapping. Results are checked first; what was done when the time is over is written down,
what was not is named. Nothing that is tuned here is kept.
"""

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.graphs import graph_of
from benchmarks.gpu.grid import Case
from benchmarks.gpu.options import DTYPES, checked, parser
from onehop.backends.triton import TritonBackend
from onehop.bench.results import write_json
from onehop.bench.timing import in_turns
from onehop.graph import Graph, metis
from onehop.graph.reorder import row_order
from onehop.kernels.triton import availability
from onehop.plans import TritonPlan
from onehop.plans.triton import ORDERINGS
from onehop.tables import Column, Table
from onehop.tuner import tune
from onehop.tuner.calls import Site
from onehop.tuner.gpu.operations import operations
from onehop.tuner.gpu.target import seconds_of

# What the untuned plan may take, at most, in tuned ones.
GOAL = 1.2
# Each plan is timed so often, in turns with the others; a first time, which compiles, does not count.
_ROUNDS = 7
# Heads and width of each; reductions see H * D columns.
_SIZES = ((4, 64), (1, 64))
# Random graphs have no communities for an order to find; twins have, and roads have neighbours.
_GRAPHS = ("ogbn-arxiv", "pokec-regions", "city-roads-L", "twin:arxiv-communities", "twin:reddit")
# What `tune` calls an operator.
_OPERATORS = {
    "sum": ("aggregate", "sum"),
    "max": ("aggregate", "max"),
    "gat": ("gat", "sum"),
    "gatv2": ("gatv2", "sum"),
    "attention": ("attention", "sum"),
}


@dataclass(frozen=True, slots=True)
class PlanFigures:
    """One plan of one direction of an operator on one graph.

    Attributes:
        case: The case.
        operation: What plans are stored under, such as "sum" or "gatv2_grad".
        transposed: Whether rows are sources.
        name: "default", "tuned", or how it differs from the default.
        plan: The plan.
        seconds: Median of a call.
        default_s: The same of the default plan.
        order_s: What making its order took; 0 without one.
    """

    case: Case
    operation: str
    transposed: bool
    name: str
    plan: TritonPlan
    seconds: float
    default_s: float
    order_s: float

    @property
    def gain(self) -> float:
        """How many times faster than the default plan."""
        return self.default_s / self.seconds

    @property
    def payback_runs(self) -> float | None:
        """After how many calls an order has paid for itself; None if never."""
        saved = self.default_s - self.seconds
        return self.order_s / saved if saved > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**dataclasses.asdict(self), "gain": self.gain, "payback_runs": self.payback_runs}


def study(
    graph: Graph, case: Case, dtype: torch.dtype, device: torch.device, budget_s: float | None
) -> list[PlanFigures]:
    """One case with all its plans, forward and backward.

    Args:
        graph: The graph of the case.
        case: Its operator can be tuned.
        dtype: That of the case.
        device: Where.
        budget_s: Seconds for tuning; None means the tuner's own.
    """
    op, reduce = _OPERATORS[case.operator]
    width, heads = case.heads * case.width, 1 if op == "aggregate" else case.heads
    tuned = tune(
        *(graph, width, op, reduce),
        dtype=dtype,
        budget_s=budget_s,
        again=True,
        keep=False,
        device="cuda",
        heads=heads,
    )
    best = {(each.case.operation, each.case.transposed): each.plan for each in tuned.entries}
    took = _make_orders(graph)
    found = []
    for operation in operations(op, reduce, True, Site(TritonBackend, device, heads)):
        key = operation.name, operation.transposed
        default = TritonBackend.default_for(graph, *key, width, heads, dtype)
        plans = {**_rivals(default, list(took)), "tuned": best.get(key, default)}
        call = operation.make(graph, width, dtype)
        for plan in plans.values():
            call(plan)
        turns = {name: partial(seconds_of, call, plan, device) for name, plan in plans.items()}
        times = in_turns(turns, _ROUNDS)
        found += [
            PlanFigures(
                case=case,
                operation=operation.name,
                transposed=operation.transposed,
                name=name,
                plan=plan,
                seconds=times[name].median_s,
                default_s=times["default"].median_s,
                order_s=took.get(plan.ordering, 0.0),
            )
            for name, plan in plans.items()
        ]
    return found


def _make_orders(graph: Graph) -> dict[str, float]:
    """Seconds for each order that can be made here; the graph keeps them."""
    took = {}
    for ordering in ORDERINGS[1:]:
        if ordering == "metis" and not metis.installed():
            continue
        row_order(graph, ordering, False)
        took[ordering] = graph.orders[ordering].seconds
    return took


def _rivals(default: TritonPlan, orderings: Sequence[str]) -> dict[str, TritonPlan]:
    """The default plan, that in which every row counts as short, and both with every order."""
    by_feature = dataclasses.replace(default, short_edges=default.split_edges)
    found = {"default": default, "by feature": by_feature}
    for ordering in orderings:
        found[ordering] = dataclasses.replace(default, ordering=ordering)
        found[f"by feature, {ordering}"] = dataclasses.replace(by_feature, ordering=ordering)
    return found


def table(figures: Sequence[PlanFigures]) -> str:
    """A line a plan, in Markdown, and how many default plans reach the goal."""
    lines = [Table(_COLUMNS, figures).markdown()]
    behind = [each.gain for each in figures if each.name == "tuned"]
    if behind:
        within = sum(gain <= GOAL for gain in behind)
        lines += [
            "",
            f"{within} of {len(behind)} default plans are within {GOAL - 1:.0%} of the tuned; geometric mean "
            f"{statistics.geometric_mean(behind):.2f}, worst {max(behind):.2f}.",
        ]
    return "\n".join(lines) + "\n"


def _pays_after(figures: PlanFigures) -> str:
    if not figures.order_s:
        return ""
    return "never" if figures.payback_runs is None else f"{figures.payback_runs:.0f} runs"


_COLUMNS = (
    Column("case", "case", left=True),
    Column("operation", lambda each: each.operation + (" transposed" if each.transposed else ""), left=True),
    Column("plan", "name", left=True),
    Column("ms", lambda each: each.seconds * 1e3, "{:.3g}", left=True),
    Column("times faster than default", "gain", "{:.2f}", left=True),
    Column("order s", "order_s", "{:.3g}", left=True),
    Column("pays after", _pays_after, left=True),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 where a result is wrong, 2 where the kernels cannot run, else 0."""
    chosen = _parser().parse_args(arguments)
    reason = availability.missing()
    if reason is not None:
        sys.stdout.write(f"The GPU kernels cannot run here: triton {reason}.\n")
        return 2
    deadline = time.monotonic() + 60 * chosen.minutes
    device = availability.current()
    if any(not verdict.passes for verdict in checked(device, chosen.hub, chosen.dtypes)):
        return 1
    chosen.out.mkdir(parents=True, exist_ok=True)
    figures: list[PlanFigures] = []
    left_out: list[str] = []
    for case, found in _figures(chosen, device, deadline):
        if found is None:
            left_out.append(str(case))
            continue
        figures += found
        rows = [line for line in table(found).splitlines()[2:] if line.startswith("|")]
        sys.stdout.write("\n".join(rows) + "\n")
        _write(chosen.out, device, figures, left_out)  # so that an interruption loses little
    _write(chosen.out, device, figures, left_out)
    if left_out:
        sys.stdout.write(f"out of time, not measured: {', '.join(left_out)}\n")
    return 0


def _figures(
    chosen: argparse.Namespace, device: torch.device, deadline: float
) -> Iterator[tuple[Case, list[PlanFigures] | None]]:
    """Case by case, or None for one that there was no time for."""
    made: tuple[str, Graph] | None = None
    for name, operator, dtype, size in product(chosen.graphs, chosen.operators, chosen.dtypes, _SIZES):
        case = Case(name, operator, dtype, *size)
        if time.monotonic() > deadline:
            yield case, None
            continue
        if made is None or made[0] != name:
            made = name, graph_of(name, device, chosen.scale)
        yield case, study(made[1], case, DTYPES[dtype], device, chosen.budget)


def _parser() -> argparse.ArgumentParser:
    made = parser("Compare the default plans with others on a GPU.", "benchmarks.gpu --plans")
    made.add_argument("--graphs", nargs="+", default=_GRAPHS, help="the benchmark's, or twin:NAME")
    made.add_argument("--operators", nargs="+", choices=list(_OPERATORS), default=list(_OPERATORS))
    made.add_argument("--budget", type=float, help="seconds for tuning a case; by default the tuner's")
    return made


def _write(
    folder: Path, device: torch.device, figures: Sequence[PlanFigures], left_out: Sequence[str]
) -> None:
    content = {
        "gpu": availability.machine(device),
        "cases": [each.to_dict() for each in figures],
        "left_out": list(left_out),
    }
    write_json(folder / "gpu-plans.json", "gpu-plans", content)
    (folder / "gpu-plans.md").write_text(table(figures))
