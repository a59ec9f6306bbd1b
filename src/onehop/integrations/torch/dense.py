"""Large matrix products: float32 in the fastest library for the shape, 16-bit dtypes by way of float32.

If an operand holds constant features that are nearly all 0 and were used in training, the product is a sum
over a graph of their entries (:mod:`onehop.integrations.torch.sparse_features`). If a function returns None,
torch's kernel runs.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from onehop import thresholds
from onehop.integrations.torch import sparse_features
from onehop.integrations.torch.served import Served
from onehop.kernels.products import FORWARD, TO_INPUT, TO_WEIGHT
from onehop.native import empty
from onehop.ops.contexts import is_numbers
from onehop.ops.linear import is_large, is_torchs_choice, multiply, torch_decides

# Returns -1 outside of backward passes.
_backward_pass = torch._C._current_graph_task_id
HALVES = (torch.bfloat16, torch.float16)
"""The dtypes of 16 bits."""


def product(left: Tensor, right: Tensor, added: Tensor | None = None) -> Tensor | None:
    """Return the product of two matrices, plus a vector or matrix; None to run torch's kernel.

    Args:
        left: [N, K], float32, bfloat16 or float16.
        right: [K, M], of the same dtype; so is ``added``.
        added: [M] or [N, M]; None adds nothing.
    """
    operands = (left, right) if added is None else (left, right, added)
    if torch_decides() or not _suit(*operands) or left.shape[1:] != right.shape[:1]:
        return None
    if left.dtype in HALVES:
        return _widened(left, right, added)
    if left.stride() == (0, 0):  # the gradient of a sum
        left = left.t().contiguous().t()
    out = _of_features(left, right, added)
    return _multiplied(left, right, added) if out is None else out


def batched_product(left: Tensor, right: Tensor) -> Tensor | None:
    """Return the products, [B, N, M], of 16-bit matrices, [B, N, K] and [B, K, M]."""
    suit = left.dtype in HALVES and _suit(left, right) and not torch_decides()
    if not suit or right.shape[:2] != (left.size(0), left.size(2)):
        return None
    # Each product is rounded to 16 bits while it is still in the caches.
    out = empty((*left.shape[:2], right.size(2)), left.dtype)
    for begin, length in _blocks(*left.shape[:2]):
        left32, right32 = (operand.narrow(0, begin, length).float() for operand in (left, right))
        out.narrow(0, begin, length).copy_(torch.bmm(left32, right32))
    return out


def has_instructions(dtype: torch.dtype) -> bool:
    """Return whether torch multiplies 16-bit matrices with instructions for this dtype.

    Without such instructions, a product of [4096, 256] and [256, 256] takes 5 to 50 times as long as in
    float32.
    """
    supports = torch.ops.mkldnn
    short = dtype is torch.bfloat16
    return bool(supports._is_mkldnn_bf16_supported() if short else supports._is_mkldnn_fp16_supported())


def _of_features(left: Tensor, right: Tensor, added: Tensor | None) -> Tensor | None:
    """Return the product if an operand holds constant features that are nearly all 0; None otherwise."""
    if left.is_contiguous() and right.t().is_contiguous():
        # Only operands of linear steps are sampled. A gradient to an input is new each time, so sampling it
        # is wasted.
        features = sparse_features.find(left) if sparse_features.may_apply(left) else None
        out = None if features is None else features.times(right)
        return out if out is None or added is None else out.add_(added)
    if not left.t().is_contiguous() or not right.is_contiguous() or added is not None:
        return None
    # This is G^T X, for example the gradient to the weight of a linear step of X.
    if _backward_pass() < 0 or not sparse_features.may_apply(right):
        return None
    features = sparse_features.find(right)
    sparse_features.note_training(right)
    return None if features is None else features.over_rows(left.t())


def _multiplied(left: Tensor, right: Tensor, added: Tensor | None) -> Tensor | None:
    """Return the float32 product, computed by the fastest library; None if that is torch's own."""
    if left.is_contiguous() and right.t().is_contiguous():
        kind, first, second = FORWARD, left, right.t()
    elif left.is_contiguous() and right.is_contiguous() and added is None:
        kind, first, second = TO_INPUT, left, right
    elif left.t().is_contiguous() and right.is_contiguous() and added is None:
        kind, first, second = TO_WEIGHT, left.t(), right
    else:
        return None
    if not is_large(kind, first, second) or is_torchs_choice(kind, first, second):
        return None
    shapes = (right.shape[1:], (len(left), right.size(1)))
    fits = added is None or (added.is_contiguous() and added.shape in shapes)
    return multiply(kind, first, second, added) if fits else None


def _widened(left: Tensor, right: Tensor, added: Tensor | None) -> Tensor | None:
    """Return the product of 16-bit matrices. As in torch, sums are float32 and rounded once, at the end."""
    rows, inner = left.shape
    columns = right.size(1)
    if added is not None and added.shape not in ((columns,), (rows, columns)):
        return None
    out = empty((rows, columns), left.dtype)
    if inner > rows:  # for example the gradient to a weight
        total = torch.zeros(rows, columns, device="cpu") if added is None else added.float().expand(rows, -1)
        for begin, length in _blocks(inner):
            left32, right32 = left.narrow(1, begin, length).float(), right.narrow(0, begin, length).float()
            total = total + _product32(left32, right32, None)
        return out.copy_(total)
    right32 = right.float()
    for begin, length in _blocks(rows):
        part = added if added is None or added.dim() == 1 else added.narrow(0, begin, length)
        left32 = left.narrow(0, begin, length).float()
        out.narrow(0, begin, length).copy_(
            _product32(left32, right32, None if part is None else part.float())
        )
    return out


def _product32(left: Tensor, right: Tensor, added: Tensor | None) -> Tensor:
    out = _multiplied(left, right, added)
    if out is not None:
        return out
    return torch.mm(left, right) if added is None else torch.addmm(added, left, right)


def _blocks(count: int, rows: int = 1) -> Iterator[tuple[int, int]]:
    """Yields (begin, length) of each block of ``count`` items that have ``rows`` rows each."""
    length = max(thresholds.now.product_block_rows // rows, 1)
    for begin in range(0, count, length):
        yield begin, min(length, count - begin)


def _suit(first: Tensor, *others: Tensor) -> bool:
    return first.dtype in (torch.float32, *HALVES) and all(
        operand.dtype is first.dtype and operand.numel() > 0 and is_numbers(operand)
        for operand in (first, *others)
    )


SERVED = {
    "mm": Served(product, "mm"),
    "addmm": Served(product, "addmm"),
    "bmm": Served(batched_product, "bmm"),
}
"""The functions that run instead of operators, by the operator's name."""
