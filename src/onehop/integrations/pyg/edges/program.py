"""Edges in a program of ``torch.compile`` or ``torch.export``.

A program is traced once, with tensors that have no data, and runs many times. So the graph, the normalised
edges and kept aggregates, which eager layers look up, cannot be looked up during tracing. Operators
(:mod:`.operators`) look them up in the same caches when the program runs, by the ``edge_index`` that the
program gets. The number of edges with self loops depends on the data, but shapes must not: they allow for the
largest possible number (:mod:`onehop.graph.handle`).
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

    It is not a tensor, so ``forward`` does not rewrite self loops; that would make the shape of the edges
    depend on the data.

    Attributes:
        edge_index: [2, E].
        kind: The kind of scores: "gat", "gatv2" or "dot".
    """

    edge_index: Tensor
    kind: str


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _constant_refusal(backend: str, device: str, dtype: torch.dtype) -> str:
    """Return why no backend takes such features, as a constant of a program; empty if one does."""
    return refusal(backend, torch.device(device), dtype) or ""


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _name_of(dtype: torch.dtype) -> str:
    """Return the name of a dtype; operators get names because torch 2.9's packages change dtype arguments."""
    return str(dtype).removeprefix("torch.")


class ProgramEdges(Edges):
    """The edges of an ``edge_index`` while a program is traced.

    Args:
        layer: The layer.
        edge_index: The argument of ``propagate``: an ``edge_index``, [2, E], or an :class:`EdgesInProgram`.
        size: The number of rows at each end (None if unknown); or None.
        loops: The number of nodes whose self loops are replaced by one each, after the other edges; 0 leaves
            the edges unchanged.
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
        """Return the numbers of sending and of receiving nodes; if one is unknown, it equals the other."""
        sending = self.sending
        num_src, num_dst = self.sizes[sending], self.sizes[1 - sending]
        sources: Any = num_dst if num_src is None else num_src
        return sources, sources if num_dst is None else num_dst

    def refusal(self, backend: str, x: Tensor) -> str | None:
        """Return why no backend takes such features, as a constant of the program; None if one does."""
        return _constant_refusal(backend, x.device.type, x.dtype) or None

    def graph(self) -> Any:
        """Return the graph, which is looked up when the program runs."""
        if self._graph is None:
            counts = self.counts()
            handle = FIND_GRAPH(self.index, *counts, self.forwards, self._loops)
            self._graph = GraphInProgram(handle, *counts, self.count)
        return self._graph

    def factors(self, x: Tensor, weight: Tensor | None, reduce: str, weighted: bool) -> Factors:
        """Return the graph and the weight."""
        return Factors(self.graph(), weight)

    def drawn(self, out: Tensor, p: float) -> Tensor:
        """Return the factors of dropout.

        torch's own operator draws them, so torch's handling of random numbers in programs (generators,
        recomputation) applies to them.
        """
        return dropout(torch.ones_like(out), p=p, training=True)


class NormalisedEdges(ProgramEdges):
    """The edges of an ``edge_index`` while a program is traced; the program normalises them as GCNConv.

    Args:
        layer: The layer.
        edge_index: [2, E].
        nodes: N, the number of nodes.
    """

    __slots__ = ("_filled",)

    def __init__(self, layer: Any, edge_index: Tensor, nodes: int) -> None:
        super().__init__(layer, edge_index, (nodes, nodes))
        self._loops = nodes if layer.add_self_loops else 0
        self._filled = 2.0 if layer.improved else 1.0

    def factors(self, x: Tensor, weight: Tensor | None, reduce: str, weighted: bool) -> Factors:
        """Return the graph with self loops, the weight with the loops' weights, and the nodes' scale."""
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
        """Return the weight of every node's self loop, [N], as PyG's ``add_remaining_self_loops`` does.

        It is the weight of the node's last loop; as in PyG, all of the node's loops get the gradient.
        """
        source, target = self.index
        # Edges that are not loops write to an entry that is never read.
        place = torch.where(source == target, source, nodes)
        return weight.new_full((nodes + 1,), self._filled).index_put((place,), weight)[:nodes]

    def listed(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return edges, [2, M], and weights, [M], to keep in a layer; M is known when the program runs."""
        edges, weight = torch.ops.onehop.normalised_edges(
            self.index, self.counts()[0], self._filled != 1, self._loops != 0, self.forwards, _name_of(dtype)
        )
        return edges, weight


def with_loops(edge_index: Tensor, values: Tensor, of_loops: Tensor) -> Tensor:
    """Return a row for each edge of a graph with self loops.

    Args:
        edge_index: [2, E].
        values: [E, ...], rows of the edges.
        of_loops: [N, ...], rows of the self loops, which replace existing loops.

    Returns:
        [E + N, ...]: rows of the edges that are not loops, then rows of the loops, then rows to ignore.
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
    # An operator must not return one of its input tensors.
    return edges.clone() if edges is edge_index else edges, weight


def _fake_edges(
    edge_index: Tensor, num_nodes: int, improved: bool, loops: bool, forwards: bool, dtype_name: str
) -> tuple[Tensor, Tensor]:
    count = torch.library.get_ctx().new_dynamic_size()
    return edge_index.new_empty(2, count), edge_index.new_empty(count, dtype=getattr(torch, dtype_name))


define("normalised_edges", _normalised_edges, _fake_edges)
