"""Each operator of torch's that is served, at a size in numbers: what ``bench_dispatch.py`` calls break-even.

An operator is called with an index, a mask or lengths that are new in each call, which no cache can have.
The gradient of ``segment_reduce`` is not here: torch calls its kernel boxed, so that torch's own runs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.calls.dispatch_cases import BAG_SIZE, DTYPES
from onehop import thresholds

aten: Any = torch.ops.aten
MASK_WIDTH = 8
# Columns of products. Of wider ones, or of narrower, the left operand would reach another threshold first.
PRODUCT_COLUMNS, HALF_COLUMNS, HALF_BATCH = 128, 64, 16


@dataclass(frozen=True)
class Given:
    """Tensors that an operator is called with, beside the new one.

    Attributes:
        x: [N, D], whose rows are gathered, or added to.
        values: [E, D].
        bags: [E], of each entry.
        sizes: [bags].
    """

    x: Tensor
    values: Tensor
    bags: Tensor
    sizes: Tensor

    def wide(self, index: Tensor) -> Tensor:
        """An index of entries, [E, D], from one of rows."""
        return index.unsqueeze(1).expand(-1, self.x.size(1))


class Operator(NamedTuple):
    """An operator.

    Attributes:
        cost: So many times as few numbers are enough (csrc/bindings/torch_kernels.cpp).
        call: Calls it, with the tensors and the new one.
        new: What is new in each call: "index", "mask" or "lengths".
    """

    cost: float
    call: Callable[[Given, Tensor], Tensor]
    new: str = "index"


class Ready(NamedTuple):
    """An operator at a size: ``call`` takes what ``new`` makes, outside of what is timed."""

    call: Callable[[Tensor], Tensor]
    new: Callable[[], Tensor]


BY_INDEX: dict[str, Operator] = {
    "index": Operator(16, lambda on, i: on.x[i]),
    "index:mask": Operator(64, lambda on, m: on.x[m], "mask"),
    "index_put_": Operator(32, lambda on, i: on.x.index_put_((i,), on.values, accumulate=True)),
    "index_put_:mask": Operator(
        32, lambda on, m: on.x.index_put_((m,), on.values[: len(m) // 2], accumulate=True), "mask"
    ),
    "index_select": Operator(0.5, lambda on, i: on.x.index_select(0, i)),
    "gather": Operator(0.5, lambda on, i: on.x.gather(0, on.wide(i))),
    "index_add": Operator(1, lambda on, i: on.x.index_add(0, i, on.values)),
    "index_add_": Operator(1, lambda on, i: on.x.index_add_(0, i, on.values)),
    "scatter_add": Operator(1, lambda on, i: on.x.scatter_add(0, on.wide(i), on.values)),
    "scatter_add_": Operator(1, lambda on, i: on.x.scatter_add_(0, on.wide(i), on.values)),
    "scatter": Operator(1, lambda on, i: on.x.scatter(0, on.wide(i), 1)),
    "scatter_reduce:mean": Operator(
        0.5, lambda on, i: on.x.scatter_reduce(0, on.wide(i), on.values, "mean", include_self=False)
    ),
    "scatter_reduce:amax": Operator(
        0.5, lambda on, i: on.x.scatter_reduce(0, on.wide(i), on.values, "amax", include_self=False)
    ),
    "scatter_reduce_:amax-with-self": Operator(
        0.125, lambda on, i: on.x.scatter_reduce_(0, on.wide(i), on.values, "amax")
    ),
    "embedding_dense_backward": Operator(
        4, lambda on, i: aten.embedding_dense_backward(on.values, i, len(on.x), -1, False)
    ),
    "_embedding_bag_dense_backward": Operator(
        4,
        lambda on, i: aten._embedding_bag_dense_backward(
            on.values[: len(on.sizes)], i, on.bags, on.sizes, on.sizes, len(on.x), False, 0, None, -1
        ),
    ),
    "segment_reduce": Operator(
        1, lambda on, lengths: torch.segment_reduce(on.values, "sum", lengths=lengths), "lengths"
    ),
}
PRODUCTS = ("mm", "addmm")
OF_HALVES = tuple(f"{kind}:{dtype}" for dtype in DTYPES for kind in (*PRODUCTS, "bmm"))
NAMES = (*BY_INDEX, *PRODUCTS, *OF_HALVES)
"""All operators; those :data:`OF_HALVES` are served where the processor has no instructions for them."""


def threshold(name: str, width: int) -> int:
    """Numbers, or multiplications of a product, from which on an operator is served."""
    least = thresholds.ORDINARY
    if name in PRODUCTS:
        return least.product_work
    if name in OF_HALVES:
        return least.product_work // 64
    columns = _columns(name, width)
    # An index has a least size too. An index of entries has more of them than numbers of rows.
    return max(int(least.index_numbers / BY_INDEX[name].cost), least.index_entries * columns)


def has_rows(name: str) -> bool:
    """Return whether an operator's index has some entries for each row: products and masks have none."""
    return name in BY_INDEX and BY_INDEX[name].new != "mask"


def ready(name: str, size: int, width: int, degree: int) -> Ready:
    """An operator with so many numbers or multiplications; its index has ``degree`` entries a row."""
    return _by_index(name, size, width, degree) if name in BY_INDEX else _product(name, size)


def _columns(name: str, width: int) -> int:
    return min(width, MASK_WIDTH) if BY_INDEX[name].new == "mask" else width


def _by_index(name: str, numbers: int, width: int, degree: int) -> Ready:
    operator, columns = BY_INDEX[name], _columns(name, width)
    entries = numbers // columns
    # All of the tensor is passed over under a mask: its rows are the entries.
    rows = entries if operator.new == "mask" else max(entries // degree, 1)
    bags = max(entries // BAG_SIZE, 1)
    of_each = torch.arange(entries).div(BAG_SIZE, rounding_mode="floor").clamp(max=bags - 1)
    on = Given(torch.randn(rows, columns), torch.randn(entries, columns), of_each, torch.bincount(of_each))
    make: dict[str, Callable[[], Tensor]] = {
        "index": lambda: torch.randint(rows, (entries,)),
        "mask": lambda: torch.randperm(rows) < rows // 2,
        "lengths": lambda: torch.bincount(torch.randint(rows, (entries,)), minlength=rows),
    }
    return Ready(lambda new: operator.call(on, new), make[operator.new])


def _product(name: str, work: int) -> Ready:
    """A product; its left operand is new in each call."""
    kind, _, dtype = name.partition(":")
    columns = HALF_COLUMNS if dtype else PRODUCT_COLUMNS
    of = DTYPES.get(dtype, torch.float32)
    batch = HALF_BATCH if kind == "bmm" else 1
    rows = work // (columns * columns * batch)
    weight, bias = torch.randn(columns, columns).to(of), torch.randn(columns).to(of)
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "mm": lambda left: torch.mm(left, weight),
        "addmm": lambda left: torch.addmm(bias, left, weight.t()),
        "bmm": lambda left: torch.bmm(left, weight.expand(batch, -1, -1)),
    }
    shape = (batch, rows, columns) if kind == "bmm" else (rows, columns)
    return Ready(calls[kind], lambda: torch.randn(shape).to(of))
