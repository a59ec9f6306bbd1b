"""Edges in a program that ``torch.compile`` or ``torch.export`` makes; operators that find their graphs.

A program is traced once, with tensors that have no data, and runs many times. So nothing that eager layers
look up can be looked up while it is traced: not the graph, nor the normalised edges, nor kept aggregates.
Operators look them up when the program runs, in the same caches, by the ``edge_index`` that the program gets.
How many edges there are with self loops depends on the data; shapes do not: they allow for the most that
there can be (:mod:`onehop.graph.handle`).
"""

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout
from torch_geometric.utils import add_self_loops, remove_self_loops

from onehop.backends import refusal
from onehop.graph import Graph
from onehop.graph.handle import GraphInProgram, handle_of
from onehop.graph.identity import CACHE
from onehop.graph.lending import lend
from onehop.integrations import memory
from onehop.integrations.pyg.edges import SOURCE, TARGET, Edges, Factors
from onehop.integrations.pyg.edges.listed import (
    COUNTING,
    Derived,
    SymmetricKey,
    graph_of,
    rewritten,
    symmetric_of,
)
from onehop.integrations.pyg.edges.rewrites import Unweighted, normalisation, without_weight
from onehop.ops.library import LIBRARY

_FIND = "find_graph"
_NORMALISE = "find_normalised_graph"
_PLACES = "looped_edges"
_EDGES = "normalised_edges"

LIBRARY.define(
    f"{_FIND}(Tensor edge_index, SymInt num_src, SymInt num_dst, bool forwards, SymInt loops) -> Tensor"
)
LIBRARY.define(
    f"{_NORMALISE}(Tensor edge_index, SymInt num_nodes, bool loops, bool forwards, ScalarType dtype)"
    " -> (Tensor, Tensor)"
)
LIBRARY.define(f"{_PLACES}(Tensor edge_index, SymInt num_nodes) -> Tensor")
LIBRARY.define(
    f"{_EDGES}(Tensor edge_index, SymInt num_nodes, bool improved, bool loops, bool forwards,"
    " ScalarType dtype) -> (Tensor, Tensor)"
)


@dataclass(frozen=True, slots=True)
class EdgesInProgram:
    """A stand-in for ``edge_index`` in the ``forward`` of an attention layer that onehop's operators run.

    It is no tensor, so ``forward`` leaves its self loops alone: with them, the shape of the edges would
    depend on the data.

    Attributes:
        edge_index: [2, E].
        kind: Of the scores: "gat", "gatv2" or "dot".
    """

    edge_index: Tensor
    kind: str


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def constant_refusal(backend: str, device: str, dtype: torch.dtype) -> str:
    """Return why no backend runs on such features, which is a constant of a program; empty if one does."""
    return refusal(backend, torch.device(device), dtype) or ""


class ProgramEdges(Edges):
    """The edges of an ``edge_index`` that is traced.

    Args:
        given: What ``propagate`` got: the ``edge_index``, or an :class:`EdgesInProgram`.
        edge_index: [2, E].
        forwards: Whether row 0 sends to row 1.
        sizes: The number of rows at each end, as far as it is known.
        loops: At so many nodes, self loops are replaced by one each, behind the other edges; 0 leaves the
            edges as they are.
    """

    __slots__ = ("_graph", "_loops")
    is_traced = True

    def __init__(
        self, given: Any, edge_index: Tensor, forwards: bool, sizes: list[int | None], loops: int = 0
    ) -> None:
        self.given, self.index, self.forwards, self.sizes = given, edge_index, forwards, sizes
        self.sending, self.is_cpu = SOURCE if forwards else TARGET, edge_index.is_cpu
        self.count = edge_index.size(1) + loops
        self._loops = loops
        self._graph: GraphInProgram | None = None

    def counts(self, sentence: str = "") -> tuple[int, int]:
        """The number of nodes that send, and that receive; one that is unknown equals the other."""
        sending = self.sending
        num_src, num_dst = self.sizes[sending], self.sizes[1 - sending]
        sources: Any = num_dst if num_src is None else num_src
        return sources, sources if num_dst is None else num_dst

    def refusal(self, backend: str, x: Tensor) -> str | None:
        """Return why no backend runs on such features, which is a constant of the program."""
        return constant_refusal(backend, x.device.type, x.dtype) or None

    def graph(self) -> Any:
        """The graph, to be found when the program runs."""
        if self._graph is None:
            num_src, num_dst = self.counts()
            self._graph = graph_in_program(self.index, num_src, num_dst, self.forwards, self._loops)
        return self._graph

    def factors(self, x: Tensor, weight: Tensor | None, reduce: str, weighted: bool) -> Factors:
        """The graph, and the weight."""
        return Factors(self.graph(), weight)

    def drawn(self, out: Tensor, p: float) -> Tensor:
        """The factors of dropout.

        Torch's own operator draws them outside ours, so that whatever torch does with random numbers in
        programs (its generators, recomputation) is done with these.
        """
        return dropout(torch.ones_like(out), p=p, training=True)


def graph_in_program(
    edge_index: Tensor, num_src: int, num_dst: int, forwards: bool, loops: int = 0
) -> GraphInProgram:
    """The graph of an ``edge_index``, to be found when the program runs.

    Args:
        edge_index: [2, E].
        num_src: Number of sources.
        num_dst: Number of destinations.
        forwards: Whether row 0 sends to row 1.
        loops: At so many nodes, self loops are replaced by one each, behind the other edges; 0 leaves the
            edges as they are.
    """
    handle = torch.ops.onehop.find_graph(edge_index, num_src, num_dst, forwards, loops)
    return GraphInProgram(handle, num_src, num_dst, edge_index.size(1) + loops)


def normalised_graph_in_program(
    edge_index: Tensor, num_nodes: int, loops: bool, forwards: bool, dtype: torch.dtype
) -> tuple[GraphInProgram, Tensor]:
    """GCN's normalised graph, to be found when the program runs.

    Args:
        edge_index: [2, E].
        num_nodes: N.
        loops: Whether every node has a self loop, behind the other edges.
        forwards: Whether row 0 sends to row 1.
        dtype: Of the numbers.

    Returns:
        The graph, and [N], the numbers whose products over the ends of the edges the weights are; for edges
        that had no weight.
    """
    handle, scale = torch.ops.onehop.find_normalised_graph(edge_index, num_nodes, loops, forwards, dtype)
    edges = edge_index.size(1) + (num_nodes if loops else 0)
    return GraphInProgram(handle, num_nodes, num_nodes, edges), scale


def normalised_edges_in_program(
    edge_index: Tensor, num_nodes: int, improved: bool, loops: bool, forwards: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """GCN's normalised edges, to be kept in a layer: how many there are is known when the program runs.

    Args:
        edge_index: [2, E], without weights.
        num_nodes: N.
        improved: Whether loops weigh 2.
        loops: Whether every node has a self loop, behind the other edges.
        forwards: Whether row 0 sends to row 1.
        dtype: Of the weights.

    Returns:
        [2, M] and [M], the edges and their weights.
    """
    edges, weight = torch.ops.onehop.normalised_edges(edge_index, num_nodes, improved, loops, forwards, dtype)
    return edges, weight


def with_loops(edge_index: Tensor, values: Tensor, of_loops: Tensor) -> Tensor:
    """A row for each edge of a graph with self loops.

    Args:
        edge_index: [2, E].
        values: [E, ...], rows of the edges.
        of_loops: [N, ...], rows of the loops, which replace those that were there.

    Returns:
        [E + N, ...]: the rows of the edges that are no loops, of the loops, and rows to be ignored.
    """
    places = torch.ops.onehop.looped_edges(edge_index, of_loops.size(0))
    return torch.cat([values, of_loops]).index_select(0, places)


@dataclass(slots=True)
class _Found:
    """A graph with self loops that was found before. The cache of graphs holds it."""

    graph: "weakref.ref[Graph]"
    nbytes: int = 0


def _find(edge_index: Tensor, num_src: int, num_dst: int, forwards: bool, loops: int) -> Tensor:
    if not loops:
        return _handle(_graph(edge_index, num_src, num_dst, forwards), edge_index)
    rest = ("graph in a program", num_src, num_dst, forwards, loops)
    found: _Found | None = CACHE.find(edge_index, rest)
    graph = None if found is None else found.graph()
    if graph is None:
        graph = _graph(_looped(edge_index, loops), num_src, num_dst, forwards)
        CACHE.store(edge_index, rest, _Found(weakref.ref(graph)))
    return _handle(graph, edge_index)


def _handle(graph: Graph, edge_index: Tensor) -> Tensor:
    """A handle of a graph that runs in a program, for the policy of memory too."""
    # The layer and its features are not at hand: large graphs have large features.
    memory.gained(edge_index)
    return handle_of(graph)


def _looped(edge_index: Tensor, loops: int) -> Tensor:
    """The edges as attention layers rewrite them, remembered where those look."""
    (edges,) = rewritten(edge_index, ("remove_self_loops", None), lambda: remove_self_loops(edge_index)[:1])
    (looped,) = rewritten(
        edges, ("add_self_loops", loops), lambda: add_self_loops(edges, num_nodes=loops)[:1]
    )
    return looped


def _normalise(
    edge_index: Tensor, num_nodes: int, loops: bool, forwards: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    if dtype in COUNTING and edge_index.is_cpu:
        symmetric = symmetric_of(edge_index, SymmetricKey(num_nodes, loops, forwards, dtype))
        if symmetric is not None:
            return _handle(symmetric.graph, edge_index), lend(symmetric.scale)
    flow = "source_to_target" if forwards else "target_to_source"
    key = Unweighted(num_nodes, False, loops, flow, dtype)
    known: Derived | None = CACHE.find(edge_index, key)
    graph = None if known is None or known.graph is None else known.graph()
    scale = None if known is None else known.scale
    if graph is None or scale is None:
        edges, weight = without_weight(normalisation(), edge_index, key)
        graph = _graph(edges, num_nodes, num_nodes, forwards)
        known = CACHE.find(edge_index, key)
        if known is not None:
            known.graph, scale = weakref.ref(graph), known.scale
        if scale is None:
            # Tensors of inference mode are not remembered.
            degree = weight.new_zeros(num_nodes).index_add_(0, edges[int(forwards)], torch.ones_like(weight))
            scale = degree.pow_(-0.5).masked_fill_(degree == float("inf"), 0)
            return _handle(graph, edge_index), scale
    return _handle(graph, edge_index), lend(scale)


def _normalised_edges(
    edge_index: Tensor, num_nodes: int, improved: bool, loops: bool, forwards: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    flow = "source_to_target" if forwards else "target_to_source"
    edges, weight = without_weight(
        normalisation(), edge_index, Unweighted(num_nodes, improved, loops, flow, dtype)
    )
    # An operator gives out no tensor that it was given.
    return edges.clone() if edges is edge_index else edges, weight


def _places(edge_index: Tensor, num_nodes: int) -> Tensor:
    key = ("places of looped edges", num_nodes)
    (places,) = rewritten(edge_index, key, lambda: (_made_places(edge_index, num_nodes),))
    return places


def _made_places(edge_index: Tensor, num_nodes: int) -> Tensor:
    """[E + N]: for each edge with loops, its row among those of the E edges and the N loops; and zeros."""
    edges = edge_index.size(1)
    numbers = torch.arange(edges + num_nodes, device=edge_index.device)
    kept = numbers[:edges][edge_index[0] != edge_index[1]]
    places = torch.cat([kept, numbers[edges:]])
    return torch.cat([places, places.new_zeros(edges - kept.size(0))])


def _graph(edge_index: Tensor, num_src: int, num_dst: int, forwards: bool) -> Graph:
    graph = graph_of(edge_index, num_src, num_dst, forwards)
    if graph is None:
        # Raises what is wrong with the edges: in a program there is no way back to PyG's own code.
        edges = edge_index if forwards else edge_index.flip(0)
        graph = Graph.from_edge_index(edges, size=(num_src, num_dst))
    return graph


def _fake_handle(edge_index: Tensor, *_: object) -> Tensor:
    return torch.empty(1, dtype=torch.int64, device="cpu")


def _fake_normalised(
    edge_index: Tensor, num_nodes: int, loops: bool, forwards: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    return _fake_handle(edge_index), edge_index.new_empty(num_nodes, dtype=dtype)


def _fake_edges(
    edge_index: Tensor, num_nodes: int, improved: bool, loops: bool, forwards: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    count = torch.library.get_ctx().new_dynamic_size()
    return edge_index.new_empty(2, count), edge_index.new_empty(count, dtype=dtype)


def _fake_places(edge_index: Tensor, num_nodes: int) -> Tensor:
    return edge_index.new_empty(edge_index.size(1) + num_nodes, dtype=torch.int64)


for _name, _kernel, _fake in (
    (_FIND, _find, _fake_handle),
    (_NORMALISE, _normalise, _fake_normalised),
    (_PLACES, _places, _fake_places),
    (_EDGES, _normalised_edges, _fake_edges),
):
    LIBRARY.impl(_name, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"onehop::{_name}", _fake, lib=LIBRARY)
