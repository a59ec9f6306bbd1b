"""Edge weights that are products of one number for each end, as in GCN."""

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.graph.contents import Noted
from onehop.graph.identity import CACHE, remembered


def degree_scale(graph: Graph, dtype: torch.dtype) -> Tensor:
    """Return ``deg ** -1/2``, [num_dst], and 0 for destinations without edges."""
    return scale_of_degrees(graph.in_degrees.to(dtype))


def scale_of_degrees(degree: Tensor) -> Tensor:
    """Return ``deg ** -1/2``, [N], and 0 for nodes without edges; overwrites the degrees."""
    scale = degree.pow_(-0.5)
    return scale.masked_fill_(scale == float("inf"), 0)


def note_scales(weight: Tensor, edges: Noted, scale: Tensor) -> None:
    """Notes that a cached weight is ``weight[e] == scale[source] * scale[destination]``.

    ``edges`` is the ``edge_index``, noted before weight and scale were computed from it.
    """
    CACHE.store(Noted(weight).and_of(edges), "scales", scale)


def scales_of(
    weight: Tensor, edge_index: Tensor, num_src: int, num_dst: int, dtype: torch.dtype
) -> Tensor | None:
    """Return the scale of nodes, [N], of which the weight is the product; None if it is unknown.

    The result is also None if ``dtype`` is more exact than the weight's dtype, because PyG rounds the
    products to the weight's dtype, which would not happen here.
    """
    if weight.requires_grad or torch.promote_types(weight.dtype, dtype) != weight.dtype:
        return None
    scale: Tensor | None = remembered(weight, edge_index, key="scales")
    return scale if scale is not None and scale.size(0) == num_src == num_dst else None


def note_degree_scale(values: Tensor, graph: Graph) -> None:
    """Notes values of edges, [E], if they are the products of both ends' ``deg ** -1/2``.

    GCN's normalisation gives such values if every edge had weight 1.
    """
    if graph.num_src != graph.num_dst or values.dim() != 1 or not values.is_floating_point():
        return
    noted, scale = Noted(values), degree_scale(graph, values.dtype)
    source, target = graph.edge_index()
    if torch.equal(scale[source] * scale[target], values):
        CACHE.store(noted, ("scale", graph.number), scale)


def degree_scale_of(values: Tensor, graph: Graph) -> Tensor | None:
    """Return the numbers that :func:`note_degree_scale` noted for these values, or for their original."""
    scale: Tensor | None = remembered(values, key=("scale", graph.number))
    return scale
