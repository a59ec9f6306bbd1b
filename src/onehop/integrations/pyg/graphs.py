"""The graph of an edge_index, made once and found again."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.identity import CACHE
from onehop.graph.lending import original
from onehop.graph.self_loops import one_loop_each


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


class SymmetricKey(NamedTuple):
    """The key of a normalised adjacency matrix: what it was made from, besides the edges."""

    num_nodes: int
    add_self_loops: bool
    forwards: bool
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Symmetric:
    """GCN's normalised adjacency matrix of edges without weight: no weight for each edge is needed.

    Attributes:
        graph: The edges, with self loops if the layer adds them.
        scale: [N], ``deg ** -1/2``: the weight of an edge is the product of its ends' numbers.
    """

    graph: Graph
    scale: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.graph.nbytes + self.scale.nbytes


COUNTING = (torch.float32, torch.float64)
"""Dtypes of features for which PyG's degrees, which it counts in them, are exact."""

# Sums of as many ones are exact in float32, and so are PyG's degrees.
_EXACT_DEGREES = 1 << 24


def symmetric_of(edge_index: Tensor, key: SymmetricKey) -> Symmetric | None:
    """The normalised adjacency matrix of these edges: found, or made as by :func:`make_symmetric`."""
    found: Symmetric | None = CACHE.find(edge_index, key)
    return make_symmetric(edge_index, key) if found is None else found


def make_symmetric(edge_index: Tensor, key: SymmetricKey) -> Symmetric | None:
    """Makes the normalised adjacency matrix of these edges, and keeps it under its key.

    The formula is PyG's, for edges of weight 1, so that the products agree with its weights bit for bit.

    Args:
        edge_index: [2, E], int32 or int64, on the CPU.
        key: The number of nodes; whether every node has a self loop in addition; whether row 0 sends to row 1
            (``flow="source_to_target"``) or the other way round; and a dtype among :data:`COUNTING`.

    Returns:
        None if there is an edge that PyG is to complain about, or so many that float32 cannot count them.
    """
    num_nodes, add_self_loops, forwards, dtype = key
    if edge_index.size(1) + num_nodes > _EXACT_DEGREES:
        return None
    given = edge_index
    if original(edge_index) is not edge_index:
        # As in graph_of.
        edge_index = edge_index.clone()
    try:
        size = (num_nodes, num_nodes)
        graph = (
            one_loop_each(edge_index, num_nodes, forwards)
            if add_self_loops
            else Graph.from_edge_index(edge_index if forwards else edge_index.flip(0), size=size)
        )
    except ArgumentError:
        return None
    # Tensors made in inference mode could not be used outside it, where they will be found again.
    with torch.inference_mode(False), torch.no_grad():
        scale = graph.in_degrees.to(dtype).pow_(-0.5)
        if not add_self_loops:
            scale.masked_fill_(scale == float("inf"), 0)
    found = Symmetric(graph, scale)
    CACHE.store(given, key, found)
    return found


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
