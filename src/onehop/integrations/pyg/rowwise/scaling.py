"""Rows times several factors each, side by side, written where they belong."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def side_by_side(rows: Tensor, factors: Sequence[Tensor | None]) -> Tensor:
    """Rows times each of some factors, joined along the last dimension.

    Args:
        rows: [..., width]. Differentiable, any number of times.
        factors: For each piece, one number a row, or None where it is the rows themselves.

    Returns:
        [..., pieces times width].
    """
    if len(factors) == 1 or any(factor is not None and factor.requires_grad for factor in factors):
        pieces = [rows if factor is None else rows * factor for factor in factors]
        return torch.cat(pieces, dim=-1) if len(pieces) > 1 else pieces[0]
    out: Tensor = _SideBySide.apply(rows, *factors)  # type: ignore[no-untyped-call]
    return out


class _SideBySide(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, *factors: Tensor | None) -> Tensor:
        ctx.save_for_backward(*factors)
        width = rows.size(-1)
        out = rows.new_empty((*rows.shape[:-1], len(factors) * width))
        for number, factor in enumerate(factors):
            piece = out.narrow(-1, number * width, width)
            if factor is None:
                piece.copy_(rows)
            else:
                torch.mul(rows, factor, out=piece)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        factors = ctx.saved_tensors
        total = None
        for piece, factor in zip(grad.chunk(len(factors), -1), factors, strict=True):
            part = piece if factor is None else piece * factor
            total = part if total is None else total + part
        return (total, *(None for _ in factors))
