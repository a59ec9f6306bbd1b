"""What orders of rows are worth to either mapping: the part "orders" of ``python -m benchmarks.gpu``.

"On Efficient Scaling of GNNs via IO-Aware Layers Implementations" (2026) finds that kernels that are parallel
over neighbours gain from an order more consistently than those parallel over features.
"""

import dataclasses
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.gpu.graphs import graph_of
from onehop.backends.triton import TritonBackend
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


def study(
    graphs: Sequence[str],
    operators: Sequence[str],
    dtypes: Sequence[torch.dtype],
    sizes: Sequence[tuple[int, int]],
    *,
    scale: float,
    device: torch.device,
    deadline: float,
) -> Iterator[tuple[str, list[OrderFigures] | None]]:
    """Case by case, or None for one that there was no time for.

    Args:
        graphs: Names.
        operators: Those of the benchmark; only sums and fused attention are studied.
        dtypes: Of the features.
        sizes: Heads, and the width of each.
        scale: Of the graphs.
        device: Where.
        deadline: Of ``time.monotonic()``: no case is begun later.
    """
    for name in graphs:
        graph, took = None, {}
        for operator in operators:
            if operator not in _OPERATORS:
                continue
            for dtype in dtypes:
                for heads, width in sizes:
                    case = f"{name} {operator} {dtype} {heads}x{width}"
                    if time.monotonic() > deadline:
                        yield case, None
                        continue
                    if graph is None:
                        graph = graph_of(name, device, scale)
                        took = _make_orders(graph)
                    told = (name, operator, str(dtype).removeprefix("torch."), heads, width)
                    yield case, _case(graph, told, dtype, device, took)


def _make_orders(graph: Graph) -> dict[str, float]:
    """Seconds for each order that can be made here."""
    took = {}
    for ordering in ORDERINGS[1:]:
        if ordering == "metis" and not metis.installed():
            continue
        row_order(graph, ordering, False)
        took[ordering] = graph.orders[ordering].seconds
    return took


def _case(
    graph: Graph,
    told: tuple[str, str, str, int, int],
    dtype: torch.dtype,
    device: torch.device,
    took: dict[str, float],
) -> list[OrderFigures]:
    _, operator, _, heads, width = told
    op = _OPERATORS[operator]
    shared_by = 1 if op == "aggregate" else heads
    (operation,) = operations(op, "sum", False, Site(TritonBackend, device, shared_by))
    call = operation.make(graph, heads * width, dtype)
    plans = {
        (mapping, ordering): dataclasses.replace(plan, ordering=ordering)
        for mapping, plan in _mappings(graph, operation, heads * width, shared_by, dtype).items()
        for ordering in ("none", *took)
    }
    for plan in plans.values():
        call(plan)
    times: dict[tuple[str, str], list[float]] = {key: [] for key in plans}
    for _ in range(_ROUNDS):
        for key, plan in plans.items():
            times[key].append(seconds_of(call, plan, device))
    median = {key: statistics.median(each) for key, each in times.items()}
    return [
        OrderFigures(*told, mapping, ordering, seconds, median[mapping, "none"], took.get(ordering, 0.0))
        for (mapping, ordering), seconds in median.items()
    ]


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
                f"{mapping}: the best order makes it {statistics.geometric_mean(gains):.2f} times faster "
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
