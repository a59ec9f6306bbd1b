"""GCN's normalisation of edges without weight: the edges, their weights, and the factors of the weights.

Programs that run without PyG normalise so too, so this module does not import PyG.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from onehop.graph.contents import Noted
from onehop.integrations.pyg.edges.kept import Derived
from onehop.integrations.pyg.edges.scales import note_scales, scale_of_degrees


class Unweighted(NamedTuple):
    """The key of the normalised edges, and their weights, of edges without weight."""

    num_nodes: int | None
    improved: bool
    add_self_loops: bool
    flow: str
    dtype: torch.dtype | None


def normalised(edge_index: Tensor, key: Unweighted) -> Derived:
    """The normalised edges, their weights, and ``deg ** -1/2``, [N].

    The formula is PyG's, for edges of weight 1, in its order, so that the weights agree bit for bit.

    Args:
        edge_index: [2, E].
        key: The other arguments; there is a number of nodes, and a loop weighs as much as any other edge.
    """
    noted = Noted(edge_index)
    nodes: Any = key.num_nodes
    dtype = torch.get_default_dtype() if key.dtype is None else key.dtype
    edges = edge_index
    if key.add_self_loops:
        # A loop for every node comes last, and replaces the loops that the edges have.
        keep = edge_index[0] != edge_index[1]
        loops = torch.arange(nodes, device=edge_index.device).expand(2, -1)
        edges = torch.cat([edge_index if bool(keep.all()) else edge_index[:, keep], loops], dim=1)
    source, target = edges[0], edges[1]
    counted = target if key.flow == "source_to_target" else source
    ones = torch.ones(edges.size(1), dtype=dtype, device=edges.device)
    # torch 2.6 has no scatter by int32.
    scale = scale_of_degrees(ones.new_zeros(nodes).scatter_add_(0, counted.long(), ones))
    weight = scale[source] * scale[target]
    note_scales(weight, noted if edges is edge_index else Noted(edges), scale)
    return Derived((edges, weight), scale)
