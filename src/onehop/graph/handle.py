"""Handles of graphs: tensors that represent graphs in programs that look up their graphs when they run.

A compiled program is made once and runs on any ``edge_index``, so it cannot name its graph by a number. It
can pass on only tensors: from the operator that looks up the graph to operators that use it, and from the
forward to the backward pass. A handle is a tensor with one number, whose memory keeps the graph alive.
"""

import weakref
from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.graph.graph import Graph, by_number


@dataclass(frozen=True, slots=True)
class GraphInProgram:
    """Stands for a graph while a program is traced; operators take it instead of a Graph.

    Attributes:
        number: The handle, [1], int64, on the CPU.
        num_src: Number of sources.
        num_dst: Number of destinations.
        num_edges: Number of edges, or the maximal number if it depends on the contents of the edges. Operands
            with a row for each edge have this number of rows; rows after the last edge are ignored.
    """

    number: Tensor
    num_src: int
    num_dst: int
    num_edges: int


def handle_of(graph: Graph) -> Tensor:
    """Return a new handle, [1], int64, on the CPU; the graph lives as long as the handle's memory."""
    handle = torch.tensor([graph.number], dtype=torch.int64, device="cpu")
    # A finalizer keeps its arguments alive until it runs.
    weakref.finalize(handle.untyped_storage(), _let_go, graph).atexit = False
    return handle


def held(handle: Tensor) -> Graph:
    """Return the graph of a handle; raise an ArgumentError for a copied handle whose graph was freed."""
    return by_number(int(handle))


def _let_go(graph: Graph) -> None:
    """Does nothing; the graph is released when the finalizer has called this."""
