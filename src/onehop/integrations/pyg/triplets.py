"""The pairs of edges that meet, as DimeNet and GNNFF take them, without torch-sparse."""

from typing import Any

import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.nn.models import dimenet

from onehop.integrations.rows import Row, replacing


def rows() -> list[Row]:
    """The rows of the patch table."""
    return [replacing(dimenet, "triplets", triplets, where=_needed)]


def _needed() -> bool:
    return not torch_geometric.typing.WITH_TORCH_SPARSE


def triplets(_: Any, edge_index: Tensor, num_nodes: int) -> tuple[Tensor, ...]:
    """Finds, for each edge j -> i, the edges k -> j with another k than i.

    Args:
        edge_index: [2, E], int64: j above i.
        num_nodes: Number of nodes.

    Returns:
        i and j of each edge, [E] each; then for each pair, sorted by the number of j -> i, then by k: i, j,
        k, the number of k -> j, and that of j -> i.
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
