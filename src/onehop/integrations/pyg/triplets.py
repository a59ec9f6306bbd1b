"""The pairs of adjacent edges that DimeNet and GNNFF need, found without torch-sparse."""

from typing import Any

import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.nn.models import dimenet

from onehop.integrations.rows import Row, replacing


def rows() -> list[Row]:
    """Return the rows of the patch table."""
    return [replacing(dimenet, "triplets", triplets, where=_needed)]


def _needed() -> bool:
    return not torch_geometric.typing.WITH_TORCH_SPARSE


def triplets(_: Any, edge_index: Tensor, num_nodes: int) -> tuple[Tensor, ...]:
    """Finds, for each edge j -> i, the edges k -> j with k different from i.

    Args:
        edge_index: [2, E], int64: j in the first row, i in the second.
        num_nodes: Number of nodes.

    Returns:
        i and j of each edge, [E] each; then for each pair of edges, sorted by the number of j -> i and then
        by k: i, j, k, the number of k -> j, and the number of j -> i.
    """
    row, col = edge_index
    order = (col * num_nodes + row).argsort(stable=True)
    degrees = torch.bincount(col, minlength=num_nodes)
    begins = degrees.cumsum(0) - degrees
    counts = degrees[row]
    of_ji = torch.repeat_interleave(counts)
    places = torch.arange(of_ji.numel(), device=row.device)
    idx_kj = order[places + (begins[row] - (counts.cumsum(0) - counts))[of_ji]]
    other = row[idx_kj] != col[of_ji]
    idx_kj, idx_ji = idx_kj[other], of_ji[other]
    return col, row, col[idx_ji], row[idx_ji], row[idx_kj], idx_kj, idx_ji
