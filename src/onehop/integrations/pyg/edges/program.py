"""Edges in a program that ``torch.compile`` or ``torch.export`` makes.

A program is traced once, with tensors that have no data, and runs many times. So nothing that eager layers
look up can be looked up while it is traced: not the graph, nor the normalised edges, nor kept aggregates.
Operators (:mod:`.operators`) look them up when the program runs, in the same caches, by the ``edge_index``
that the program gets.
How many edges there are with self loops depends on the data; shapes do not: they allow for the most that
there can be (:mod:`onehop.graph.handle`).
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout

from onehop.backends import refusal
from onehop.graph.handle import GraphInProgram
from onehop.integrations import session
from onehop.integrations.pyg.edges import SOURCE, TARGET, Edges, Factors
from onehop.integrations.pyg.edges.normalised import Unweighted
from onehop.integrations.pyg.edges.operators import FIND_GRAPH, FIND_NORMALISED_GRAPH, LOOPED_EDGES
from onehop.integrations.pyg.edges.rewrites import normalisation, without_weight
from onehop.ops.aggregate import reduce_rows
from onehop.ops.namespace import define


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


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _name_of(dtype: torch.dtype) -> str:
    """Return the name of a dtype in torch, for operators: packages of torch 2.9 pass another dtype on."""
    return str(dtype).removeprefix("torch.")


class ProgramEdges(Edges):
    """The edges of an ``edge_index`` that is traced.

    Args:
        layer: The layer.
        edge_index: What ``propagate`` got: the ``edge_index``, [2, E], or an :class:`EdgesInProgram`.
        size: The number of rows at each end, None where it is unknown; or None.
        loops: At so many nodes, self loops are replaced by one each, behind the other edges; 0 leaves the
            edges as they are.
    """

    __slots__ = ("_graph", "_loops")
    is_traced = True

    def __init__(self, layer: Any, edge_index: Any, size: Any = None, loops: int = 0) -> None:
        self.edge_index = edge_index
        self.index = edge_index.edge_index if type(edge_index) is EdgesInProgram else edge_index
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
            handle = FIND_GRAPH(self.index, *counts, self.forwards, self._loops)
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
        handle, scale = FIND_NORMALISED_GRAPH(self.index, nodes, loops != 0, self.forwards, _name_of(x.dtype))
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
            self.index, self.counts()[0], self._filled != 1, self._loops != 0, self.forwards, _name_of(dtype)
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
    places = LOOPED_EDGES(edge_index, of_loops.size(0))
    return torch.cat([values, of_loops]).index_select(0, places)


def _normalised_edges(
    edge_index: Tensor, num_nodes: int, improved: bool, loops: bool, forwards: bool, dtype_name: str
) -> tuple[Tensor, Tensor]:
    flow, dtype = "source_to_target" if forwards else "target_to_source", getattr(torch, dtype_name)
    edges, weight = without_weight(
        normalisation(), edge_index, Unweighted(num_nodes, improved, loops, flow, dtype)
    )
    # An operator gives out no tensor that it was given.
    return edges.clone() if edges is edge_index else edges, weight


def _fake_edges(
    edge_index: Tensor, num_nodes: int, improved: bool, loops: bool, forwards: bool, dtype_name: str
) -> tuple[Tensor, Tensor]:
    count = torch.library.get_ctx().new_dynamic_size()
    return edge_index.new_empty(2, count), edge_index.new_empty(count, dtype=getattr(torch, dtype_name))


define("normalised_edges", _normalised_edges, _fake_edges)
