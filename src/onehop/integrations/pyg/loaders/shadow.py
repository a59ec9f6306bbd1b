"""PyG's ``ShaDowKHopSampler`` without torch-sparse: a small graph around each node, with all of its edges.

In contrast to torch-sparse, neighbours of a node are drawn only once even if the node occurs again, and with
``replace=True``, neighbours can be drawn repeatedly even if a node has fewer than ``num_neighbors``.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.loader import ShaDowKHopSampler, shadow

from onehop.graph import Graph
from onehop.integrations.pyg.loaders.neighbours import HasSampler, Inherited, needed
from onehop.integrations.rows import Part, Row, building, replacing
from onehop.loaders.engine import Choices, Engine
from onehop.loaders.keys import drawn_key
from onehop.loaders.neighbor_sampler import arrays_of
from onehop.loaders.relation import Relation

# Attributes of the data that are not copied to a batch.
_NOT_TAKEN = ("edge_index", "adj_t", "num_nodes", "batch", "ptr")


def rows() -> list[Row]:
    """Return the rows of the patch table."""
    theirs: Any = shadow.SparseTensor

    def edges(**arguments: Any) -> Any:
        return Edges(**arguments) if needed() else theirs(**arguments)

    # A loader keeps a reference to this function, and continues to draw after the patch has ended.
    with building.set(Part(on=True)):
        collating = replacing(ShaDowKHopSampler, "__collate__", _collate)
    return [
        Row(shadow, "WITH_TORCH_SPARSE", HasSampler(shadow.WITH_TORCH_SPARSE), shadow.WITH_TORCH_SPARSE),
        Row(shadow, "SparseTensor", edges, theirs),
        collating,
    ]


class Edges:
    """The edges of a loader, with the methods of ``SparseTensor`` that the loader's constructor calls.

    Args:
        row: [E], int64: sources.
        col: [E], int64: destinations.
        value: Not used, because the graph stores the number of each edge.
        sparse_sizes: (number of nodes, number of nodes).
    """

    def __init__(self, row: Tensor, col: Tensor, value: Tensor, sparse_sizes: tuple[int, int]) -> None:
        graph = Graph.from_edge_index(torch.stack([row, col]), sparse_sizes[0])
        self.arrays, self.num_nodes = arrays_of("edge_index", graph), sparse_sizes[0]
        self._engine: Engine | None = None
        self._inherited = Inherited()

    def t(self) -> "Edges":
        """Return the object itself, because its rows are already destinations."""
        return self

    def sparse_size(self, _: int) -> int:
        """Return the number of nodes."""
        return self.num_nodes

    def engine(self, depth: int, num_neighbors: int, replace: bool) -> Engine:
        """Return the engine for these arguments of the loader."""
        choices = Choices(depth, replace, disjoint=True, induced=True)
        fan_out = (num_neighbors,) * depth
        engine = self._engine
        if engine is None or engine.choices != choices or engine.relations[0].fan_out != fan_out:
            relation = Relation("edge_index", self.arrays.rowptr, self.arrays.col, 0, 0, fan_out)
            engine = self._engine = Engine([self.num_nodes], [relation], choices)
        return engine


def _collate(_: Any, loader: Any, chosen: list[int]) -> Batch | None:
    """Replaces ``ShaDowKHopSampler.__collate__``: return a batch; None if edges are of torch-sparse."""
    edges = loader.adj_t
    if not isinstance(edges, Edges):
        return None
    around = _around(edges, torch.tensor(chosen, device="cpu"), loader)
    batch = Batch(batch=around.batch, ptr=around.ptr)
    batch.root_n_id, batch.edge_index = around.root_n_id, around.edge_index
    # As in PyG, the number of rows decides whether an attribute belongs to nodes or edges.
    num_nodes, num_edges = loader.data.num_nodes, loader.data.num_edges
    for name, value in loader.data:
        if name in _NOT_TAKEN:
            continue
        if name == "y" and value.size(0) == num_nodes:
            batch[name] = value[around.n_id][around.root_n_id]
        elif isinstance(value, Tensor) and value.size(0) == num_nodes:
            batch[name] = value[around.n_id]
        elif isinstance(value, Tensor) and value.size(0) == num_edges:
            batch[name] = value[around.e_id]
        else:
            batch[name] = value
    return batch


@dataclass(frozen=True, slots=True)
class _Around:
    """The graphs around some root nodes, concatenated.

    Attributes:
        n_id: [n]: the nodes, ascending in each graph.
        batch: [n]: the graph of each node.
        ptr: [graphs + 1]: the begin of each graph's nodes, and the end of the last.
        root_n_id: [graphs]: the positions of the root nodes.
        edge_index: [2, e], sorted by source, then by destination.
        e_id: [e]: the caller's number of each edge.
    """

    n_id: Tensor
    batch: Tensor
    ptr: Tensor
    root_n_id: Tensor
    edge_index: Tensor
    e_id: Tensor


def _around(edges: Edges, seeds: Tensor, loader: Any) -> _Around:
    engine = edges.engine(loader.depth, loader.num_neighbors, loader.replace)
    drawn = engine.draw([seeds], drawn_key())
    assert drawn.trees is not None
    (nodes,), (trees,) = drawn.nodes, drawn.trees
    order = (trees * edges.num_nodes + nodes).argsort()
    place = torch.empty_like(order)
    place[order] = torch.arange(order.numel(), device="cpu")
    counts = torch.bincount(trees, minlength=seeds.numel())
    edge_index = place[drawn.edge_index[0]]
    by_source = (edge_index[0] * order.numel() + edge_index[1]).argsort(stable=True)
    return _Around(
        n_id=nodes[order],
        batch=trees[order],
        ptr=torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        root_n_id=place[: seeds.numel()],
        edge_index=edge_index[:, by_source],
        e_id=edges.arrays.numbers(drawn.edges[0][by_source]),
    )
