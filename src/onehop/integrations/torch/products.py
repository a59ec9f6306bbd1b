"""Linear steps, X W^T + b, with their gradients; each product runs in the fastest library for it.

Small products, and products of other dtypes, run in torch.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from onehop.integrations.torch import sparse_features
from onehop.integrations.torch.sparse_features import SparseFeatures
from onehop.ops.contexts import autocasts, context_reason, wraps
from onehop.ops.linear import FORWARD, TO_INPUT, TO_WEIGHT, add_product, is_large, multiply, torch_decides

# A reshape that autograd does not treat as a view.
_unsafe_view = torch.ops.aten._unsafe_view.default

Noting = Callable[[Tensor], None]

THEIRS = torch._C._nn.linear
"""torch's own ``torch.nn.functional.linear``, even if another function has replaced the public one."""


def is_torchs() -> bool:
    """Return whether ``torch.nn.functional.linear`` is torch's own function."""
    return F.linear is THEIRS


def linear_step(
    x: Tensor, weight: Tensor, bias: Tensor | None, fastest: bool, noting: Noting | None = None
) -> Tensor:
    """Compute X W^T + b; autograd records it as one step.

    If X holds constant features that are nearly all 0 and was used in training, the products are sums over a
    graph of its entries.

    Args:
        x: [..., K].
        weight: [M, K], of the same dtype.
        bias: [M], or [N, M] if x is [N, K], of the same dtype; None means 0.
        fastest: Whether the fastest library may be chosen; the caller has checked the context.
        noting: Called with X in the backward pass; None means no call.

    Returns:
        [..., M].
    """
    features, notings = None, () if noting is None else (noting,)
    if fastest and sparse_features.may_apply(x):
        features = sparse_features.find(x)
        notings = (*notings, sparse_features.note_training)
    if torch.is_grad_enabled() and (
        x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    ):
        out: Tensor = _LinearStep.apply(x, weight, bias, fastest, features, notings)  # type: ignore[no-untyped-call]
        return out
    return _times_transposed(x, weight, bias, fastest, features)


def _times_transposed(
    x: Tensor, weight: Tensor, bias: Tensor | None, fastest: bool, features: SparseFeatures | None
) -> Tensor:
    out = None if features is None else features.times(weight.t())
    if out is None:
        return times_transposed(x, weight, bias, fastest)
    return out if bias is None else out.add_(bias)


def times_transposed(x: Tensor, weight: Tensor, added: Tensor | None, fastest: bool) -> Tensor:
    """Return X W^T + b. Autograd records nothing if ``fastest`` holds and the product is large."""
    if fastest and (added is None or (added.is_contiguous() and added.dtype is x.dtype)):
        rows = _rows(x)
        if is_large(FORWARD, rows, weight):
            out = multiply(FORWARD, rows, weight, added)
            return out if x.dim() == 2 else _unsafe_view(out, (*x.shape[:-1], weight.size(0)))
    if added is not None and added.dim() > 1:
        return torch.addmm(added, x, weight.t())
    # F.linear may be replaced, so it is not called here.
    plain: Tensor = torch._C._nn.linear(x, weight, added)
    return plain


def plus_times_transposed(out: Tensor, x: Tensor, weight: Tensor, fastest: bool) -> Tensor:
    """Return ``out``, [N, M], with X W^T, [n, M], added to its first n rows; ``out`` may be overwritten."""
    top = out[: x.size(0)]
    if not (fastest and is_large(FORWARD, x, weight)):
        top.addmm_(x, weight.t())
        return out
    return add_product(out, x, weight)


def times(grad: Tensor, weight: Tensor, fastest: bool) -> Tensor:
    """Return G W, [N, K], for [N, M] and [M, K]."""
    if fastest and is_large(TO_INPUT, grad, weight):
        return multiply(TO_INPUT, grad, weight)
    return grad @ weight


def over_rows(grad: Tensor, x: Tensor, fastest: bool) -> Tensor:
    """Return G^T X, [M, K], for [N, M] and [N, K]."""
    if fastest and is_large(TO_WEIGHT, grad, x):
        return multiply(TO_WEIGHT, grad, x)
    return grad.t() @ x


def may_choose() -> bool:
    """Return whether the context and torch's settings allow a choice of the library now."""
    return context_reason() is None and not torch_decides()


def may_choose_backward(forward: bool, grad: Tensor) -> bool:
    """Return whether the library may be chosen in a backward pass.

    Args:
        forward: Whether it could be chosen in the forward pass.
        grad: The incoming gradient, which may be a batch of gradients.
    """
    return (
        forward
        and not torch.is_grad_enabled()  # with gradients enabled, this pass is recorded
        and type(grad) is Tensor
        and grad.layout is torch.strided
        and may_choose()
        and not wraps(grad)
        and not autocasts(grad)
    )


class _LinearStep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        fastest: bool,
        features: SparseFeatures | None,
        notings: tuple[Noting, ...],
    ) -> Tensor:
        # An operand is not saved if no gradient needs it, so the user may write to it.
        for_x, for_weight, *_ = ctx.needs_input_grad
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x if for_weight else None, weight if for_x else None)
        ctx.bias_dims = 0 if bias is None else bias.dim()
        ctx.fastest, ctx.features, ctx.notings = fastest, features, notings
        return _times_transposed(x, weight, bias, fastest, features)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * len(ctx.needs_input_grad)
        x, weight = ctx.saved_tensors
        for noting in ctx.notings if x is not None else ():
            noting(x)
        for_x, for_weight, for_bias, *_ = ctx.needs_input_grad
        fastest = may_choose_backward(ctx.fastest, grad)
        rows = _rows(grad)
        to_x = times(rows, weight, fastest) if for_x else None
        if to_x is not None and grad.dim() != 2:
            to_x = to_x.reshape(*grad.shape[:-1], to_x.size(-1))
        to_weight = None
        if for_weight and ctx.features is not None and fastest:
            to_weight = ctx.features.over_rows(rows)
        if for_weight and to_weight is None:
            to_weight = over_rows(rows, _rows(x), fastest)
        to_bias = (rows.sum(0) if ctx.bias_dims == 1 else grad) if for_bias else None
        return to_x, to_weight, to_bias, None, None, None


def _rows(tensor: Tensor) -> Tensor:
    """Return a tensor, [..., K], as a matrix."""
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, tensor.size(-1))
