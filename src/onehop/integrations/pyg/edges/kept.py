"""Graphs and other tensors that are made from an ``edge_index``, [2, E], and cached.

Exported programs, which run without PyG, use them too, so this module does not import PyG.
"""

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onehop import thresholds
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.identity import remembered
from onehop.graph.lending import lend, readable
from onehop.graph.self_loops import one_loop_each
from onehop.integrations.pyg.edges.scales import degree_scale
from onehop.ops.contexts import context_reason, in_older_vmap, is_wrapped, wraps


def graph_of(edge_index: Tensor, num_src: int, num_dst: int, forwards: bool) -> Graph | None:
    """Return the graph of these edges, cached or new.

    Args:
        edge_index: [2, E], int32 or int64; from a GPU it is copied to the CPU, once.
        num_src: Number of sending nodes.
        num_dst: Number of receiving nodes.
        forwards: Whether row 0 sends to row 1 (``flow="source_to_target"``) or the other way round.

    Returns:
        None if a node number is out of range or there are too many nodes; PyG then reports the error.
    """
    return remembered(
        edge_index,
        key=("graph", num_src, num_dst, forwards),
        make=lambda: _graph(edge_index, (num_src, num_dst), forwards),
    )


def _graph(edge_index: Tensor, size: tuple[int, int], forwards: bool) -> Graph | None:
    edge_index = readable(edge_index)
    try:
        return Graph.from_edge_index(edge_index if forwards else edge_index.flip(0), size=size)
    except ArgumentError:
        return None


class SymmetricKey(NamedTuple):
    """The key of a normalised adjacency matrix: everything that it depends on besides the edges."""

    num_nodes: int
    add_self_loops: bool
    forwards: bool
    dtype: torch.dtype


class Symmetric(NamedTuple):
    """GCN's normalised adjacency matrix of edges without weights; it needs no weight for each edge.

    Attributes:
        graph: The edges, with self loops if the layer adds them.
        scale: [N], ``deg ** -1/2``: the weight of an edge is the product of its ends' numbers.
    """

    graph: Graph
    scale: Tensor


COUNTING = (torch.float32, torch.float64)
"""The dtypes of features in which PyG's degrees are exact; PyG counts degrees in the features' dtype."""

# Sums of up to this many ones are exact in float32, so PyG's degrees are exact too.
_EXACT_DEGREES = 1 << 24


def symmetric_of(edge_index: Tensor, key: SymmetricKey) -> Symmetric | None:
    """Return the normalised adjacency matrix of these edges, cached or from :func:`normalised_graph`."""
    return remembered(edge_index, key=key, make=lambda: normalised_graph(edge_index, key))


def normalised_graph(edge_index: Tensor, key: SymmetricKey) -> Symmetric | None:
    """Makes the normalised adjacency matrix of these edges.

    The formula is PyG's for edges of weight 1, so the products equal PyG's weights bit for bit.

    Args:
        edge_index: [2, E], int32 or int64, on the CPU.
        key: The number of nodes; whether every node has a self loop in addition; whether row 0 sends to row 1
            (``flow="source_to_target"``) or the other way round; and a dtype among :data:`COUNTING`.

    Returns:
        None if PyG has to report an invalid edge, or if there are more edges than float32 can count.
    """
    num_nodes, add_self_loops, forwards, dtype = key
    if not is_counted(edge_index, num_nodes):
        return None
    if not add_self_loops:
        graph = _graph(edge_index, (num_nodes, num_nodes), forwards)
    else:
        try:
            graph = one_loop_each(readable(edge_index), num_nodes, forwards)
        except ArgumentError:
            return None
    return None if graph is None else Symmetric(graph, degree_scale(graph, dtype))


def is_counted(edge_index: Tensor, num_nodes: int) -> bool:
    """Return whether PyG's degrees are exact for edges [2, E] with a self loop at each node."""
    return edge_index.size(1) + num_nodes <= _EXACT_DEGREES


@dataclass(slots=True)
class Derived:
    """Tensors that were made from an edge_index; only the cache holds them.

    Attributes:
        tensors: The tensors; None represents the edge_index itself, which the cache must not hold.
        scale: [N]: the second tensor is, for each edge, the product of its ends' numbers; None if it is not
            such a product, or the numbers are unknown.
        graph: The graph of the first tensor after a layer has aggregated over it; the cache of graphs holds
            it.
    """

    tensors: tuple[Tensor | None, ...]
    scale: Tensor | None = None
    graph: "weakref.ref[Graph] | None" = None


def can_remember(edge_index: Any, loops: int | None = 0) -> bool:
    """Return whether tensors that are made from this edge_index may be cached.

    Args:
        edge_index: The edges, which the cache would have to recognise.
        loops: How many self loops are added. Rewriting few edges, loops included, is faster than recognising
            them (:func:`.sizes.is_too_small`). None allows any number of edges.
    """
    return (
        type(edge_index) is Tensor
        and (loops is None or edge_index.numel() >= 2 * (thresholds.now.few_edges - loops))
        and context_reason() is None
        and edge_index.layout is torch.strided
        and not edge_index.is_meta
        and not edge_index.is_inference()
        and not is_wrapped(edge_index)
        and not (in_older_vmap() and wraps(edge_index))
    )


def rewritten(
    edge_index: Tensor, key: Hashable, make: Callable[[], tuple[Tensor, ...] | Derived]
) -> tuple[Tensor, ...]:
    """Returns copies of cached tensors made from this edge_index; PyG may return the copies to its users.

    Args:
        edge_index: The edge_index.
        key: Identifies the tensors, including the other arguments that they depend on.
        make: Makes the tensors, as :func:`.remembered` calls it; the edge_index itself may be among them.
    """

    def derived() -> Derived:
        result = make()
        if not isinstance(result, Derived):
            result = Derived(result)
        result.tensors = tuple(None if tensor is edge_index else tensor for tensor in result.tensors)
        return result

    lent: tuple[Tensor, ...] = ()
    for tensor in remembered(edge_index, key=key, make=derived).tensors:
        lent += (edge_index if tensor is None else lend(tensor),)
    return lent
