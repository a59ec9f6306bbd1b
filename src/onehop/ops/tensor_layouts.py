"""The order of columns of irreps, and paths that mix channels, in terms of functions of torch.

Kernels take the components of an irrep first and its channels last, and keep channels apart. What differs
from that is done for nodes, before and after the sum over edges, and is differentiated by torch.
"""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from onehop.irreps import Irrep, TensorPaths

Layout = Literal["mul_ir", "ir_mul"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)


def components_first(x: Tensor, irreps: tuple[Irrep, ...]) -> Tensor:
    """Return features, [N, F], whose channels come first, with the components first."""
    return _turned(x, [(irrep.multiplicity, irrep.components) for irrep in irreps])


def channels_first(x: Tensor, irreps: tuple[Irrep, ...]) -> Tensor:
    """Return features, [N, F], whose components come first, with the channels first."""
    return _turned(x, [(irrep.components, irrep.multiplicity) for irrep in irreps])


def _turned(x: Tensor, shapes: list[tuple[int, int]]) -> Tensor:
    """Return [N, F] with each irrep's columns, a matrix of this shape, transposed."""
    if all(min(shape) <= 1 for shape in shapes):
        return x
    parts = x.split([rows * columns for rows, columns in shapes], 1)
    turned = [
        part if min(shape) <= 1 else part.unflatten(1, shape).transpose(1, 2).flatten(1)
        for part, shape in zip(parts, shapes, strict=True)
    ]
    return torch.cat(turned, 1)


class Unmixed(NamedTuple):
    """Operands whose paths keep the channels apart.

    Attributes:
        x: [num_src, paths.dim_x].
        weights: [E, paths.weight_numel] or [paths.weight_numel].
        paths: Paths of mode "uvu".
    """

    x: Tensor
    weights: Tensor
    paths: TensorPaths


def unmixed(x: Tensor, weights: Tensor, paths: TensorPaths) -> Unmixed:
    """Return operands with "uvu" paths instead of "uvw" paths, whose channels :func:`mixed` adds up.

    If all edges have the same weights, those paths have no weights before the sum over edges. If each edge
    has its own weights, the channels of x are repeated for each channel of the output, so that there is one
    weight for each channel again. The weights of an edge have more entries than a component of a node then.

    Args:
        x: [num_src, F], with the components first.
        weights: [E, W] or [W].
        paths: The paths.
    """
    if weights.dim() == 2:
        if paths.spread is paths:
            return Unmixed(x, weights, paths)
        parts = x.split([irrep.dim for irrep in paths.x], 1)
        repeated = [
            parts[path.x].unflatten(1, (paths.x[path.x].components, shape[0], 1)).expand(-1, -1, -1, shape[1])
            for path, shape in zip(paths.paths, paths.weight_shapes, strict=True)
            if path.mode == "uvw"
        ]
        return Unmixed(torch.cat([x, *(part.flatten(1) for part in repeated)], 1), weights, paths.spread)
    if paths.unmixed is paths:
        return Unmixed(x, weights, paths)
    of_paths = weights.split([shape.numel() for shape in paths.weight_shapes])
    alone = [
        of_path if path.mode == "uvu" else of_path.new_ones(shape[0])
        for of_path, path, shape in zip(of_paths, paths.paths, paths.weight_shapes, strict=True)
    ]
    return Unmixed(x, torch.cat(alone), paths.unmixed)


def mixed(summed: Tensor, weights: Tensor, paths: TensorPaths) -> Tensor:
    """Return the sums of all paths, [N, F] with the components first, from the sums of :func:`unmixed`.

    Weights that are the same for all edges are matrices, with which sums over edges are multiplied.

    Args:
        summed: The sums over edges of the paths that keep channels apart, [N, ...].
        weights: [E, W] or [W], as :func:`unmixed` had them.
        paths: The paths.
    """
    shared = weights.dim() == 1
    apart = paths.unmixed if shared else paths.spread
    if apart is paths:
        return summed
    sums = list(summed.split([irrep.dim for irrep in apart.out], 1))
    out, rest = sums[: len(paths.out)], iter(sums[len(paths.out) :])
    for place, irrep in enumerate(paths.out):
        if out[place].size(1) != irrep.dim:  # No path keeps its channels.
            out[place] = summed.new_zeros(summed.size(0), irrep.dim)
    matrices = iter(weights.split([shape.numel() for shape in paths.weight_shapes])) if shared else None
    for path, shape in zip(paths.paths, paths.weight_shapes, strict=True):
        matrix = None if matrices is None else next(matrices)
        if path.mode == "uvw":
            product = _product(next(rest), matrix, paths.out[path.out].components, shape)
            out[path.out] = out[path.out] + product
    return torch.cat(out, 1)


def _product(sums: Tensor, matrix: Tensor | None, components: int, shape: torch.Size) -> Tensor:
    """Return one path's columns of the output.

    Args:
        sums: The path's sums, [N, components * channels of x]; without a matrix [N, components * pairs].
        matrix: The path's weights; None if the sums contain them.
        components: The components of the path's output.
        shape: The channels of x and of the output.
    """
    if matrix is None:
        pairs: Tensor = sums.unflatten(1, (components, *shape))
        return pairs.sum(2).flatten(1)
    # Components are rows, because torch multiplies batches of matrices in several ways. Operators do not
    # change their dtype in autocast.
    rows = sums.reshape(sums.size(0) * components, shape[0])
    with torch.autocast(sums.device.type, enabled=False):
        product: Tensor = rows @ matrix.view(shape)
    return product.view(sums.size(0), components * shape[1])
