"""PyG's ``InnerProductDecoder``, and so ``GAE`` and its kin: a dot product for every edge.

PyG copies the rows of both ends of every edge, and adds the gradients of the copies to the nodes. Here the
products are an operator over the graph of the edges. Negative edges are new in every epoch: making their
graph takes a small part of the time of the copies.
"""

from typing import Any

from torch import Tensor
from torch_geometric.nn.models.autoencoder import InnerProductDecoder

from onehop.integrations.pyg.edges.listed import graph_of
from onehop.integrations.pyg.edges.sizes import is_too_small
from onehop.integrations.pyg.functions import applies
from onehop.integrations.rows import Row, replacing
from onehop.ops import sddmm

# A graph, and gradients, take a pass over all nodes. With 8 nodes for each edge that costs as much as it
# saves: 100,000 nodes of width 16 and 10,000 new edges took 1.5 times as long without a backward pass and
# 0.65 times as long with one, as in PyG.
_NODES_AN_EDGE = 8


def rows() -> list[Row]:
    """The rows of the patch table."""
    return [replacing(InnerProductDecoder, "forward", inner_product)]


def inner_product(_: Any, decoder: Any, z: Any, edge_index: Any, sigmoid: Any = True) -> Tensor | None:
    """Computes the decoder's ``forward``; None if PyG's code has to run.

    Args:
        decoder: The decoder, which has no parameters.
        z: [N, F].
        edge_index: [2, E].
        sigmoid: Whether probabilities are returned, and not the products.
    """
    if is_too_small(edge_index, z) or not applies(z, edge_index) or z.dim() != 2:
        return None
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.size(1) * _NODES_AN_EDGE < len(z):
        return None
    graph = graph_of(edge_index, len(z), len(z), forwards=True)
    if graph is None:
        return None
    products = sddmm(graph, z, z)
    return products.sigmoid() if sigmoid else products
