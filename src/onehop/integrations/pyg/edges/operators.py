"""Operators by which a running program looks up graphs, normalised graphs and edges with self loops.

Exported programs call them without PyG, so this module does not import PyG. Their results are in the same
caches that eager layers use.
"""

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.graph.contents import Noted
from onehop.graph.handle import handle_of
from onehop.graph.identity import CACHE
from onehop.graph.lending import lend
from onehop.integrations.pyg.edges.kept import (
    COUNTING,
    Derived,
    SymmetricKey,
    graph_of,
    is_counted,
    rewritten,
    symmetric_of,
)
from onehop.integrations.pyg.edges.normalised import Unweighted, normalised
from onehop.ops.namespace import define


@dataclass(slots=True)
class _LoopedGraph:
    """A reference to a graph with self loops. The cache of graphs holds the graph."""

    graph: "weakref.ref[Graph]"
    nbytes: int = 0


def _find(edge_index: Tensor, num_src: int, num_dst: int, forwards: bool, loops: int) -> Tensor:
    if not loops:
        return handle_of(_graph(edge_index, num_src, num_dst, forwards))
    rest = ("graph in a program", num_src, num_dst, forwards, loops)
    entry: _LoopedGraph | None = CACHE.find(edge_index, rest)
    graph = None if entry is None else entry.graph()
    if graph is None:
        noted = Noted(edge_index)
        graph = _graph(_looped(edge_index, loops), num_src, num_dst, forwards)
        CACHE.store(noted, rest, _LoopedGraph(weakref.ref(graph)))
    return handle_of(graph)


def _looped(edge_index: Tensor, loops: int) -> Tensor:
    """Return the edges as attention layers rewrite them; uses the same cache as these layers."""
    (edges,) = rewritten(
        edge_index, ("remove_self_loops", None), lambda: (edge_index[:, edge_index[0] != edge_index[1]],)
    )
    (looped,) = rewritten(edges, ("add_self_loops", loops), lambda: (_with_last(edges, loops),))
    return looped


def _with_last(edges: Tensor, nodes: int) -> Tensor:
    """Return the edges, followed by a self loop for each node, [2, E + N]."""
    return torch.cat([edges, torch.arange(nodes, device=edges.device).expand(2, -1)], dim=1)


def _normalise(
    edge_index: Tensor, num_nodes: int, loops: bool, forwards: bool, dtype_name: str
) -> tuple[Tensor, Tensor]:
    dtype: torch.dtype = getattr(torch, dtype_name)
    if dtype in COUNTING and edge_index.is_cpu:
        symmetric = symmetric_of(edge_index, SymmetricKey(num_nodes, loops, forwards, dtype))
        if symmetric is not None:
            return handle_of(symmetric.graph), lend(symmetric.scale)
        if is_counted(edge_index, num_nodes):
            _graph_or_error(edge_index, num_nodes, num_nodes, forwards)
    flow = "source_to_target" if forwards else "target_to_source"
    key = Unweighted(num_nodes, False, loops, flow, dtype)
    derived: Derived | None = CACHE.find(edge_index, key)
    graph = None if derived is None or derived.graph is None else derived.graph()
    scale = None if derived is None else derived.scale
    if graph is None or scale is None:
        edges, weight = rewritten(edge_index, key, lambda: normalised(edge_index, key))
        graph = _graph(edges, num_nodes, num_nodes, forwards)
        derived = CACHE.find(edge_index, key)
        if derived is not None:
            derived.graph, scale = weakref.ref(graph), derived.scale
        if scale is None:
            # Tensors made in inference mode are not cached.
            degree = weight.new_zeros(num_nodes).index_add_(0, edges[int(forwards)], torch.ones_like(weight))
            scale = degree.pow_(-0.5).masked_fill_(degree == float("inf"), 0)
            return handle_of(graph), scale
    return handle_of(graph), lend(scale)


def _places(edge_index: Tensor, num_nodes: int) -> Tensor:
    key = ("places of looped edges", num_nodes)
    (places,) = rewritten(edge_index, key, lambda: (_compute_places(edge_index, num_nodes),))
    return places


def _compute_places(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Return, for each edge of the looped graph, its row among E edges and N loops; then zeros, [E + N]."""
    edges = edge_index.size(1)
    numbers = torch.arange(edges + num_nodes, device=edge_index.device)
    not_loops = numbers[:edges][edge_index[0] != edge_index[1]]
    places = torch.cat([not_loops, numbers[edges:]])
    return torch.cat([places, places.new_zeros(edges - not_loops.size(0))])


def _graph(edge_index: Tensor, num_src: int, num_dst: int, forwards: bool) -> Graph:
    graph = graph_of(edge_index, num_src, num_dst, forwards)
    return _graph_or_error(edge_index, num_src, num_dst, forwards) if graph is None else graph


def _graph_or_error(edge_index: Tensor, num_src: int, num_dst: int, forwards: bool) -> Graph:
    """Makes the graph of edges without the cache; raises for invalid edges, because PyG does not run."""
    return Graph.from_edge_index(edge_index if forwards else edge_index.flip(0), size=(num_src, num_dst))


def _fake_handle(edge_index: Tensor, *_: object) -> Tensor:
    return torch.empty(1, dtype=torch.int64, device="cpu")


def _fake_normalised(
    edge_index: Tensor, num_nodes: int, loops: bool, forwards: bool, dtype_name: str
) -> tuple[Tensor, Tensor]:
    return _fake_handle(edge_index), edge_index.new_empty(num_nodes, dtype=getattr(torch, dtype_name))


def _fake_places(edge_index: Tensor, num_nodes: int) -> Tensor:
    return edge_index.new_empty(edge_index.size(1) + num_nodes, dtype=torch.int64)


define("find_graph", _find, _fake_handle)
define("find_normalised_graph", _normalise, _fake_normalised)
define("looped_edges", _places, _fake_places)

FIND_GRAPH: Any = torch.ops.onehop.find_graph
"""The operator that looks up a graph."""

FIND_NORMALISED_GRAPH: Any = torch.ops.onehop.find_normalised_graph
"""The operator that looks up the graph that GCN normalises, and the scale of its nodes."""

LOOPED_EDGES: Any = torch.ops.onehop.looped_edges
"""The operator that places the edges of a graph with self loops."""
