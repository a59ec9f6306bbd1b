"""Naive ``onehop.edge_softmax``."""

import torch
from torch import Tensor


def edge_softmax(edge_index: Tensor, scores: Tensor, num_dst: int) -> Tensor:
    """Softmax over the edges of every destination, as ``torch_geometric.utils.softmax`` computes it.

    Args:
        edge_index: [2, E], sources above destinations.
        scores: [E] or [E, H].
        num_dst: Number of destinations.

    Returns:
        The shape of ``scores``: exp(s - max) / (sum of exp(s - max) + 1e-16). A row with only -inf, and one
        with
        a NaN or +inf, becomes NaN.
    """
    target = edge_index[1].long()
    index = target if scores.dim() == 1 else target.unsqueeze(-1).expand_as(scores)
    zeros = scores.new_zeros(num_dst, *scores.shape[1:])
    largest = zeros.scatter_reduce(0, index, scores.detach(), reduce="amax", include_self=False)
    power = torch.exp(scores - largest.index_select(0, target))
    total = zeros.scatter_add(0, index, power) + 1e-16
    return power / total.index_select(0, target)
