"""Naive products of rows with the matrix of their type, and sums of these products over edges."""

from collections.abc import Sequence

import torch
from torch import Tensor


def typed_product(parts: Sequence[Tensor], matrices: Tensor) -> Tensor:
    """Multiply the rows of each type by the type's matrices.

    Args:
        parts: [N, H * K] for each type; there is at least one type.
        matrices: [types, H, K, M].

    Returns:
        [rows of all types, H * M].
    """
    heads, inputs = matrices.shape[1:3]
    made = [
        torch.einsum("nhk,hkm->nhm", part.reshape(len(part), heads, inputs), of_type).flatten(1)
        for part, of_type in zip(parts, matrices.unbind(), strict=True)
    ]
    return torch.cat(made)


def typed_sum(
    x: Tensor, edge_index: Tensor, edge_type: Tensor, matrices: Tensor, num_dst: int, reduce: str
) -> Tensor:
    """Sum, over types, the reduced rows of a type's sources times the type's matrix, for each destination.

    Args:
        x: [num_src, K].
        edge_index: [2, E], with sources in row 0 and destinations in row 1.
        edge_type: [E].
        matrices: [types, K, M].
        num_dst: Number of destinations.
        reduce: "sum" or "mean".

    Returns:
        [num_dst, M].
    """
    out = matrices.new_zeros(num_dst, matrices.size(2))
    for number, matrix in enumerate(matrices.unbind()):
        source, target = edge_index[:, edge_type == number]
        summed = x.new_zeros(num_dst, x.size(1)).index_add(0, target, x[source])
        if reduce == "mean":
            summed = summed / torch.bincount(target, minlength=num_dst).clamp(min=1).unsqueeze(1)
        out = out + summed @ matrix
    return out
