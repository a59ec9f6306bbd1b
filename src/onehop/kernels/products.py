"""The three dense products of a linear step, each as the libraries at hand compute it.

A linear step needs x W^T + b, and in its backward pass g W and g^T x. Libraries differ in speed by processor
and by shape: MKL, behind ``torch.mm``, takes AVX2 on processors that are not Intel's; oneDNN, in the same
wheel of torch, generates code for what the processor has. All of them multiply and add in float32, and agree
within rounding. Which one is used is measured (:mod:`onehop.tuner.products`).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from onehop import thresholds

FORWARD, TO_INPUT, TO_WEIGHT = "forward", "gradient to the input", "gradient to the weight"
KINDS = (FORWARD, TO_INPUT, TO_WEIGHT)
"""The products: x W^T + b of [N, K] and [M, K]; g W of [N, M] and [M, K]; g^T x of [N, M] and [N, K]."""

TORCH, ONEDNN, BLOCKS = "torch", "oneDNN", "torch in blocks"
"""Names of libraries: torch.mm; oneDNN, through torch; torch.bmm over blocks of rows, and a sum."""

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""A product of two operands, and what is added: [M] or [N, M], with FORWARD alone; None adds nothing."""


@lru_cache(maxsize=len(KINDS))
def libraries(kind: str) -> dict[str, Product]:
    """The libraries that compute a product here, by name; torch's own comes first."""
    by_name: dict[str, Product] = {TORCH: _OF_TORCH[kind]}
    if kind == TO_WEIGHT:
        by_name[BLOCKS] = over_blocks
    linear = _onednn()
    if linear is not None:
        by_name[ONEDNN] = _of_onednn(kind, *linear)
    return by_name


def over_blocks(grad: Tensor, x: Tensor, added: Tensor | None = None) -> Tensor:
    """[M, K]: g^T x, summed over blocks of rows.

    The product has few rows and few columns, and libraries divide those, so that neither caches nor threads
    find enough to do. One product for each block, and the sum of those, are the same number of operations.

    Args:
        grad: [N, M].
        x: [N, K].
        added: None.
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
    """OneDNN's x W^T + b, and the same with a matrix added; None where torch has it not.

    It is what Inductor calls, under a private name of torch.
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
    """[M, K]: g^T x by oneDNN, which takes x as it is, and a copy of g^T of some rows at a time.

    Args:
        linear: OneDNN's x W^T + b.
        grad: [N, M].
        x: [N, K].
    """
    # Some of a block's columns stay in the second cache while it is read column by column.
    length = (thresholds.now.product_block_rows + 1) // 2 * 2
    # oneDNN generates code for every number of rows that it has not met, which takes as long as 3,000 rows of
    # 64 columns, and keeps it. Mini-batches have another number in each step. Blocks of four sizes divide all
    # of them, and torch multiplies what is left.
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
    """[M, N]: a copy of rows, [N, M]."""
    # torch's copy of two dimensions the other way round is the fastest, and runs on one thread.
    if torch.get_num_threads() == 1:
        return rows.t().contiguous()
    pairs = rows.size(0) // 2
    copy = rows.new_empty(rows.size(1), rows.size(0))
    of_pairs = rows[: 2 * pairs].unflatten(0, (pairs, 2)).permute(2, 0, 1)
    copy[:, : 2 * pairs].unflatten(1, (pairs, 2)).copy_(of_pairs)
    if 2 * pairs < rows.size(0):
        copy[:, -1] = rows[-1]
    return copy
