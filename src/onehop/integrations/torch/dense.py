"""Large float32 products of matrices, each in the library that is fastest for it.

A product of constant features that are nearly all 0, and were trained on, is a sum over their graph
(:mod:`onehop.integrations.torch.sparse_features`). Where a function returns None, torch's kernel runs.
"""

import torch
from torch import Tensor

from onehop.integrations.torch import sparse_features
from onehop.integrations.torch.served import Served
from onehop.kernels.products import FORWARD, TO_INPUT, TO_WEIGHT
from onehop.ops.contexts import is_numbers
from onehop.ops.linear import is_large, is_torchs_choice, multiply, torch_decides

# -1 outside of backward passes.
_backward_pass = torch._C._current_graph_task_id


def product(left: Tensor, right: Tensor, added: Tensor | None = None) -> Tensor | None:
    """The product of two matrices, with a vector or matrix added.

    Args:
        left: [N, K], float32.
        right: [K, M].
        added: [M] or [N, M]; None adds nothing.
    """
    operands = (left, right) if added is None else (left, right, added)
    if torch_decides() or not all(map(_suits, operands)) or left.shape[1:] != right.shape[:1]:
        return None
    if left.stride() == (0, 0):  # the gradient of a sum
        left = left.t().contiguous().t()
    if left.is_contiguous() and right.t().is_contiguous():
        kind, second = FORWARD, right.t()
        # Of a linear step alone: a gradient to an input, which is new each time, would be sampled in vain.
        out = _of_features(left, right)
        if out is not None:
            return out if added is None else out.add_(added)
    elif left.is_contiguous() and right.is_contiguous() and added is None:
        kind, second = TO_INPUT, right
    elif left.t().is_contiguous() and right.is_contiguous() and added is None:
        return _over_rows(left.t(), right)
    else:
        return None
    if not _is_large(kind, left, second):
        return None
    shapes = (right.shape[1:], (len(left), right.size(1)))
    fits = added is None or (added.is_contiguous() and added.shape in shapes)
    return multiply(kind, left, second, added) if fits else None


def _of_features(x: Tensor, columns: Tensor) -> Tensor | None:
    features = sparse_features.find(x) if sparse_features.may_apply(x) else None
    return None if features is None else features.times(columns)


def _over_rows(grad: Tensor, x: Tensor) -> Tensor | None:
    """G^T X, [M, K], for [N, M] and [N, K]: such as the gradient to the weight of a linear step of X."""
    if _backward_pass() >= 0 and sparse_features.may_apply(x):
        features = sparse_features.find(x)
        sparse_features.note_training(x)
        out = None if features is None else features.over_rows(grad)
        if out is not None:
            return out
    return multiply(TO_WEIGHT, grad, x) if _is_large(TO_WEIGHT, grad, x) else None


def _is_large(kind: str, left: Tensor, right: Tensor) -> bool:
    return is_large(kind, left, right) and not is_torchs_choice(kind, left, right)


def _suits(operand: Tensor) -> bool:
    return (
        operand.dtype is torch.float32 and operand.numel() > 0 and operand.dim() <= 2 and is_numbers(operand)
    )


SERVED = {"mm": Served(product, "mm"), "addmm": Served(product, "addmm")}
"""By the operator's name."""
