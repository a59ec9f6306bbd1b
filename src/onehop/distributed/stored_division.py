"""The division of a graph that stays on disk: its edges are read once and distributed to a file."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onehop.distributed.division import Division
from onehop.distributed.fingerprint import fingerprint
from onehop.distributed.numbering import grouped
from onehop.graph.stored import StoredGraph
from onehop.storage import write_all, writing


class StoredDivision(Division):
    """A division of a stored graph; holds one block of edges, or one part, and some numbers a node.

    Args:
        graph: With as many destinations as sources.
        owner: [N], int32, the part of every node.
        parts: Number of parts.
        scratch: An empty folder, with room for 4 bytes an edge and 4 a row that is sent.

    Raises:
        FileFormatError: The graph's files contradict themselves.
        StorageError: The disk is full.
    """

    def __init__(self, graph: StoredGraph, owner: Tensor, parts: int, scratch: Path) -> None:
        self._rowptr = graph.rowptr
        self._row_bounds, self._rows = (each.numpy() for each in grouped(owner, parts))
        per_row = np.diff(self._rowptr)[self._rows]
        self._edge_bounds = np.concatenate([[0], per_row.cumsum()])[self._row_bounds]
        self._sources = scratch / "sources"
        identity = self._deal(graph, owner.numpy(), parts)
        super().__init__(owner, parts, graph.num_edges, identity, scratch / "halos")

    def _deal(self, graph: StoredGraph, owner: np.ndarray, parts: int) -> int:
        """Writes the sources of each part's edges to its region of a file; returns the graph's identity."""
        # The narrowest type, which NumPy sorts in one pass.
        owner_of_row = owner.astype(np.min_scalar_type(parts))
        identity = fingerprint(torch.from_numpy(owner))
        ends = self._edge_bounds[:-1].copy()
        with writing("folder", self._sources):
            # Unbuffered: a buffer would fail once more when the file is closed.
            opened = self._sources.open("wb", buffering=0)
        with opened as file:
            # The caller does not choose the block boundaries, so equal graphs have equal blocks.
            for first, degrees, col in graph.blocks():
                identity = fingerprint(degrees, col, torch.tensor(identity, device="cpu"))
                of_edge = np.repeat(owner_of_row[first : first + len(degrees)], degrees.numpy())
                dealt = col.numpy()[np.argsort(of_edge, kind="stable")]
                counts = np.bincount(of_edge, minlength=parts)
                with writing("folder", self._sources, dealt.nbytes):
                    for rank, sources in enumerate(np.split(dealt, counts.cumsum()[:-1])):
                        file.seek(int(ends[rank]) * dealt.itemsize)
                        write_all(file, sources.data)
                ends += counts
        return identity

    def edges(self, rank: int) -> tuple[Tensor, Tensor, Tensor]:
        """The edges of a part; see :meth:`Division.edges`."""
        begin, end = self._edge_bounds[rank : rank + 2]
        source = np.fromfile(self._sources, np.int32, end - begin, offset=4 * int(begin))
        rows = self._rows[self._row_bounds[rank] : self._row_bounds[rank + 1]]
        first = np.asarray(self._rowptr[rows])
        counts = self._rowptr[rows + 1] - first
        before = counts.cumsum() - counts
        numbers = np.repeat(first - before, counts) + np.arange(end - begin)
        target = np.repeat(rows, counts)
        return torch.from_numpy(source), torch.from_numpy(target), torch.from_numpy(numbers)
