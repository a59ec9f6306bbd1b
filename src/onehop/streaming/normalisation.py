"""GCN's normalisation of graphs on disk: a self loop at each node, and factors computed from degrees."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onehop import native
from onehop.errors import ArgumentError
from onehop.graph import folder as folders
from onehop.graph.graph import StoredGraph
from onehop.graph.pieces import PieceReader
from onehop.ops.streaming.matrix_file import WIDE, MatrixFile

SCALED = ("gcn", "symmetric")
"""The normalisations that scale both ends of an edge."""
LOOPED = ("gcn", "loops")
"""The normalisations that give each node exactly one loop; "loops" is only for layers with attention."""

# Number of rows whose degrees are in memory at a time, in addition to the scales.
_ROWS = 1 << 16
# Share of the budget while loops are added; nothing else is in memory at that time.
_LOOPS = 0.5
# Bytes of this share per edge of a piece: edges as read, edges kept, positions of loops, and the merged
# edges.
_EDGE_BYTES = 64


def scale_of(graph: StoredGraph, features: MatrixFile, normalise: str) -> Tensor | None:
    """Return [N]: each node's in-degree to the power of -1/2, and 0 for degree 0; or None."""
    if normalise not in SCALED:
        return None
    scale = torch.empty(graph.num_dst, dtype=WIDE[features.wide], device="cpu")
    for row, pointers in graph.row_blocks(_ROWS, graph.num_edges + 1):
        degrees = torch.from_numpy(np.diff(pointers)).to(scale.dtype)
        scale[row : row + len(degrees)] = degrees.pow(-0.5).masked_fill_(degrees == 0, 0)
    native.let_go()
    return scale


def looped(graph: StoredGraph, folder: Path, budget: int) -> StoredGraph:
    """Return the graph of :func:`with_self_loops` in a folder; create it within a budget if needed."""
    if folder.exists():
        return StoredGraph.open(folder)
    return with_self_loops(graph, folder, int(budget * _LOOPS))


def with_self_loops(graph: StoredGraph, folder: Path, memory: int) -> StoredGraph:
    """Return the graph with one loop at each node, after the other edges of its row, which is PyG's order.

    Existing loops are replaced, as in PyG's ``add_remaining_self_loops`` without weights. The new folder must
    not exist; a piece of edges takes ``memory`` bytes.

    Raises:
        ArgumentError: The graph's sources and destinations are different nodes.
        FileFormatError: A file of the graph is truncated.
        StorageError: The disk is full.
    """
    if graph.num_src != graph.num_dst:
        raise ArgumentError(
            f"graph: loops need as many sources as destinations, got {graph.num_src} and {graph.num_dst}."
        )
    most = max(memory // _EDGE_BYTES, 1)
    offset = graph.col_file.stat().st_size - 4 * graph.num_edges
    with (
        folders.appearing(folder) as beside,
        folders.Rows(beside) as rows,
        PieceReader(graph.col_file) as reader,
    ):
        rows.pointers.put(np.zeros(1))
        for row, pointers in graph.row_blocks(most, most):
            degrees = np.zeros(len(pointers) - 1, dtype=np.int64)
            # Process the block in one go, except for a row that is too long.
            for begin in range(int(pointers[0]), max(int(pointers[-1]), int(pointers[0]) + 1), most):
                end = min(begin + most, int(pointers[-1]))
                sources = np.empty(end - begin, dtype=np.int32)
                reader.read(offset + 4 * begin, sources.nbytes, sources.view(np.uint8), 0)
                counts = np.diff(pointers.clip(begin, end))
                targets = np.repeat(np.arange(row, row + len(degrees), dtype=np.int32), counts)
                stay = sources != targets
                if not stay.all():
                    counts = np.bincount(targets[stay] - row, minlength=len(degrees))
                    sources = sources[stay]
                degrees += counts
                if end < pointers[-1]:
                    rows.sources.put(sources)
                    continue
                loops = np.cumsum(counts) + np.arange(len(counts))
                whole = np.empty(len(sources) + len(counts), dtype=np.int32)
                others = np.ones(len(whole), dtype=bool)
                others[loops] = False
                whole[others], whole[loops] = sources, np.arange(row, row + len(counts))
                rows.sources.put(whole)
            before = rows.sources.count - int(degrees.sum()) - len(degrees)
            rows.pointers.put(before + np.cumsum(degrees + 1))
        rows.finish(graph.num_src, graph.num_dst)
    native.let_go()
    return StoredGraph.open(folder)
