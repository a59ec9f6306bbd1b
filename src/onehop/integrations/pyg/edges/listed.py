"""Edges as a list: an ``edge_index`` [2, E], or PyG's ``EdgeIndex``; and what is made of one and remembered.

Its graph, the graph with GCN's normalisation, and other tensors that layers make of it at every call.
"""

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric import EdgeIndex

from onehop import thresholds
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.identity import remembered
from onehop.graph.lending import lend, readable
from onehop.graph.self_loops import one_loop_each
from onehop.integrations.pyg.edges import SOURCE, TARGET, Edges, Factors
from onehop.integrations.pyg.edges.scales import degree_scale, scales_of
from onehop.integrations.pyg.leave import LEFT_TO_PYG, OUT_OF_RANGE, OWN_PRODUCT, Leave
from onehop.ops.contexts import WRAPPED, context_reason, in_older_vmap, is_wrapped, wraps

_INTEGERS = (torch.int64, torch.int32)
_PAIR = 2


class ListedEdges(Edges):
    """Edges of an ``edge_index``.

    Args:
        layer: The layer.
        edge_index: [2, E], int32 or int64, or an ``EdgeIndex``.
        size: The numbers of rows at both ends that the caller gave, or None.
        fuses: Whether the layer's class has a fused path of PyG's own.

    Raises:
        Leave: PyG's own code has to run.
    """

    __slots__ = ("_graph",)
    is_list = True

    def __init__(self, layer: Any, edge_index: Any, size: Any, fuses: bool) -> None:
        if type(edge_index) is Tensor:
            data = edge_index
            if data.layout is not torch.strided:
                raise Leave(OWN_PRODUCT)
            if is_wrapped(data) or (in_older_vmap() and wraps(data)):
                raise Leave(WRAPPED)
            if size is None:
                self.sizes = [None, None]
            elif isinstance(size, tuple | list) and len(size) == _PAIR:
                self.sizes = list(size)
            else:
                raise Leave(LEFT_TO_PYG)
        elif type(edge_index) is EdgeIndex:
            if fuses and layer.SUPPORTS_FUSED_EDGE_INDEX and edge_index.is_sorted_by_col:
                raise Leave("edge_index is an EdgeIndex, for which this layer has its own code")
            # What is written to an EdgeIndex does not raise the version of the tensor inside. One that was
            # made in inference mode has no version, and is never recognised.
            unwritten = edge_index.is_inference() or edge_index._version == 0
            data = edge_index.as_tensor() if unwritten else edge_index.as_tensor().clone()
            self.sizes = [edge_index.num_rows, edge_index.num_cols]
        else:
            raise Leave(f"edge_index is of type {type(edge_index).__name__}")
        shape = data.shape
        if data.dtype not in _INTEGERS or len(shape) != _PAIR or shape[0] != _PAIR:
            raise Leave(LEFT_TO_PYG)
        self.given, self.index, self.count, self.is_cpu = edge_index, data, shape[1], data.is_cpu
        self.forwards = layer.flow == "source_to_target"
        self.sending = SOURCE if self.forwards else TARGET
        self._graph: Graph | None = None

    def graph(self) -> Graph:
        """The graph of the edges, made once and found again."""
        if self._graph is None:
            self._graph = graph_of(self.index, *self.counts(), self.forwards)
            if self._graph is None:
                raise Leave(OUT_OF_RANGE)
        return self._graph

    def ends(self, row: int) -> Tensor:
        """[E]: the sources (row 0) or the destinations (row 1), as PyG numbers rows."""
        return self.index[row]

    def factors(self, x: Tensor, weight: Tensor | None, reduce: str, weighted: bool) -> Factors:
        """The graph, and the weight; or numbers of nodes whose products over the ends of edges it is."""
        graph = self.graph()
        if weight is None or reduce not in ("sum", "mean"):
            return Factors(graph, weight)
        scale = scales_of(weight, self.index, graph.num_src, graph.num_dst, x.dtype)
        return Factors(graph, weight if scale is None else None, scale)

    @property
    def ptr_is_none(self) -> bool:
        """Return whether PyG passes None for ``ptr`` to a message over these edges."""
        return self.index is self.given

    def first(self, graph: Graph, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Numbers, sources and destinations of so many edges."""
        first = self.index[:, :count].long()
        source, target = first.unbind() if self.forwards else first.flip(0).unbind()
        return torch.arange(count, device="cpu"), source, target


def graph_of(edge_index: Tensor, num_src: int, num_dst: int, forwards: bool) -> Graph | None:
    """The graph of these edges.

    Args:
        edge_index: [2, E], int32 or int64; from a GPU it is copied to the CPU, once.
        num_src: How many nodes send.
        num_dst: How many nodes receive.
        forwards: Whether row 0 sends to row 1 (``flow="source_to_target"``) or the other way round.

    Returns:
        None if a node number is out of range or there are too many nodes, which PyG has to report.
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
    """The key of a normalised adjacency matrix: what it was made from, besides the edges."""

    num_nodes: int
    add_self_loops: bool
    forwards: bool
    dtype: torch.dtype


class Symmetric(NamedTuple):
    """GCN's normalised adjacency matrix of edges without weight: no weight for each edge is needed.

    Attributes:
        graph: The edges, with self loops if the layer adds them.
        scale: [N], ``deg ** -1/2``: the weight of an edge is the product of its ends' numbers.
    """

    graph: Graph
    scale: Tensor


COUNTING = (torch.float32, torch.float64)
"""Dtypes of features for which PyG's degrees, which it counts in them, are exact."""

# Sums of as many ones are exact in float32, and so are PyG's degrees.
_EXACT_DEGREES = 1 << 24


def symmetric_of(edge_index: Tensor, key: SymmetricKey) -> Symmetric | None:
    """The normalised adjacency matrix of these edges: found, or made as by :func:`normalised_graph`."""
    return remembered(edge_index, key=key, make=lambda: normalised_graph(edge_index, key))


def normalised_graph(edge_index: Tensor, key: SymmetricKey) -> Symmetric | None:
    """Makes the normalised adjacency matrix of these edges.

    The formula is PyG's, for edges of weight 1, so that the products agree with its weights bit for bit.

    Args:
        edge_index: [2, E], int32 or int64, on the CPU.
        key: The number of nodes; whether every node has a self loop in addition; whether row 0 sends to row 1
            (``flow="source_to_target"``) or the other way round; and a dtype among :data:`COUNTING`.

    Returns:
        None if there is an edge that PyG has to complain about, or so many that float32 cannot count them.
    """
    num_nodes, add_self_loops, forwards, dtype = key
    if edge_index.size(1) + num_nodes > _EXACT_DEGREES:
        return None
    if not add_self_loops:
        graph = _graph(edge_index, (num_nodes, num_nodes), forwards)
    else:
        try:
            graph = one_loop_each(readable(edge_index), num_nodes, forwards)
        except ArgumentError:
            return None
    return None if graph is None else Symmetric(graph, degree_scale(graph, dtype))


@dataclass(slots=True)
class Derived:
    """Tensors that were made from an edge_index, and that only the cache has.

    Attributes:
        tensors: The tensors; None is the edge_index itself, which the cache must not hold.
        scale: [N], numbers whose products over the ends of the edges the second tensor is; None if it is no
            such product, or they are not known.
        graph: The graph of the first tensor, once a layer has aggregated over it. The cache of graphs holds
            it.
    """

    tensors: tuple[Tensor | None, ...]
    scale: Tensor | None = None
    graph: "weakref.ref[Graph] | None" = None


def can_remember(edge_index: Any, least: int | None = None) -> bool:
    """Return whether tensors that are made from this edge_index may be remembered.

    Args:
        edge_index: What has to be recognised.
        least: The fewest numbers in it; None means as many as pay, since few edges are rewritten as fast as
            they are recognised (:func:`.sizes.is_too_small`).
    """
    return (
        type(edge_index) is Tensor
        and edge_index.numel() >= (thresholds.now.few_edges // 2 if least is None else least)
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
    """Returns copies of the tensors made from this edge_index, from memory; PyG may give them to its users.

    Args:
        edge_index: The edge_index.
        key: What is made, and of what besides.
        make: Makes the tensors, as :func:`.remembered` calls it; the edge_index itself may be among them.
    """

    def derived() -> Derived:
        made = make()
        if not isinstance(made, Derived):
            made = Derived(made)
        made.tensors = tuple(None if tensor is edge_index else tensor for tensor in made.tensors)
        return made

    lent: tuple[Tensor, ...] = ()
    for tensor in remembered(edge_index, key=key, make=derived).tensors:
        lent += (edge_index if tensor is None else lend(tensor),)
    return lent
