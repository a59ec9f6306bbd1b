"""Computations that run piece by piece, and again in the backward pass, so that nothing large is stored."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from onehop.ops.batching import for_each
from onehop.ops.contexts import in_memory, materialized

Needs = tuple[bool, ...]
"""Whether the gradient is needed, for each operand."""


class Pieces(Protocol):
    """A computation for :func:`recomputed`."""

    def forward(self, operands: Sequence[Tensor]) -> tuple[Any, tuple[Tensor | None, ...]]:
        """Compute the result piece by piece; autograd records nothing.

        Returns:
            A tensor or a tuple of tensors, and the tensors that the backward pass needs besides the operands.
        """
        ...

    def gradients(
        self, needs: Needs, operands: Sequence[Tensor], saved: Sequence[Any], *grads: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Compute the gradients of the operands that need one, in order, piece by piece.

        Args:
            needs: Whether each operand needs a gradient.
            operands: The operands.
            saved: The tensors that :meth:`forward` returned besides the result.
            *grads: The gradient of each result, or None. They own their memory.
        """
        ...

    def differentiable(
        self, needs: Needs, operands: Sequence[Tensor], *grads: Tensor | None
    ) -> Sequence[Tensor | None]:
        """Compute the same gradients by differentiable functions."""
        ...


class Whole(ABC):
    """Pieces whose result can also be computed by differentiable functions, with the memory of all pieces."""

    @abstractmethod
    def whole(self, *operands: Tensor) -> Any:
        """Compute the result by differentiable functions: a tensor or a tuple of tensors."""

    def forward(self, operands: Sequence[Tensor]) -> tuple[Any, tuple[Tensor | None, ...]]:
        """Compute the result; see :meth:`Pieces.forward`. Nothing else is saved."""
        return self.whole(*operands), ()

    def differentiable(
        self, needs: Needs, operands: Sequence[Tensor], *grads: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Compute the gradients of the operands that need one; see :meth:`Pieces.differentiable`."""
        return differentiated(self.whole, needs, operands, grads)


def recomputed(pieces: Pieces, *operands: Tensor) -> Any:
    """Run a computation and its backward pass piece by piece; the backward pass makes each piece again.

    Autograd saves the operands and the tensors that the computation returns for it, and notices writes to
    them. A backward pass that is itself recorded (``create_graph=True``) does not run in pieces. A batch of
    gradients (``is_grads_batched=True``, ``torch.vmap`` over ``torch.autograd.grad``) runs one by one,
    because pieces read and write memory, which a batched tensor does not have.

    Args:
        pieces: The computation.
        *operands: Tensors that may need a gradient.

    Returns:
        The result of ``pieces.forward``.
    """
    for operand in operands:  # this is in_memory(), without a call if nothing is copied
        if operand.is_neg() or operand._is_zerotensor() or operand.is_conj():
            operands = tuple(map(in_memory, operands))
    if torch.is_grad_enabled() and any(operand.requires_grad for operand in operands):
        return _Recomputed.apply(pieces, *operands)  # type: ignore[no-untyped-call]
    return pieces.forward(operands)[0]


def differentiated(
    whole: Callable[..., Any],
    needs: Needs,
    operands: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    again: bool = True,
) -> tuple[Tensor, ...]:
    """Compute the gradients of a differentiable function; by default they are differentiable.

    Args:
        whole: Takes the operands and returns a tensor or a tuple of tensors, all pieces at once.
        needs: Whether each operand needs a gradient.
        operands: The operands.
        grads: The gradient of each result, or None.
        again: Whether the gradients can be differentiated.

    Returns:
        The gradients of the operands that need one, in order.
    """
    # Views are used, because an operand may have been made from another one, and torch.vmap allows no new
    # leaf tensors.
    inputs = [t.view_as(t) if need else t for t, need in zip(operands, needs, strict=True)]
    out = whole(*inputs)
    results = (out,) if isinstance(out, Tensor) else out
    pairs = [(result, grad) for result, grad in zip(results, grads, strict=True) if grad is not None]
    return torch.autograd.grad(
        [result for result, _ in pairs],
        [t for t, need in zip(inputs, needs, strict=True) if need],
        [grad.to(result.dtype) for result, grad in pairs],
        create_graph=again,
        materialize_grads=True,
    )


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pieces: Pieces, *operands: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        result, saved = pieces.forward(operands)
        ctx.save_for_backward(*operands, *saved)
        ctx.pieces = pieces
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        needs = ctx.needs_input_grad[1:]
        has_grad = False
        for grad in grads:
            has_grad = has_grad or grad is not None
            if grad is not None and (grad.is_neg() or grad._is_zerotensor() or grad.is_conj()):
                grads = materialized(grads)
        if not has_grad:
            return (None,) * (1 + len(needs))
        # The saved tensors are read only once, because a checkpoint makes each of them again when it is read.
        saved, pieces = ctx.saved_tensors, ctx.pieces
        operands, others = saved[: len(needs)], saved[len(needs) :]
        if torch.is_grad_enabled():
            gradients = pieces.differentiable(needs, operands, *grads)
        else:
            gradients = for_each(partial(pieces.gradients, needs, operands, others), *grads)
        left = iter(gradients)
        return (None, *(next(left) if need else None for need in needs))
