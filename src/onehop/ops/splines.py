"""Products of rows with matrices that B-splines interpolate, as SplineCNN's layers compute them."""

from collections.abc import Callable

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.ops.typed import typed_product

# For each degree, the pieces of the uniform B-spline over [0, 1); the last piece belongs to the next knot.
# Source: C. de Boor, A Practical Guide to Splines, chapter IX.
_PIECES: dict[int, list[Callable[[Tensor], Tensor]]] = {
    1: [lambda v: 1 - v, lambda v: v],
    2: [lambda v: (1 - v) ** 2 / 2, lambda v: v * (1 - v) + 0.5, lambda v: v**2 / 2],
    3: [
        lambda v: (1 - v) ** 3 / 6,
        lambda v: (3 * v**3 - 6 * v**2 + 4) / 6,
        lambda v: (-3 * v**3 + 3 * v**2 + 3 * v + 1) / 6,
        lambda v: v**3 / 6,
    ],
}


def spline_basis(
    pseudo: Tensor, kernel_size: Tensor, is_open_spline: Tensor, degree: int = 1
) -> tuple[Tensor, Tensor]:
    """Compute the B-splines that are not zero at each point, and their numbers.

    Args:
        pseudo: [E, D], floating point: points, usually in [0, 1).
        kernel_size: [D], int64: the number of splines along each dimension.
        is_open_spline: [D]: whether the splines of a dimension end at its borders; otherwise they are
            periodic.
        degree: 1, 2 or 3.

    Returns:
        [E, S] and [E, S], S = (degree + 1) ** D: products of splines, differentiable in ``pseudo``, and their
        numbers, int64, counted along the first dimension fastest.

    Raises:
        ArgumentError: A shape or the degree does not fit.

    Source: Fey et al., SplineCNN (arXiv 1711.08920), section 3.
    """
    if degree not in _PIECES:
        raise ArgumentError(f"degree: expected 1, 2 or 3, got {degree}.")
    dims = kernel_size.numel()
    if pseudo.shape[1:] != (dims,) or is_open_spline.shape != (dims,):
        raise ArgumentError(
            f"pseudo, kernel_size, is_open_spline: expected [E, D], [D] and [D], got {list(pseudo.shape)}, "
            f"{list(kernel_size.shape)} and {list(is_open_spline.shape)}."
        )
    knots = pseudo * (kernel_size - degree * is_open_spline.long()).to(pseudo.dtype)
    first = knots.detach().floor()
    within = knots - first
    place = torch.arange(degree + 1, device=pseudo.device)
    basis, number = pseudo.new_ones(pseudo.size(0), 1), first.new_zeros(first.size(0), 1, dtype=torch.int64)
    strides = [1, *kernel_size.cumprod(0).tolist()]
    for dim in range(dims):
        splines = torch.stack([piece(within[:, dim]) for piece in _PIECES[degree]], 1)
        numbers = (first[:, dim, None].long() + place) % kernel_size[dim] * strides[dim]
        # The first dimension varies fastest.
        basis = (splines.unsqueeze(2) * basis.unsqueeze(1)).flatten(1)
        number = (numbers.unsqueeze(2) + number.unsqueeze(1)).flatten(1)
    return basis, number


def spline_weighting(x: Tensor, weight: Tensor, basis: Tensor, weight_index: Tensor) -> Tensor:
    """Multiply each row by the sum of its matrices, weighted by ``basis``.

    Args:
        x: [E, K].
        weight: [matrices, K, M], of the same dtype.
        basis: [E, S], of the same dtype.
        weight_index: [E, S], int64: numbers of matrices.

    Returns:
        [E, M], differentiable in ``x``, ``weight`` and ``basis``.

    Raises:
        ArgumentError: A shape does not fit.
    """
    edges, splines = basis.shape
    if x.shape != (edges, weight.size(1)) or weight_index.shape != basis.shape:
        raise ArgumentError(
            f"x, weight, basis, weight_index: expected [E, K], [matrices, K, M], [E, S] and [E, S], got "
            f"{list(x.shape)}, {list(weight.shape)}, {list(basis.shape)} and {list(weight_index.shape)}."
        )
    # Pairs of a row and a matrix, ordered by matrix.
    order = weight_index.flatten().argsort(stable=True)
    rows = order // splines
    counts = torch.bincount(weight_index.flatten(), minlength=weight.size(0)).tolist()
    products = typed_product(x.index_select(0, rows), weight, counts)
    weighted = products * basis.flatten().index_select(0, order).unsqueeze(1)
    return x.new_zeros(edges, weight.size(2)).index_add(0, rows, weighted)
