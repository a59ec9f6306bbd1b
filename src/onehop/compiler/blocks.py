"""A graph in blocks: consecutive destination rows with a bounded number of edges, each a small graph."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from onehop import thresholds
from onehop.graph import Graph


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows, or a part of the edges of one row.

    Attributes:
        rows: First row, and the one after the last.
        edges: First edge in the graph's order, and the one after the last.
        graph: From the block's edges to its rows.
        share: Of its rows' edges, which the block has: 1 but for a part of a row.
    """

    rows: tuple[int, int]
    edges: tuple[int, int]
    graph: Graph
    share: float

    @property
    def whole(self) -> bool:
        """Return whether it has all edges of its rows."""
        return self.share == 1.0


@dataclass(frozen=True, slots=True)
class EdgeBlocks:
    """All blocks of a graph, in order.

    Attributes:
        each: The blocks.
        block_edges: How many edges a block of several rows may have.
    """

    each: tuple[Block, ...]
    block_edges: int

    def __iter__(self) -> Iterator[Block]:
        """The blocks."""
        return iter(self.each)


def blocks_of(graph: Graph, block_edges: int, cut: bool) -> EdgeBlocks:
    """The blocks of a graph with edges, made once and kept with the graph.

    Args:
        graph: The graph.
        block_edges: How many edges a block of several rows may have.
        cut: Whether a row with more edges is cut into parts; it is a block of its own otherwise.
    """
    key = ("message blocks", block_edges, cut)
    with graph.lock:
        blocks: EdgeBlocks | None = graph.derived.get(key)
        if blocks is None:
            blocks = graph.derived[key] = EdgeBlocks(tuple(_blocks(graph, block_edges, cut)), block_edges)
    return blocks


def edges_of_a_block(row_bytes: int) -> int:
    """Number of edges of a block whose edges have at most ``row_bytes`` bytes in one tensor."""
    bounds = thresholds.now
    return max(bounds.block_bytes // max(row_bytes, 1), bounds.block_edges)


def whole_block(graph: Graph) -> Block:
    """The graph as one block."""
    return _block(graph, (0, graph.num_dst), (0, graph.num_edges))


def _blocks(graph: Graph, block_edges: int, cut: bool) -> Iterator[Block]:
    starts = graph.rowptr.numpy()
    first = 0
    while first < graph.num_dst:
        begin = int(starts[first])
        after = max(_last(starts, begin + block_edges), first + 1)
        if starts[after] == begin:
            # The first rows have no edges: they go with the long row behind them.
            after += 1
        end = int(starts[after])
        # The block includes the rows without edges behind them.
        after = _last(starts, end)
        if cut and end - begin > block_edges:
            yield from _parts(_last(starts, begin), begin, end, block_edges)
        else:
            yield _block(graph, (first, after), (begin, end))
        first = after


def _last(starts: np.ndarray, edge: int) -> int:
    """The last row that begins no later than at ``edge``."""
    return int(np.searchsorted(starts, edge, side="right")) - 1


def _parts(row: int, begin: int, end: int, block_edges: int) -> Iterator[Block]:
    for start in range(begin, end, block_edges):
        stop = min(start + block_edges, end)
        graph = _graph(torch.zeros(stop - start, dtype=torch.int64, device="cpu"), 1)
        yield Block((row, row + 1), (start, stop), graph, (stop - start) / (end - begin))


def _block(graph: Graph, rows: tuple[int, int], edges: tuple[int, int]) -> Block:
    degrees = graph.rowptr[rows[0] : rows[1] + 1].diff()
    target = torch.repeat_interleave(degrees, output_size=edges[1] - edges[0])
    return Block(rows, edges, _graph(target, rows[1] - rows[0]), 1.0)


def _graph(target: Tensor, rows: int) -> Graph:
    edges = target.numel()
    return Graph.from_edge_index(torch.stack([torch.arange(edges, device="cpu"), target]), size=(edges, rows))
