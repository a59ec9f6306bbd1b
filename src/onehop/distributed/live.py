"""The distributed graphs in use, and the one whose owned nodes a tensor's rows are.

Features are plain tensors. Functions that mix the rows of all nodes, such as batch normalisation, recognise a
process's part of a graph by its number of rows; an ambiguous number is an error.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import torch
import torch.distributed as dist

from onehop.distributed.graph import DistributedGraph, held_graphs
from onehop.errors import ArgumentError

_alone: ContextVar[bool] = ContextVar("onehop.distributed.alone", default=False)
_among_edges: ContextVar[bool] = ContextVar("onehop.distributed.among_edges", default=False)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Treats tensors inside the block as this process's own: nothing is summed over the processes.

    For work beside a distributed graph, such as a second model on mini-batches, whose batch normalisation
    would otherwise be an error.
    """
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


@contextlib.contextmanager
def among_edges() -> Iterator[None]:
    """Says that messages of edges are reduced inside the block: their number may be that of nodes."""
    token = _among_edges.set(True)
    try:
        yield
    finally:
        _among_edges.reset(token)


def reduces_edges() -> bool:
    """Return whether the code runs inside of :func:`among_edges`."""
    return _among_edges.get()


def in_use() -> list[DistributedGraph]:
    """The graphs over more than one process that this process holds, outside of :func:`alone`."""
    # Compiled code never gets a distributed graph: its edges refuse that.
    if torch.compiler.is_compiling() or not held_graphs or _alone.get() or not dist.is_initialized():
        return []
    return list(held_graphs)


def owned_and_whole(graph: DistributedGraph) -> list[tuple[int, int]]:
    """Return the nodes that this process owns and the graph has; if bipartite, of its sources too."""
    found = [(graph.num_nodes, graph.part.num_nodes)]
    if graph.part.sources is not None:
        found.append((graph.num_sources, graph.part.sources.num_nodes))
    return found


def part_with(rows: int) -> DistributedGraph | None:
    """A graph of which this process owns this many nodes; None if there is none."""
    return next(
        (graph for graph in in_use() if any(owned == rows for owned, _ in owned_and_whole(graph))), None
    )


def divided(name: str, rows: int) -> DistributedGraph | None:
    """The graph that a tensor is a part of; None if it is whole.

    Args:
        name: Name of the function that mixes the rows, for the error.
        rows: Number of the tensor's rows.

    Raises:
        ArgumentError: Graphs are in use, and the rows are neither the owned nodes of one nor all its nodes.
    """
    graphs = in_use()
    ends = [(graph, owned, whole) for graph in graphs for owned, whole in owned_and_whole(graph)]
    found = [(graph, whole) for graph, owned, whole in ends if owned == rows]
    if len({(whole, graph.exchange.group) for graph, whole in found}) > 1:
        raise ArgumentError(
            f"x: {name} mixes the rows of all nodes, and {rows} rows may be a part of several divided "
            "graphs. Keep one of these graphs at a time (del the others)."
        )
    if found:
        return found[0][0]
    if not graphs or any(whole == rows for _, _, whole in ends):
        return None
    graph = graphs[0]
    raise ArgumentError(
        f"x: {name} mixes the rows of all nodes, and expected a row for each of the {graph.num_nodes} nodes "
        f"that rank {graph.rank} owns of a graph that is divided over {graph.part.parts} processes, got "
        f"{rows}. Give it the rows of all owned nodes; if these rows belong to something else, call it "
        "inside 'with onehop.distributed.alone():'."
    )
