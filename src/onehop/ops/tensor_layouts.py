"""The order of columns of irreps, and paths that mix channels, in terms of functions of torch.

Kernels take the components of an irrep first and its channels last, and keep channels apart. What differs
from that is done for nodes, before and after the sum over edges, and is differentiated by torch.
"""

import torch
from torch import Tensor

from onehop.irreps import Irrep, TensorPaths

LAYOUTS = ("mul_ir", "ir_mul")


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


def without_mixing(weights: Tensor, paths: TensorPaths) -> Tensor:
    """Return the weights of ``paths.unmixed``: those of "uvu" paths, and 1 for others.

    Args:
        weights: [E, W] or [W]; [W] if a path is "uvw".
        paths: The paths.
    """
    if paths.unmixed is paths:
        return weights
    of_paths = weights.split([shape.numel() for shape in paths.weight_shapes])
    return torch.cat(
        [
            of_path if path.mode == "uvu" else of_path.new_ones(shape[0])
            for of_path, path, shape in zip(of_paths, paths.paths, paths.weight_shapes, strict=True)
        ]
    )


def mixed(summed: Tensor, weights: Tensor, paths: TensorPaths) -> Tensor:
    """Return the sums of all paths from the sums of ``paths.unmixed``, [N, F] with the components first.

    Each "uvw" path is a product of the matrix of its weights with the sums over edges: the weights are the
    same for all edges, so the sum comes first.

    Args:
        summed: [N, paths.unmixed.dim_out].
        weights: [W].
        paths: The paths.
    """
    if paths.unmixed is paths:
        return summed
    sums = list(summed.split([irrep.dim for irrep in paths.unmixed.out], 1))
    out, rest = sums[: len(paths.out)], iter(sums[len(paths.out) :])
    for place, irrep in enumerate(paths.out):
        if out[place].size(1) != irrep.dim:  # No path keeps its channels.
            out[place] = summed.new_zeros(summed.size(0), irrep.dim)
    of_paths = weights.split([shape.numel() for shape in paths.weight_shapes])
    for path, of_path, shape in zip(paths.paths, of_paths, paths.weight_shapes, strict=True):
        if path.mode == "uvw":
            # Rows for components, because torch computes products of batches in several ways. Operators do not
            # change their dtype in autocast.
            rows = next(rest).reshape(summed.size(0) * paths.out[path.out].components, shape[0])
            with torch.autocast(summed.device.type, enabled=False):
                product = rows @ of_path.view(shape)
            out[path.out] = out[path.out] + product.view(summed.size(0), paths.out[path.out].dim)
    return torch.cat(out, 1)
