"""Parts of an epoch's time, as torch's profiler sees them, and the minimum time that each part needs.

The minimum time is the time of primitive steps measured on this machine. Each part has its own primitive
step: aggregation moves its bytes at the speed of a gather of the graph's own rows; products run in the
fastest library for their shape, with both operands in the best layout; elementwise steps read once and write
once, at the speed of a copy of this shape.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, record_function

from onehop.bench.cases import Workload
from onehop.bench.limits import ROW_MULTIPLE, aggregated_bytes, gather_roof
from onehop.bench.timing import interleave
from onehop.bench.work import EpochWork, Product, Shape

AGGREGATION, PRODUCTS, DROPOUT, OTHER = PARTS = ("aggregation", "products", "dropout", "other")
# Rounds of each measurement; for products and copies the shortest counts, because a floor is the best
# possible time.
_ROUNDS = 5


class Roofs:
    """Primitive steps over one graph; each is measured on first use.

    Args:
        workload: The graph.
        rounds: Number of measurements of each step.
    """

    def __init__(self, workload: Workload, rounds: int = _ROUNDS) -> None:
        self._workload = workload
        self._rounds = rounds
        self._gathers: dict[int, float] = {}
        self._products: dict[Shape3, float] = {}
        self._copies: dict[Shape, float] = {}

    def gather_gbps(self, width: int) -> float:
        """Return the 10^9 bytes per second of gathering rows; the width is rounded up to a multiple of 16."""
        width = -(-width // ROW_MULTIPLE) * ROW_MULTIPLE
        if width not in self._gathers:
            x = torch.ones(self._workload.num_nodes, width, device="cpu")
            roof = gather_roof(x, self._workload.graph.col, self._rounds)
            self._gathers[width] = roof.bandwidth.gbps
        return self._gathers[width]

    def gather_s(self, moved_bytes: int, width: int) -> float:
        """Return the seconds to move this number of bytes of rows."""
        return moved_bytes / self.gather_gbps(width) / 1e9 if moved_bytes else 0.0

    def product_s(self, product: Product) -> float:
        """Return the seconds of a product in the fastest library, or over a sparse factor's non-zeros."""
        key = product.rows, product.depth, product.columns
        if key not in self._products:
            times = interleave(product_calls(*key), self._rounds)
            self._products[key] = min(one.min_s for one in times.values())
        dense = self._products[key]
        if product.nonzeros is None:
            return dense
        # For every non-zero, a row of the weight, or of the gradient, is added up: the narrow side of the
        # result.
        narrow, wide = sorted((product.rows, product.columns))
        moved = aggregated_bytes(product.nonzeros, wide, narrow)
        return min(dense, self.gather_s(moved, narrow))

    def copy_s(self, shape: Shape) -> float:
        """Return the seconds to read a float32 matrix once and write it once."""
        if shape not in self._copies:
            source = torch.ones(shape, device="cpu")
            target = torch.zeros_like(source)
            times = interleave({"copy": lambda: target.copy_(source)}, self._rounds)
            self._copies[shape] = times["copy"].min_s
        return self._copies[shape]

    def floor(self, work: EpochWork) -> dict[str, float]:
        """Return the minimum seconds of each part of an epoch."""
        return {
            AGGREGATION: sum(self.gather_s(moved, width) for width, moved in work.gathered.items()),
            PRODUCTS: sum(times * self.product_s(product) for product, times in work.products.items()),
            DROPOUT: sum(times * self.copy_s(shape) for shape, times in work.dropped.items()),
            OTHER: sum(times * self.copy_s(shape) for shape, times in work.elementwise.items()),
        }


Shape3 = tuple[int, int, int]


def product_calls(rows: int, depth: int, columns: int) -> dict[str, Callable[[], Tensor]]:
    """Return calls of one product in every library of torch, with operands contiguous along the depth."""
    a, b = torch.ones(rows, depth, device="cpu"), torch.ones(columns, depth, device="cpu")
    calls: dict[str, Callable[[], Tensor]] = {"torch.mm": lambda: torch.mm(a, b.t())}
    # Inductor emits this for linear steps; the name is private and may disappear.
    onednn: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    if onednn is not None and torch.backends.mkldnn.is_available():
        calls["oneDNN"] = lambda: onednn(a, b, None, "none", [], "")
    return calls


# Patterns of the names that torch's profiler shows. The first match counts, so dropout comes before our
# operators, which may have dropout in their name.
_NAMES = (
    (DROPOUT, re.compile(r"dropout|bernoulli|^_(Dropped|Masked)", re.IGNORECASE)),
    (
        PRODUCTS,
        re.compile(
            r"^aten::(mm|addmm|bmm|baddbmm|mv|addmv|matmul|linear)$|mkldnn|onednn"
            r"|onehop::.*(product|linear)|^_\w*(Product|Linear)\w*$"
        ),
    ),
    (
        AGGREGATION,
        re.compile(
            r"^onehop::|^_(Recorded|Recomputed)(Backward)?$"
            r"|^aten::_?(index_select|index_add|scatter|gather|segment_reduce|sparse\w*|spmm\w*)"
        ),
    ),
)
_BACKWARD = "autograd::engine::evaluate_function"


@dataclass(frozen=True)
class Breakdown:
    """The parts of an epoch's time.

    Attributes:
        epoch_s: The epoch's time, measured without a profiler.
        shares: Share of each of :data:`PARTS`, 0 to 1, as the profiler saw another epoch.
        floor_s: Minimum seconds of each part; None if unknown.
    """

    epoch_s: float
    shares: Mapping[str, float]
    floor_s: Mapping[str, float] | None = None

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds of each part; they sum to the epoch's time."""
        return {part: share * self.epoch_s for part, share in self.shares.items()}

    @property
    def of_floor(self) -> float | None:
        """The epoch's time divided by its floor; None if the floor is unknown."""
        return None if self.floor_s is None else self.epoch_s / sum(self.floor_s.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the breakdown, ready for JSON."""
        return {
            "shares": dict(self.shares),
            "seconds": self.seconds,
            "floor_s": None if self.floor_s is None else dict(self.floor_s),
            "x_of_floor": self.of_floor,
        }


def shares(epoch: Callable[[], object], epochs: int = 1) -> dict[str, float]:
    """Return the share of each part in the time of an epoch, as torch's profiler sees it.

    An event counts for the part that its own name, or the name of an event around it, indicates; a sum inside
    a product is this product over its non-zeros. Backward steps of calls inside dropout count as dropout.
    Time outside of all events counts as ``other``.
    """
    # The profiler's library would otherwise write a line to standard error whenever it starts and stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    with _dropout_shown(), torch.profiler.profile(activities=[ProfilerActivity.CPU]) as profiler:
        begin = time.perf_counter()
        for _ in range(epochs):
            epoch()
        total = (time.perf_counter() - begin) * 1e6
    spent = of_parts([event for event in profiler.events() or () if event.cpu_parent is None])
    spent[OTHER] += max(total - sum(spent.values()), 0.0)
    whole = sum(spent.values())
    return {part: microseconds / whole for part, microseconds in spent.items()}


def of_parts(roots: Sequence[Any]) -> dict[str, float]:
    """Return the microseconds of each part, in events of torch's profiler and the events inside them.

    Args:
        roots: Events that are not inside another event, with ``name``, ``sequence_nr``,
            ``self_cpu_time_total`` and ``cpu_children``.
    """
    spent = dict.fromkeys(PARTS, 0.0)
    dropped = set(_steps_inside_dropout(roots, inside=False))
    for event in roots:
        _add(event, OTHER, dropped, spent)
    return spent


@contextlib.contextmanager
def _dropout_shown() -> Iterator[None]:
    """Make the profiler see dropout as one event, because it knows nothing that the native code calls."""
    original = F.dropout

    def dropout(*args: Any, **kwargs: Any) -> Any:
        with record_function("dropout"):
            return original(*args, **kwargs)

    F.dropout = dropout
    try:
        yield
    finally:
        F.dropout = original


def part_of(name: str) -> str | None:
    """Return the part to which an event of this name belongs; None if the name does not tell."""
    return next((part for part, pattern in _NAMES if pattern.search(name)), None)


def _steps_inside_dropout(events: Iterable[Any], inside: bool) -> Iterable[int]:
    """Yield autograd's sequence numbers of steps inside dropout; backward steps have the same numbers."""
    for event in events:
        within = inside or part_of(event.name) == DROPOUT
        if within and event.sequence_nr >= 0:
            yield event.sequence_nr
        yield from _steps_inside_dropout(event.cpu_children, within)


def _add(event: Any, around: str, dropped: set[int], spent: dict[str, float]) -> None:
    part = part_of(event.name) or around
    if part == AGGREGATION and around == PRODUCTS:
        part = PRODUCTS
    if event.name.startswith(_BACKWARD) and event.sequence_nr in dropped:
        part = DROPOUT
    spent[part] += event.self_cpu_time_total
    for child in event.cpu_children:
        _add(child, part, dropped, spent)
