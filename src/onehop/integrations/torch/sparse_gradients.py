"""``torch.sparse.mm`` and ``torch.sparse.addmm`` with gradients to the values of a COO matrix.

torch multiplies the gradient of the result, [N, M], by the transpose of the dense operand, [K, M], to a dense
[N, K], of which it takes the entries that the matrix has. Here each entry is one dot product (SDDMM).

These functions run above autograd, which records what they call, so that gradients have gradients. Where one
returns None, torch's operator runs.
"""

from typing import Any

import torch
from torch import Tensor

from onehop.integrations.torch.matrix_edges import graph_of, recognised
from onehop.integrations.torch.served import Served
from onehop.integrations.torch.sparse_products import LAYOUTS, suit
from onehop.ops.contexts import context_reason
from onehop.ops.sddmm import sddmm


def product(matrix: Tensor, x: Tensor) -> Tensor | None:
    """The product of a sparse matrix, [N, K], and a dense one, [K, M].

    torch's operator also makes zeros to add it to, which take as long as a third of the product.
    """
    if matrix.layout not in LAYOUTS or x.layout is not torch.strided or context_reason() is not None:
        return None
    # Otherwise the error is that of another operator.
    if matrix.dtype is not x.dtype or matrix.shape[1:] != x.shape[:1] or x.dim() != 2:
        return None
    if not (matrix.requires_grad and torch.is_grad_enabled()):
        return torch.mm(matrix, x)
    return _differentiable(matrix, x)


def sum_with_product(matrix: Tensor, x: Tensor, added: Tensor, is_added: bool) -> Tensor | None:
    """The product, [N, M], with a matrix [N, M] or a vector [M] added."""
    if not (is_added and matrix.requires_grad and torch.is_grad_enabled()) or context_reason() is not None:
        return None
    fits = matrix.dim() == x.dim() == 2 and added.shape in ((matrix.size(0), x.size(1)), (x.size(1),))
    if not fits or added.layout is not torch.strided or added.dtype is not x.dtype:
        return None
    out = _differentiable(matrix, x)
    return None if out is None else added + out


def _differentiable(matrix: Tensor, x: Tensor) -> Tensor | None:
    is_coo = matrix.layout is torch.sparse_coo and matrix.dense_dim() == 0
    fits = is_coo and suit(matrix, x) and matrix.size(1) == x.size(0)
    return _Product.apply(matrix, x) if fits else None  # type: ignore[no-untyped-call]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(matrix, x)
        return torch.mm(matrix, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        matrix, x = ctx.saved_tensors
        to_values, to_x = ctx.needs_input_grad
        return (
            _of_entries(matrix, grads[0], x) if to_values else None,
            torch.mm(matrix.t(), grads[0]) if to_x else None,
        )


def _of_entries(matrix: Tensor, grad: Tensor, x: Tensor) -> Tensor:
    """The gradient to a matrix, of its pattern without repeated entries, as torch has it."""
    pattern = matrix.detach().coalesce()
    values = sddmm(graph_of(pattern, recognised(pattern)), grad, x)
    # Without indices of its own, the gradient of a leaf would be a copy of this one.
    indices, shape = pattern._indices().clone(), pattern.shape
    return torch.sparse_coo_tensor(
        indices, values, shape, device="cpu", is_coalesced=True, check_invariants=False
    )


SERVED = {
    "_sparse_mm": Served(product, "torch.sparse.mm"),
    "_sparse_addmm": Served(sum_with_product, "torch.sparse.addmm"),
}
"""By the operator's name, at autograd's dispatch key."""
