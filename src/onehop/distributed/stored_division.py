"""The division of a graph that stays on disk: its edges pass by once, and are dealt out to files."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onehop.distributed.division import Division
from onehop.distributed.fingerprint import fingerprint
from onehop.graph.stored import StoredGraph

# Of an edge on disk: its number, and its ends.
_EDGE = np.dtype([("number", np.int64), ("source", np.int32), ("target", np.int32)])


class StoredDivision(Division):
    """In memory are one block of edges, then one part, and a few numbers for every node.

    Args:
        graph: With as many destinations as sources.
        owner: [N], int32, the part of every node.
        parts: How many parts there are.
        scratch: An empty folder, with room for 16 bytes an edge.

    Raises:
        FileFormatError: The graph's files contradict themselves.
        OSError: The disk is full.
    """

    def __init__(self, graph: StoredGraph, owner: Tensor, parts: int, scratch: Path) -> None:
        super().__init__(owner, parts, graph.num_edges)
        self._scratch = scratch
        self._deal(graph)
        for rank in range(parts):
            source = self.edges(rank)[0]
            remote = source[owner[source] != rank]
            self.cut_edges += len(remote)
            nodes = remote.unique()
            by_owner = owner[nodes].sort(stable=True).indices
            np.save(scratch / f"halo-{rank}.npy", nodes[by_owner].numpy())

    def _deal(self, graph: StoredGraph) -> None:
        files = [self._file(rank).open("wb") for rank in range(self.parts)]
        try:
            number = 0
            # What the blocks are cut by is no choice of the caller's, so equal graphs have equal blocks.
            for first, degrees, col in graph.blocks():
                block = np.empty(len(col), dtype=_EDGE)
                block["number"] = np.arange(number, number + len(col))
                block["source"] = col.numpy()
                rows = np.arange(first, first + len(degrees), dtype=np.int32)
                block["target"] = np.repeat(rows, degrees.numpy())
                number += len(col)
                self.identity = fingerprint(degrees, col, torch.tensor(self.identity))
                owner = np.repeat(self.owner[first : first + len(degrees)].numpy(), degrees.numpy())
                for rank, file in enumerate(files):
                    block[owner == rank].tofile(file)
        finally:
            for file in files:
                file.close()

    def edges(self, rank: int) -> tuple[Tensor, Tensor, Tensor]:
        """See :meth:`Division.edges`."""
        block = np.fromfile(self._file(rank), dtype=_EDGE)
        source, target, number = (
            torch.from_numpy(block[name].astype(np.int64)) for name in ("source", "target", "number")
        )
        return source, target, number

    def halo(self, rank: int) -> Tensor:
        """See :meth:`Division.halo`."""
        return torch.from_numpy(np.load(self._scratch / f"halo-{rank}.npy"))

    def _file(self, rank: int) -> Path:
        return self._scratch / f"edges-{rank}"
