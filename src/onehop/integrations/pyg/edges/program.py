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
from onehop.graph.contents import Noted
from onehop.graph.handle import GraphInProgram, handle_of
from onehop.graph.identity import CACHE
from onehop.graph.lending import lend
from onehop.integrations import session
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
from onehop.ops.aggregate import reduce_rows
from onehop.ops.library import LIBRARY


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
def _constant_refusal(backend: str, device: str, dtype: torch.dtype) -> str:
    """Return why no backend runs on such features, which is a constant of a program; empty if one does."""
    return refusal(backend, torch.device(device), dtype) or ""


class ProgramEdges(Edges):
    """The edges of an ``edge_index`` that is traced.

    Args:
        layer: The layer.
        given: What ``propagate`` got: the ``edge_index``, [2, E], or an :class:`EdgesInProgram`.
        size: The number of rows at each end, None where it is unknown; or None.
        loops: At so many nodes, self loops are replaced by one each, behind the other edges; 0 leaves the
            edges as they are.
    """

    __slots__ = ("_graph", "_loops")
    is_traced = True

    def __init__(self, layer: Any, given: Any, size: Any = None, loops: int = 0) -> None:
        self.given = given
        self.index = given.edge_index if type(given) is EdgesInProgram else given
        self.sizes = [None, None] if size is None else list(size)
        self.forwards = layer.flow == "source_to_target"
        self.sending, self.is_cpu = SOURCE if self.forwards else TARGET, self.index.is_cpu
        self.count = self.index.size(1) + loops
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
        return _constant_refusal(backend, x.device.type, x.dtype) or None

    def graph(self) -> Any:
        """The graph, to be found when the program runs."""
        if self._graph is None:
            counts = self.counts()
            handle = torch.ops.onehop.find_graph(self.index, *counts, self.forwards, self._loops)
            self._graph = GraphInProgram(handle, *counts, self.count)
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


class NormalisedEdges(ProgramEdges):
    """The edges of an ``edge_index`` that is traced, to be normalised as GCNConv does.

    Args:
        layer: The layer.
        edge_index: [2, E].
        nodes: N.
    """

    __slots__ = ("_filled",)

    def __init__(self, layer: Any, edge_index: Tensor, nodes: int) -> None:
        super().__init__(layer, edge_index, (nodes, nodes))
        self._loops = nodes if layer.add_self_loops else 0
        self._filled = 2.0 if layer.improved else 1.0

    def factors(self, x: Tensor, weight: Tensor | None, reduce: str, weighted: bool) -> Factors:
        """The graph with its loops, the weight with theirs, and the scale of the nodes."""
        nodes, loops = self.counts()[0], self._loops
        handle, scale = torch.ops.onehop.find_normalised_graph(
            self.index, nodes, loops != 0, self.forwards, x.dtype
        )
        graph: Any = GraphInProgram(handle, nodes, nodes, self.count + loops)
        if weight is None:
            return Factors(graph, None, scale)
        if loops:
            weight = with_loops(self.index, weight, self._loop_weights(weight, nodes))
        ones = weight.new_ones(nodes, 1)
        scale = reduce_rows(graph, ones, weight=weight, backend=session.now.backend).squeeze(1).pow(-0.5)
        return Factors(graph, weight, scale.masked_fill(scale == float("inf"), 0))

    def _loop_weights(self, weight: Tensor, nodes: int) -> Tensor:
        """[N]: the weight of every node's loop, as PyG's ``add_remaining_self_loops`` has it.

        It is what the node's last loop weighs, with PyG's gradient to all of them.
        """
        source, target = self.index
        # Edges that are no loops write to an entry that is never read.
        place = torch.where(source == target, source, nodes)
        return weight.new_full((nodes + 1,), self._filled).index_put((place,), weight)[:nodes]

    def listed(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """[2, M] and [M]: edges and weights to be kept in a layer; M is known when the program runs."""
        edges, weight = torch.ops.onehop.normalised_edges(
            self.index, self.counts()[0], self._filled != 1, self._loops != 0, self.forwards, dtype
        )
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


# Operators, which run with the program


@dataclass(slots=True)
class _Found:
    """A graph with self loops that was found before. The cache of graphs holds it."""

    graph: "weakref.ref[Graph]"
    nbytes: int = 0


def _find(edge_index: Tensor, num_src: int, num_dst: int, forwards: bool, loops: int) -> Tensor:
    if not loops:
        return handle_of(_graph(edge_index, num_src, num_dst, forwards))
    rest = ("graph in a program", num_src, num_dst, forwards, loops)
    found: _Found | None = CACHE.find(edge_index, rest)
    graph = None if found is None else found.graph()
    if graph is None:
        noted = Noted(edge_index)
        graph = _graph(_looped(edge_index, loops), num_src, num_dst, forwards)
        CACHE.store(noted, rest, _Found(weakref.ref(graph)))
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
            return handle_of(symmetric.graph), lend(symmetric.scale)
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
            return handle_of(graph), scale
    return handle_of(graph), lend(scale)


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
    ("find_graph", _find, _fake_handle),
    ("find_normalised_graph", _normalise, _fake_normalised),
    ("looped_edges", _places, _fake_places),
    ("normalised_edges", _normalised_edges, _fake_edges),
):
    LIBRARY.define(_name + torch.library.infer_schema(_kernel, mutates_args=()))
    LIBRARY.impl(_name, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"onehop::{_name}", _fake, lib=LIBRARY)
