"""Positions of edges in their rows and in the graph, used by the gradients of max and min to x."""

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.graph.placed import PlacedCsr
from onehop.graph.streams import KeptTensor

# Marks have 16 bits; an edge at a later position has no mark.
_LAST_MARK = 2**16 - 1


def row_begins(graph: Graph, device: torch.device) -> Tensor:
    """Return the first edge of every row, [num_dst], int64, on a device; cached with the graph."""
    return graph.on(device).rowptr[:-1]


def edge_marks(graph: Graph, device: torch.device) -> Tensor:
    """Return marks of edges' positions in their destinations' rows, int16 [E], in the transposed order.

    A mark is the low 16 bits of 1 + the position; 0 for positions from 65,535 on. The marks are cached with
    the graph.
    """
    key = ("edge marks", device)
    tensor: KeptTensor | None = graph.derived.get(key)
    if tensor is None:
        csr = graph.on(device)
        position = torch.arange(csr.edges, device=device) - csr.rowptr.index_select(0, csr.row_of_edges()) + 1
        marks = torch.where(position <= _LAST_MARK, position, 0).to(torch.int16)
        tensor = KeptTensor.of(_transposed(marks, csr, graph.on(device, True)))
        graph.keep(key, tensor, device)
    return tensor.read()


def edge_places(graph: Graph, device: torch.device) -> Tensor:
    """Return the edges' positions in the graph's own order, int32 [E], in the transposed graph's order.

    They are cached with the graph, which must have fewer than 2^31 edges.
    """
    key = ("edge places", device)
    tensor: KeptTensor | None = graph.derived.get(key)
    if tensor is None:
        csr, transposed = graph.on(device), graph.on(device, True)
        place = torch.arange(csr.edges, dtype=torch.int32, device=device)
        tensor = KeptTensor.of(_transposed(place, csr, transposed))
        graph.keep(key, tensor, device)
    return tensor.read()


def _transposed(of_edges: Tensor, csr: PlacedCsr, transposed: PlacedCsr) -> Tensor:
    """Reorder numbers of edges from row order to the transposed graph's order, by the caller's numbers."""
    if csr.perm is not None:
        of_edges = torch.empty_like(of_edges).index_copy_(0, csr.perm.long(), of_edges)
    return of_edges if transposed.perm is None else of_edges.index_select(0, transposed.perm)
