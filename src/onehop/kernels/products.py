"""The three dense products of a linear step, computed by the available libraries.

A linear step needs x W^T + b, and in its backward pass g W and g^T x. The speed of libraries depends on the
processor and the shape: MKL, used by ``torch.mm``, uses only AVX2 on processors that are not from Intel;
oneDNN, part of the same torch package, generates code for the processor's instruction set. All libraries
multiply and add in float32, and agree up to rounding. The choice is made by measurement
(:mod:`onehop.tuner.products`).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from onehop import thresholds

FORWARD, TO_INPUT, TO_WEIGHT = "forward", "gradient to the input", "gradient to the weight"
KINDS = (FORWARD, TO_INPUT, TO_WEIGHT)
"""The products: x W^T + b for [N, K] and [M, K]; g W for [N, M] and [M, K]; g^T x for [N, M] and [N, K]."""

TORCH, ONEDNN, BLOCKS = "torch", "oneDNN", "torch in blocks"
"""Names of libraries: torch.mm; oneDNN, called through torch; torch.bmm over blocks of rows, plus a sum."""

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""A function of two operands and an addend, [M] or [N, M], only for FORWARD; None adds nothing."""


@lru_cache(maxsize=len(KINDS))
def libraries(kind: str) -> dict[str, Product]:
    """Return the libraries that can compute a product here, by name; torch's own comes first."""
    by_name: dict[str, Product] = {TORCH: _OF_TORCH[kind]}
    if kind == TO_WEIGHT:
        by_name[BLOCKS] = over_blocks
    linear = _onednn()
    if linear is not None:
        by_name[ONEDNN] = _of_onednn(kind, *linear)
    return by_name


def over_blocks(grad: Tensor, x: Tensor, added: Tensor | None = None) -> Tensor:
    """Compute g^T x, [M, K], as a sum over blocks of rows.

    The result has few rows and columns, and libraries divide these among threads, so caches and threads are
    not used well. One product for each block, plus their sum, is the same number of operations.

    Args:
        grad: [N, M].
        x: [N, K].
        added: Must be None.
    """
    rows = thresholds.now.product_block_rows
    blocks = grad.size(0) // rows
    whole = blocks * rows
    lefts, rights = (t[:whole].reshape(blocks, rows, t.size(1)) for t in (grad, x))
    summed = torch.bmm(lefts.transpose(1, 2), rights).sum(0)
    return summed + grad[whole:].t() @ x[whole:]


def _forward(x: Tensor, weight: Tensor, added: Tensor | None) -> Tensor:
    return torch.mm(x, weight.t()) if added is None else torch.addmm(added, x, weight.t())


_OF_TORCH: dict[str, Product] = {
    FORWARD: _forward,
    TO_INPUT: lambda grad, weight, added: torch.mm(grad, weight),
    TO_WEIGHT: lambda grad, x, added: torch.mm(grad.t(), x),
}


def _onednn() -> tuple[Any, Any] | None:
    """Return oneDNN's x W^T + b, and the variant that adds a matrix; None if torch has no oneDNN.

    Inductor calls these functions too, under a private name of torch.
    """
    if not torch.backends.mkldnn.is_available():
        return None
    try:
        packet = torch.ops.mkldnn._linear_pointwise
        return packet.default, packet.binary
    except AttributeError:
        return None


def _of_onednn(kind: str, linear: Any, linear_and: Any) -> Product:
    def times_transposed(left: Tensor, right: Tensor, added: Tensor | None) -> Tensor:
        if added is None or added.dim() == 1:
            out: Tensor = linear(left, right, added, "none", [], "")
        else:
            out = linear_and(left, added, right, None, "add")
        return out

    if kind == FORWARD:
        return times_transposed
    if kind == TO_INPUT:
        return lambda grad, weight, added: times_transposed(grad, weight.t(), None)
    return lambda grad, x, added: _over_rows(linear, grad, x)


def _over_rows(linear: Any, grad: Tensor, x: Tensor) -> Tensor:
    """Compute g^T x, [M, K], by oneDNN, from x and copies of g^T for some rows at a time.

    Args:
        linear: The x W^T + b of oneDNN.
        grad: [N, M].
        x: [N, K].
    """
    # Some of a block's columns stay in the L2 cache while the block is read column by column.
    length = (thresholds.now.product_block_rows + 1) // 2 * 2
    # oneDNN generates and caches code for every new number of rows, which takes as long as multiplying 3,000
    # rows of 64 columns. Mini-batches have another number of rows in each step. So rows are divided into
    # blocks of four sizes, and torch multiplies the remaining rows.
    least = max(length // 8, 1)
    blocks, begin, count = [], 0, grad.size(0)
    while count - begin >= least:
        while length > count - begin:
            length //= 2
        blocks.append(slice(begin, begin + length))
        begin += length
    summed = torch.mm(grad[begin:].t(), x[begin:])
    for rows in blocks:
        summed += linear(_transposed(grad[rows]), x[rows].t(), None, "none", [], "")
    return summed


def _transposed(rows: Tensor) -> Tensor:
    """Return the transpose of rows, [N, M], as a copy, [M, N]."""
    # torch's transposing copy of a matrix is the fastest, but runs on one thread.
    if torch.get_num_threads() == 1:
        return rows.t().contiguous()
    pairs = rows.size(0) // 2
    copy = rows.new_empty(rows.size(1), rows.size(0))
    of_pairs = rows[: 2 * pairs].unflatten(0, (pairs, 2)).permute(2, 0, 1)
    copy[:, : 2 * pairs].unflatten(1, (pairs, 2)).copy_(of_pairs)
    if 2 * pairs < rows.size(0):
        copy[:, -1] = rows[-1]
    return copy
