"""Functions of tensors that save little for the backward pass, and compute the rest again in it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from onehop.ops.batching import for_each


class Recomputed(Protocol):
    """A function of tensors whose backward pass computes again what is too large to keep."""

    @property
    def recorded(self) -> Callable[..., Tensor]:
        """Computes the result of the operands by differentiable operations."""
        ...

    @property
    def forward(self) -> Callable[..., tuple[Tensor, ...]]:
        """Computes the result, and what is saved besides the operands; nothing is recorded."""
        ...

    @property
    def gradients(self) -> Callable[..., tuple[Tensor, ...]]:
        """Computes the gradients of those operands that need one; nothing is recorded.

        It takes a tuple that says which operands need one, the gradient of the result, the operands, and what
        :attr:`forward` saved besides.
        """
        ...


def recomputed(form: Recomputed, *operands: Tensor) -> Tensor:
    """Computes a form's result of its operands. Differentiable, any number of times."""
    if torch.is_grad_enabled() and any(operand.requires_grad for operand in operands):
        out: Tensor = _Recomputed.apply(form, *operands)  # type: ignore[no-untyped-call]
        return out
    return form.forward(*operands)[0]


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, form: Recomputed, *operands: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        out, *kept = form.forward(*operands)
        ctx.save_for_backward(*operands, *kept)
        ctx.form = form
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        needs = ctx.needs_input_grad[1:]
        if grad is None:
            return (None,) * (1 + len(needs))
        if torch.is_grad_enabled():
            found = _differentiable(ctx.form, needs, grad, ctx.saved_tensors[: len(needs)])
        else:
            # Gradients read memory, which a batch of gradients does not have: its members go one by one.
            found = for_each(partial(ctx.form.gradients, needs), grad, *ctx.saved_tensors)
        left = iter(found)
        return (None, *(next(left) if needed else None for needed in needs))


def _differentiable(
    form: Recomputed, needs: tuple[bool, ...], grad: Tensor, operands: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The gradients as functions that can be differentiated again."""
    # Views, so that an operand that was made from another does not count for that one too.
    inputs = [t.view_as(t) if need else t for t, need in zip(operands, needs, strict=True)]
    wanted = [t for t, need in zip(inputs, needs, strict=True) if need]
    out = form.recorded(*inputs)
    return torch.autograd.grad(out, wanted, grad, create_graph=True, materialize_grads=True)
