"""Batches in the form that PyG's loaders expect."""

from collections.abc import Sequence

from torch import Tensor
from torch.utils.data import get_worker_info
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from onehop.graph.contents import Noted
from onehop.graph.graph import Graph
from onehop.graph.identity import CACHE
from onehop.loaders.engine import Batch


def note_graph(edge_index: Tensor, graph: Graph) -> None:
    """Record the graph of ``edge_index``, [2, E], a tensor not used elsewhere yet, so that layers find it."""
    # integrations/pyg/edges/kept.py looks the graph up by this key, in the hot path.
    CACHE.store(Noted(edge_index), ("graph", graph.num_src, graph.num_dst, True), graph)


EdgeType = tuple[str, str, str]


def wants_graphs() -> bool:
    """Return whether batches need graphs: only if they are used in this process and not sent to another."""
    return get_worker_info() is None


def edge_index_of(row: Tensor, col: Tensor) -> Tensor | None:
    """Return the tensor [2, E] whose rows these are and whose graph is known; None if there is none."""
    base = row._base
    if base is None or col._base is not base or base.dim() != 2 or base.size(0) != 2:
        return None
    is_whole = row.shape == col.shape == base.shape[1:] and base.is_contiguous()
    begin = base.data_ptr()
    if not is_whole or row.data_ptr() != begin or col.data_ptr() != begin + row.nbytes:
        return None
    return base


def homogeneous(batch: Batch) -> SamplerOutput:
    """Return a batch of one type of nodes and edges in PyG's form."""
    _note_graphs(batch)
    (edge_index,) = batch.edge_index
    per_hop = _per_hop(batch)
    return SamplerOutput(
        node=batch.nodes[0],
        row=edge_index[0],
        col=edge_index[1],
        edge=batch.edges[0],
        batch=None if batch.trees is None else batch.trees[0],
        num_sampled_nodes=None if per_hop is None else per_hop[0][0],
        num_sampled_edges=None if per_hop is None else per_hop[1][0],
    )


def heterogeneous(
    batch: Batch, node_types: Sequence[str], edge_types: Sequence[EdgeType]
) -> HeteroSamplerOutput:
    """Return a batch of several types in PyG's form; types are in the engine's order."""
    _note_graphs(batch)
    per_hop = _per_hop(batch)
    return HeteroSamplerOutput(
        node=dict(zip(node_types, batch.nodes, strict=True)),
        row={kind: ends[0] for kind, ends in zip(edge_types, batch.edge_index, strict=True)},
        col={kind: ends[1] for kind, ends in zip(edge_types, batch.edge_index, strict=True)},
        edge=dict(zip(edge_types, batch.edges, strict=True)),
        batch=None if batch.trees is None else dict(zip(node_types, batch.trees, strict=True)),
        num_sampled_nodes=None if per_hop is None else dict(zip(node_types, per_hop[0], strict=True)),
        num_sampled_edges=None if per_hop is None else dict(zip(edge_types, per_hop[1], strict=True)),
    )


def _per_hop(batch: Batch) -> tuple[list[list[int]], list[list[int]]] | None:
    """Return nodes and edges per hop; None for an induced subgraph, whose edges belong to no hop."""
    return None if batch.edges_per_hop is None else (batch.nodes_per_hop, batch.edges_per_hop)


def _note_graphs(batch: Batch) -> None:
    if batch.graphs is not None:
        for edge_index, graph in zip(batch.edge_index, batch.graphs, strict=True):
            note_graph(edge_index, graph)
