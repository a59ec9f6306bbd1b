"""Division of a graph into blocks: consecutive destination rows with a bounded number of edges."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from onehop import thresholds
from onehop.graph import Graph


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of a graph, or a part of the edges of one row.

    Attributes:
        rows: The first row, and the row after the last.
        edges: The first edge in the graph's order, and the edge after the last.
        graph: The block's graph, from its edges to its rows.
        share: The share of its rows' edges that the block has: 1, except for a part of a row.
    """

    rows: tuple[int, int]
    edges: tuple[int, int]
    graph: Graph
    share: float

    @property
    def whole(self) -> bool:
        """Return whether the block has all edges of its rows."""
        return self.share == 1.0


@dataclass(frozen=True, slots=True)
class EdgeBlocks:
    """All blocks of a graph, in order.

    Attributes:
        each: The blocks.
        block_edges: The maximal number of edges of a block with several rows.
    """

    each: tuple[Block, ...]
    block_edges: int

    def __iter__(self) -> Iterator[Block]:
        """Return an iterator over the blocks."""
        return iter(self.each)


def blocks_of(graph: Graph, block_edges: int, cut: bool) -> EdgeBlocks:
    """Return the blocks of a graph with edges; they are made once and cached with the graph.

    Args:
        graph: The graph.
        block_edges: The maximal number of edges of a block with several rows.
        cut: Whether a row with more edges is divided into parts; otherwise it is one block.
    """
    key = ("message blocks", block_edges, cut)
    with graph.lock:
        blocks: EdgeBlocks | None = graph.derived.get(key)
        if blocks is None:
            blocks = graph.derived[key] = EdgeBlocks(tuple(_blocks(graph, block_edges, cut)), block_edges)
    return blocks


def edges_of_a_block(row_bytes: int) -> int:
    """Return the number of edges of a block if an edge has at most ``row_bytes`` bytes in one tensor."""
    bounds = thresholds.now
    return max(bounds.block_bytes // max(row_bytes, 1), bounds.block_edges)


def whole_block(graph: Graph) -> Block:
    """Return the whole graph as one block."""
    return _block(graph, (0, graph.num_dst), (0, graph.num_edges))


def _blocks(graph: Graph, block_edges: int, cut: bool) -> Iterator[Block]:
    starts = graph.rowptr.numpy()
    first = 0
    while first < graph.num_dst:
        begin = int(starts[first])
        after = max(_last(starts, begin + block_edges), first + 1)
        if starts[after] == begin:
            # The first rows have no edges: they join the long row after them.
            after += 1
        end = int(starts[after])
        # The block includes the following rows without edges.
        after = _last(starts, end)
        if cut and end - begin > block_edges:
            yield from _parts(_last(starts, begin), begin, end, block_edges)
        else:
            yield _block(graph, (first, after), (begin, end))
        first = after


def _last(starts: np.ndarray, edge: int) -> int:
    """Return the last row that begins at or before ``edge``."""
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
