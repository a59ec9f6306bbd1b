"""Graphs of segments of rows, which an index, bounds or lengths define; they are cached.

A cached graph is used while the contents of the tensor that defines it are unchanged. Edge e of the graph
goes from row e to the segment that contains this row (:mod:`onehop.graph.index`).
"""

import torch
from torch import Tensor

from onehop.errors import ArgumentError, IndexRangeError
from onehop.graph import Graph, build
from onehop.graph.handle import GraphInProgram
from onehop.graph.identity import remembered
from onehop.ops.rows import graph_of_index

_SAMPLES = 1000


def graph_of_rows(index: Tensor, num_rows: int | None) -> Graph | None:
    """Return the graph of an index, cached or new.

    Args:
        index: [E], int64, on the CPU, not made in inference mode; E is at least 1.
        num_rows: Number of rows of the result; None means one more than the largest number in the index.

    Returns:
        None if a number is out of range.
    """

    def make() -> Graph | GraphInProgram:
        return graph_of_index(index, int(index.max()) + 1)

    try:
        if num_rows is None:
            graph = remembered(index, key="index of as many rows as it names", make=make, whole=True)
        else:
            graph = graph_of_index(index, num_rows)
    except (ArgumentError, IndexRangeError):
        return None
    return graph if isinstance(graph, Graph) else None


def graph_of_ascending(index: Tensor, num_rows: int | None) -> Graph | None:
    """Return the graph of an index whose entries never decrease; None for any other index."""
    # A sample excludes most other indices before a graph is made.
    some = index[:: max(index.size(0) // _SAMPLES, 1)]
    graph = graph_of_rows(index, num_rows) if bool((some[1:] >= some[:-1]).all()) else None
    return graph if graph is not None and graph.index is not None and graph.index.ascends else None


def graph_of_bounds(ptr: Tensor, rows: int) -> Graph | None:
    """Return the graph of segments of rows between bounds, cached or new.

    Args:
        ptr: [segments + 1], int32 or int64, on the CPU, not made in inference mode: the begin of each
            segment, and the end of the last one.
        rows: E, the number of rows; at least 1.

    Returns:
        None if there is no segment, or ``ptr`` does not ascend from 0 to E.
    """
    return remembered(ptr, key=("segments between", rows), make=lambda: _from_bounds(ptr, rows), whole=True)


def graph_of_lengths(lengths: Tensor, rows: int) -> Graph | None:
    """Return the graph of segments of rows with these lengths, cached or new.

    Args:
        lengths: [segments], int32 or int64, on the CPU, not made in inference mode.
        rows: E, the number of rows; at least 1.

    Returns:
        None if a length is negative or the lengths do not add up to E.
    """
    return remembered(
        lengths, key=("segments of", rows), make=lambda: _from_lengths(lengths, rows), whole=True
    )


def _from_bounds(ptr: Tensor, rows: int) -> Graph | None:
    return _from_lengths(ptr.diff(), rows) if ptr.numel() and not int(ptr[0]) else None


def _from_lengths(lengths: Tensor, rows: int) -> Graph | None:
    lengths = lengths.clone()  # a copy, so that the checked values are the ones that are used
    if rows > build.MOST_NODES or bool((lengths < 0).any()) or int(lengths.sum()) != rows:
        return None
    return Graph.from_index(torch.repeat_interleave(lengths), lengths.numel())
