"""Places of edges, in their rows and in the graph: what the gradients of max and min to x go by."""

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.graph.placed import PlacedCsr
from onehop.graph.streams import KeptTensor

# Marks have 16 bits; an edge further back has none.
_LAST_MARK = 2**16 - 1


def row_begins(graph: Graph, device: torch.device) -> Tensor:
    """[num_dst], int64: the first edge of every row, on a device; kept with the graph."""
    return graph.on(device).rowptr[:-1]


def edge_marks(graph: Graph, device: torch.device) -> Tensor:
    """int16 [E], in the order of the transposed graph: the edges' places in their destinations' rows.

    A mark is the low 16 bits of 1 + the position; 0 for positions from 65,535 on. Kept with the graph.
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
    """int32 [E], in the order of the transposed graph: the edges' places in the graph's own order.

    Kept with the graph, which has fewer than 2^31 edges.
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
    """Numbers of edges row by row, through the caller's numbers, in the order of the transposed graph."""
    if csr.perm is not None:
        of_edges = torch.empty_like(of_edges).index_copy_(0, csr.perm.long(), of_edges)
    return of_edges if transposed.perm is None else of_edges.index_select(0, transposed.perm)
