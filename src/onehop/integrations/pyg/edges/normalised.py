"""GCN's normalisation of edges without weights: the edges, their weights, and the factors of the weights.

Exported programs, which run without PyG, use it too, so this module does not import PyG.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from onehop.graph.contents import Noted
from onehop.integrations.pyg.edges.kept import Derived
from onehop.integrations.pyg.edges.scales import note_scales, scale_of_degrees


class Unweighted(NamedTuple):
    """The key of the normalised edges and weights that are made from edges without weights."""

    num_nodes: int | None
    improved: bool
    add_self_loops: bool
    flow: str
    dtype: torch.dtype | None


def normalised(edge_index: Tensor, key: Unweighted) -> Derived:
    """Return the normalised edges, their weights, and ``deg ** -1/2``, [N].

    The formula is PyG's for edges of weight 1, computed in the same order, so the weights equal PyG's bit for
    bit.

    Args:
        edge_index: [2, E].
        key: The other arguments; the number of nodes is not None, and a loop weighs as much as other edges.
    """
    noted = Noted(edge_index)
    nodes: Any = key.num_nodes
    dtype = torch.get_default_dtype() if key.dtype is None else key.dtype
    edges = edge_index
    if key.add_self_loops:
        # A loop for every node is appended, and replaces existing loops.
        keep = edge_index[0] != edge_index[1]
        loops = torch.arange(nodes, device=edge_index.device).expand(2, -1)
        edges = torch.cat([edge_index if bool(keep.all()) else edge_index[:, keep], loops], dim=1)
    source, target = edges[0], edges[1]
    counted = target if key.flow == "source_to_target" else source
    ones = torch.ones(edges.size(1), dtype=dtype, device=edges.device)
    # torch 2.6 cannot scatter with an int32 index.
    scale = scale_of_degrees(ones.new_zeros(nodes).scatter_add_(0, counted.long(), ones))
    weight = scale[source] * scale[target]
    note_scales(weight, noted if edges is edge_index else Noted(edges), scale)
    return Derived((edges, weight), scale)
