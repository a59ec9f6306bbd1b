"""Handles of graphs: tensors that stand for graphs in programs that find them when they run.

A compiled program is made once and runs on any ``edge_index``, so it cannot name its graph by a number. What
it can pass on, from the operator that finds the graph to those that run on it, and from the forward pass to
the backward pass, is a tensor: one number, whose memory keeps the graph alive.
"""

import weakref
from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.graph.graph import Graph, by_number


@dataclass(frozen=True, slots=True)
class GraphInProgram:
    """A graph as code sees it while it is traced; operators take it in place of a Graph.

    Attributes:
        number: [1], int64 on the CPU, the handle.
        num_src: Number of sources.
        num_dst: Number of destinations.
        num_edges: Number of edges, or, where it depends on their contents, the most that there can be.
            Operands with a row for each edge have this number of rows; rows behind the last edge are ignored.
    """

    number: Tensor
    num_src: int
    num_dst: int
    num_edges: int


def handle_of(graph: Graph) -> Tensor:
    """[1], int64 on the CPU: a new handle of the graph, which lives as long as the handle's memory."""
    handle = torch.tensor([graph.number], dtype=torch.int64, device="cpu")
    # A finalizer holds its arguments until then.
    weakref.finalize(handle.untyped_storage(), _let_go, graph).atexit = False
    return handle


def held(handle: Tensor) -> Graph:
    """The graph of a handle; raises an ArgumentError if the handle is a copy, and the graph was freed."""
    return by_number(int(handle))


def _let_go(graph: Graph) -> None:
    """Does nothing: the finalizer that calls it lets go of the graph."""
