"""Products of groups of rows, each with a matrix of its own, written where they belong."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from onehop.integrations import session
from onehop.integrations.torch.products import may_choose
from onehop.kernels.products import TORCH, libraries
from onehop.ops.contexts import wraps
from onehop.ops.linear import FORWARD, TO_WEIGHT, library_of


def grouped_product(rows: Tensor, matrices: Tensor, counts: Sequence[int]) -> Tensor:
    """[N, M]: the rows of each group times its matrix. Differentiable, any number of times.

    Args:
        rows: [N, K], group by group.
        matrices: [groups, K, M], of the same dtype.
        counts: How many rows each group has; they add up to N.
    """
    out: Tensor = _GroupedProduct.apply(rows, matrices, counts)  # type: ignore[no-untyped-call]
    return out


class _GroupedProduct(Function):
    """The products, without the pieces that a concatenation, and the gradient of a split, would copy."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, matrices: Tensor, counts: Sequence[int]) -> Tensor:
        ctx.save_for_backward(rows, matrices)
        ctx.counts = counts
        return _products(rows, matrices, counts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        rows, matrices = ctx.saved_tensors
        of_rows = of_matrices = None
        if ctx.needs_input_grad[0]:
            of_rows = grouped_product(gradient, matrices.transpose(1, 2), ctx.counts)
        if ctx.needs_input_grad[1]:
            of_matrices = gradient_of_matrices(rows, gradient, ctx.counts)
        return of_rows, of_matrices, None


def gradient_of_matrices(rows: Tensor, gradient: Tensor, counts: Sequence[int]) -> Tensor:
    """[groups, K, M]: the gradient of a grouped product's matrices; arguments as of :func:`grouped_product`.

    ``gradient``, [N, M], is that of the product.
    """
    groups = zip(rows.split(counts), gradient.split(counts), strict=True)
    if wraps(rows, gradient):
        return torch.stack([part.t() @ of_part for part, of_part in groups])
    fastest = _may_run_elsewhere(rows)
    return torch.stack([_over_rows(part, of_part, fastest) for part, of_part in groups])


def _products(rows: Tensor, matrices: Tensor, counts: Sequence[int]) -> Tensor:
    pairs = zip(rows.split(counts), matrices.unbind(), strict=True)
    if wraps(rows, matrices):
        # Batched gradients know no writes into a tensor.
        return torch.cat([part @ matrix for part, matrix in pairs])
    out, fastest = rows.new_empty(rows.size(0), matrices.size(2)), _may_run_elsewhere(rows)
    for (part, matrix), place in zip(pairs, out.split(counts), strict=True):
        inputs, outputs = matrix.shape
        run = library_of(FORWARD, len(part), inputs, outputs, rows.dtype, fastest)
        if run is libraries(FORWARD)[TORCH]:
            torch.mm(part, matrix, out=place)
        else:
            place.copy_(run(part.contiguous(), matrix.t().contiguous(), None))
    return out


def _over_rows(part: Tensor, gradient: Tensor, fastest: bool) -> Tensor:
    """[K, M]: the gradient of one group's matrix."""
    run = library_of(TO_WEIGHT, len(part), gradient.size(1), part.size(1), part.dtype, fastest)
    return run(part.contiguous(), gradient.contiguous(), None)


def _may_run_elsewhere(rows: Tensor) -> bool:
    """Return whether products may run in another library than torch's own."""
    return rows.is_cpu and session.now.settings.products and may_choose()
