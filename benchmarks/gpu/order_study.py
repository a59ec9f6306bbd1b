"""What orders of rows are worth to either mapping: the part "orders" of ``python -m benchmarks.gpu``.

"On Efficient Scaling of GNNs via IO-Aware Layers Implementations" (2026) finds that kernels that are parallel
over neighbours gain from an order more consistently than those parallel over features.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.grid import Case
from onehop.backends.triton import TritonBackend
from onehop.bench.timing import geometric_mean, in_turns
from onehop.graph import Graph, metis
from onehop.graph.reorder import row_order
from onehop.plans import TritonPlan
from onehop.plans.triton import ORDERINGS
from onehop.tuner.calls import Site
from onehop.tuner.gpu.operations import operations
from onehop.tuner.gpu.timing import seconds_of
from onehop.tuner.operations import Operation

MAPPINGS = ("neighbour", "feature")
# Each plan is timed so often, in turns with the others; a first time, which compiles, does not count.
_ROUNDS = 7
# The forward passes of these, with a plan of each order and mapping.
_OPERATORS = {"sum": "aggregate", "gatv2": "gatv2", "attention": "attention"}


@dataclass(frozen=True, slots=True)
class OrderFigures:
    """One operator on one graph, with one mapping and order.

    Attributes:
        graph: Its name.
        operator: Its name.
        dtype: Of the features.
        heads: H.
        width: D.
        mapping: "neighbour" or "feature".
        ordering: "none", or the order.
        seconds: Median of a call.
        none_s: The same without an order.
        order_s: What making the order took.
    """

    graph: str
    operator: str
    dtype: str
    heads: int
    width: int
    mapping: str
    ordering: str
    seconds: float
    none_s: float
    order_s: float

    @property
    def gain(self) -> float:
        """How many times faster than without an order."""
        return self.none_s / self.seconds

    @property
    def payback_runs(self) -> float | None:
        """After how many calls the order has paid for itself; None if never."""
        saved = self.none_s - self.seconds
        return self.order_s / saved if saved > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**dataclasses.asdict(self), "gain": self.gain, "payback_runs": self.payback_runs}


def study(graph: Graph, case: Case, dtype: torch.dtype, device: torch.device) -> list[OrderFigures]:
    """One case, with each order and mapping.

    Args:
        graph: The graph of the case.
        case: Its operator is a sum or fused attention.
        dtype: That of the case.
        device: Where.
    """
    took = _make_orders(graph)
    op, width = _OPERATORS[case.operator], case.heads * case.width
    shared_by = 1 if op == "aggregate" else case.heads
    (operation,) = operations(op, "sum", False, Site(TritonBackend, device, shared_by))
    call = operation.make(graph, width, dtype)
    plans = {
        (mapping, ordering): dataclasses.replace(plan, ordering=ordering)
        for mapping, plan in _mappings(graph, operation, width, shared_by, dtype).items()
        for ordering in ("none", *took)
    }
    for plan in plans.values():
        call(plan)
    times = in_turns({key: partial(seconds_of, call, plan, device) for key, plan in plans.items()}, _ROUNDS)
    median = {key: found.median_s for key, found in times.items()}
    return [
        OrderFigures(
            **dataclasses.asdict(case),
            mapping=mapping,
            ordering=ordering,
            seconds=seconds,
            none_s=median[mapping, "none"],
            order_s=took.get(ordering, 0.0),
        )
        for (mapping, ordering), seconds in median.items()
    ]


def _make_orders(graph: Graph) -> dict[str, float]:
    """Seconds for each order that can be made here; the graph keeps them."""
    took = {}
    for ordering in ORDERINGS[1:]:
        if ordering == "metis" and not metis.installed():
            continue
        row_order(graph, ordering, False)
        took[ordering] = graph.orders[ordering].seconds
    return took


def _mappings(
    graph: Graph, operation: Operation, width: int, heads: int, dtype: torch.dtype
) -> dict[str, TritonPlan]:
    """The default plan, and that in which every row counts as short."""
    default = TritonBackend.default_for(graph, operation.name, False, width, heads, dtype)
    return {
        "neighbour": default,
        "feature": dataclasses.replace(default, short_edges=default.split_edges),
    }


def table(figures: Sequence[OrderFigures]) -> str:
    """A line a plan, in Markdown, and what each mapping gains from its best order."""
    lines = [
        "| graph | operator | dtype | H x D | mapping | order | ms | times faster | order s | pays after |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in figures:
        runs = "never" if each.payback_runs is None else f"{each.payback_runs:.0f} runs"
        told = (
            each.graph,
            each.operator,
            each.dtype,
            f"{each.heads} x {each.width}",
            each.mapping,
            each.ordering,
            f"{each.seconds * 1e3:.3g}",
            f"{each.gain:.2f}",
            f"{each.order_s:.3g}",
            "" if each.ordering == "none" else runs,
        )
        lines.append(f"| {' | '.join(told)} |")
    for mapping in MAPPINGS:
        gains = best_gains(figures, mapping)
        if gains:
            lines += [
                "",
                f"{mapping}: the best order makes it {geometric_mean(gains):.2f} times faster "
                f"in the geometric mean of {len(gains)} cases, {min(gains):.2f} to {max(gains):.2f}.",
            ]
    return "\n".join(lines) + "\n"


def best_gains(figures: Sequence[OrderFigures], mapping: str) -> list[float]:
    """For every case, what the best order gives with a mapping."""
    best: dict[tuple[Any, ...], float] = {}
    for each in figures:
        if each.mapping == mapping and each.ordering != "none":
            case = (each.graph, each.operator, each.dtype, each.heads, each.width)
            best[case] = max(best.get(case, 0.0), each.gain)
    return list(best.values())
