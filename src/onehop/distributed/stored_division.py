"""The division of a graph that stays on disk: its edges are read once and distributed to files."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onehop.distributed.division import Division
from onehop.distributed.fingerprint import fingerprint
from onehop.graph.stored import StoredGraph

# Arrays of every edge, in a file each.
_FIELDS = {"source": np.int32, "target": np.int32, "number": np.int64}


class StoredDivision(Division):
    """A division of a stored graph; holds one block of edges, or one part, and some numbers a node.

    Args:
        graph: With as many destinations as sources.
        owner: [N], int32, the part of every node.
        parts: Number of parts.
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
            nodes = remote.unique().long()
            by_owner = owner[nodes].sort(stable=True).indices
            np.save(scratch / f"halo-{rank}.npy", nodes[by_owner].numpy())

    def _deal(self, graph: StoredGraph) -> None:
        with ExitStack() as opened:
            files = {
                name: [opened.enter_context(self._file(rank, name).open("wb")) for rank in range(self.parts)]
                for name in _FIELDS
            }
            number = 0
            # The caller does not choose the block boundaries, so equal graphs have equal blocks.
            for first, degrees, col in graph.blocks():
                rows = np.arange(first, first + len(degrees), dtype=np.int32)
                block = {
                    "source": col.numpy(),
                    "target": np.repeat(rows, degrees.numpy()),
                    "number": np.arange(number, number + len(col)),
                }
                number += len(col)
                self.identity = fingerprint(degrees, col, torch.tensor(self.identity, device="cpu"))
                owner = np.repeat(self.owner[first : first + len(degrees)].numpy(), degrees.numpy())
                for rank in range(self.parts):
                    mine = owner == rank
                    for name, values in block.items():
                        values[mine].tofile(files[name][rank])

    def edges(self, rank: int) -> tuple[Tensor, Tensor, Tensor]:
        """The edges of a part; see :meth:`Division.edges`."""
        source, target, number = (
            torch.from_numpy(np.fromfile(self._file(rank, name), kind)) for name, kind in _FIELDS.items()
        )
        return source, target, number

    def halo(self, rank: int) -> Tensor:
        """The halo of a part; see :meth:`Division.halo`."""
        return torch.from_numpy(np.load(self._scratch / f"halo-{rank}.npy"))

    def _file(self, rank: int, field: str) -> Path:
        return self._scratch / f"{field}-{rank}"
