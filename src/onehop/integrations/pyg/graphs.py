"""The graph of an edge_index, made once and found again."""

from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.identity import CACHE
from onehop.graph.lending import original


def graph_of(edge_index: Tensor, num_src: int, num_dst: int, forwards: bool) -> Graph | None:
    """The graph of these edges.

    Args:
        edge_index: [2, E], int32 or int64; from a GPU it is copied to the CPU, once.
        num_src: How many nodes send.
        num_dst: How many nodes receive.
        forwards: Whether row 0 sends to row 1 (``flow="source_to_target"``) or the other way round.

    Returns:
        None if a node number is out of range or there are too many nodes, which PyG is to report.
    """
    given, rest = edge_index, ("graph", num_src, num_dst, forwards)
    found = CACHE.find(edge_index, rest)
    if found is not None:
        return found  # type: ignore[no-any-return]
    if original(edge_index) is not edge_index:
        # Native code takes an address, which counts as a write: what was read would be a copy no more.
        edge_index = edge_index.clone()
    try:
        graph = Graph.from_edge_index(edge_index if forwards else edge_index.flip(0), size=(num_src, num_dst))
    except ArgumentError:
        return None
    CACHE.store(given, rest, graph)
    return graph


@dataclass(frozen=True, slots=True)
class Scales:
    """A weight that is the product of one number per node at either end of the edge.

    Attributes:
        weight: [E], kept.
        scale: [N], the numbers.
    """

    weight: Tensor
    scale: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers; those of the weight count where it is kept."""
        return self.scale.nbytes


def note_scales(weight: Tensor, edge_index: Tensor, scale: Tensor) -> None:
    """Notes that ``weight[e] == scale[source] * scale[destination]`` for these edges, of a kept weight."""
    CACHE.store(edge_index, ("scales", id(weight)), Scales(weight, scale))


def scales_of(
    weight: Tensor, edge_index: Tensor, num_src: int, num_dst: int, dtype: torch.dtype
) -> Tensor | None:
    """The numbers whose products the weight is; None if it is not known to be such products.

    None too where features of ``dtype`` are more exact than the weight: a product that PyG rounds to the
    weight's dtype would not be rounded.
    """
    if weight.requires_grad or torch.promote_types(weight.dtype, dtype) != weight.dtype:
        return None
    kept = original(weight)
    found: Scales | None = None if kept is weight else CACHE.find(edge_index, ("scales", id(kept)))
    if found is None or found.scale.size(0) != num_src or num_src != num_dst:
        return None
    return found.scale
