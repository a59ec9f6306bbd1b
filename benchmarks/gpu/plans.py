"""What other plans than the default give on a GPU: ``python -m benchmarks.gpu --plans``.

The default plan of a case runs in turns with the tuned one, with the mapping by feature, and with every order
of rows under either mapping. Results are checked first; what was done when the time is over is written down,
what was not is named. Nothing that is tuned here is kept.
"""

import dataclasses
import statistics
import sys
import time
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.graphs import graph_of
from benchmarks.gpu.grid import Case
from benchmarks.gpu.options import DTYPES, can_run, checked, parser, until
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
from onehop.tuner.gpu.target import seconds_of
from onehop.tuner.operations import GPU, Op, Reduction, operations

Row = dict[str, Any]
# What the untuned plan may take, at most, in tuned ones.
GOAL = 1.2
# Each plan is timed so often, in turns with the others; a first time, which compiles, does not count.
_ROUNDS = 7
# Heads and width of each; reductions see H * D columns.
_SIZES = ((4, 64), (1, 64))
# Random graphs have no communities for an order to find; twins have, and roads have neighbours.
_GRAPHS = ("ogbn-arxiv", "pokec-regions", "city-roads-L", "twin:arxiv-communities", "twin:reddit")
# What `tune` calls an operator.
_OPERATORS: dict[str, tuple[Op, Reduction]] = {
    "sum": ("aggregate", "sum"),
    "max": ("aggregate", "max"),
    "gat": ("gat", "sum"),
    "gatv2": ("gatv2", "sum"),
    "attention": ("attention", "sum"),
}


def figures_of(name: str, seconds: float, default_s: float, order_s: float) -> Row:
    """The figures of a plan.

    Args:
        name: "default", "tuned", or how it differs from the default.
        seconds: Median of a call.
        default_s: The same of the default plan.
        order_s: What making its order took; 0 without one.

    Returns:
        These, ``gain``, how many times faster than the default plan, and ``payback_runs``: after how many
        calls an order has paid for itself, None if never.
    """
    saved = default_s - seconds
    return {
        "name": name,
        "seconds": seconds,
        "default_s": default_s,
        "order_s": order_s,
        "gain": default_s / seconds,
        "payback_runs": order_s / saved if saved > 0 else None,
    }


def study(
    graph: Graph, case: Case, dtype: torch.dtype, device: torch.device, budget_s: float | None
) -> list[Row]:
    """One case with all its plans, forward and backward. None means the budget of the tuner itself."""
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
    for operation in operations(op, reduce, True, GPU, Site(TritonBackend, device, heads)):
        key = operation.name, operation.transposed
        default = TritonBackend.default_for(graph, *key, width, heads, dtype)
        plans = {**_rivals(default, list(took)), "tuned": best.get(key, default)}
        call = operation.make(graph, width, dtype)
        for plan in plans.values():
            call(plan)
        turns = {name: partial(seconds_of, call, plan, device) for name, plan in plans.items()}
        times = in_turns(turns, _ROUNDS)
        found += [
            {
                "case": dataclasses.asdict(case),
                "operation": operation.name,
                "transposed": operation.transposed,
                "plan": dataclasses.asdict(plan),
                **figures_of(
                    name, times[name].median_s, times["default"].median_s, took.get(plan.ordering, 0.0)
                ),
            }
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


def table(figures: Sequence[Row]) -> str:
    """A line a plan, in Markdown, and how many default plans reach the goal."""
    lines = [Table(_COLUMNS, figures).markdown()]
    behind = [each["gain"] for each in figures if each["name"] == "tuned"]
    if behind:
        within = sum(gain <= GOAL for gain in behind)
        lines += [
            "",
            f"{within} of {len(behind)} default plans are within {GOAL - 1:.0%} of the tuned; geometric mean "
            f"{statistics.geometric_mean(behind):.2f}, worst {max(behind):.2f}.",
        ]
    return "\n".join(lines) + "\n"


def _pays_after(found: Row) -> str:
    if not found["order_s"]:
        return ""
    return "never" if found["payback_runs"] is None else f"{found['payback_runs']:.0f} runs"


def _operation(found: Row) -> str:
    return str(found["operation"]) + (" transposed" if found["transposed"] else "")


_COLUMNS = (
    Column("case", lambda each: Case(**each["case"]), left=True),
    Column("operation", _operation, left=True),
    Column("plan", "name", left=True),
    Column("ms", lambda each: each["seconds"] * 1e3, "{:.3g}", left=True),
    Column("times faster than default", "gain", "{:.2f}", left=True),
    Column("order s", "order_s", "{:.3g}", left=True),
    Column("pays after", _pays_after, left=True),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 where a result is wrong, 2 where the kernels cannot run, else 0."""
    made = parser("Compare the default plans with others on a GPU.", "benchmarks.gpu --plans")
    made.add_argument("--graphs", nargs="+", default=_GRAPHS, help="the benchmark's, or twin:NAME")
    made.add_argument("--operators", nargs="+", choices=list(_OPERATORS), default=list(_OPERATORS))
    made.add_argument("--budget", type=float, help="seconds for tuning a case; by default the tuner's")
    chosen = made.parse_args(arguments)
    if not can_run():
        return 2
    deadline = time.monotonic() + 60 * chosen.minutes
    device = availability.current()
    if any(not verdict.passes for verdict in checked(device, chosen.hub, chosen.dtypes)):
        return 1
    chosen.out.mkdir(parents=True, exist_ok=True)
    figures: list[Row] = []
    left_out: list[str] = []
    # The cases of a graph follow each other.
    kept = lru_cache(maxsize=1)(lambda name: graph_of(name, device, chosen.scale))
    points = product(chosen.graphs, chosen.operators, chosen.dtypes, _SIZES)
    cases = (Case(name, operator, dtype, *size) for name, operator, dtype, size in points)

    def measured(case: Case) -> list[Row]:
        return study(kept(case.graph), case, DTYPES[case.dtype], device, chosen.budget)

    for case, found in until(deadline, cases, measured):
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


def _write(folder: Path, device: torch.device, figures: Sequence[Row], left_out: Sequence[str]) -> None:
    content = {
        "gpu": availability.machine(device),
        "cases": list(figures),
        "left_out": list(left_out),
    }
    write_json(folder / "gpu-plans.json", "gpu-plans", content)
    (folder / "gpu-plans.md").write_text(table(figures))
