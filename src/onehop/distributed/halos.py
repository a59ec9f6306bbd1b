"""The rows that the parts of a graph receive from each other: each is stored once, and read by both sides."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onehop.storage import write_all, writing


@dataclass(frozen=True, slots=True)
class Halos:
    """The halo nodes of all parts, in memory or memory-mapped.

    Attributes:
        nodes: [h], int32, by receiver, owner and number.
        bounds: [parts * parts + 1], int64: the nodes that part r receives from part o are
            ``nodes[bounds[r * parts + o]:bounds[r * parts + o + 1]]``.
        parts: Number of parts.
    """

    nodes: np.ndarray
    bounds: np.ndarray
    parts: int

    @classmethod
    def collected(cls, found: Iterable[tuple[np.ndarray, np.ndarray]], file: Path | None) -> "Halos":
        """The halos of parts that are found one after the other.

        Args:
            found: For each receiver: its halo, int32, by owner and number; and how many of them each part
                owns [parts].
            file: Where to keep the nodes; None means in memory.

        Raises:
            StorageError: The disk is full.
        """
        counts = []
        pieces = []
        with nullcontext() if file is None else _opened(file) as kept:
            for nodes, owned in found:
                counts.append(owned)
                if kept is None or file is None:
                    pieces.append(nodes)
                else:
                    with writing("folder", file, nodes.nbytes):
                        write_all(kept, np.ascontiguousarray(nodes).data)
        bounds = np.concatenate([[0], *counts]).cumsum()
        if file is None or bounds[-1] == 0:  # an empty file cannot be mapped
            nodes = np.concatenate([np.empty(0, np.int32), *pieces])
        else:
            nodes = np.memmap(file, np.int32, "r")
        return cls(nodes, bounds, len(counts))

    @property
    def rows(self) -> int:
        """Number of rows that all parts together receive."""
        return len(self.nodes)

    def received(self, rank: int) -> Tensor:
        """Return [h], int32: the halo of a part, by owner and number."""
        return self._read(rank * self.parts, (rank + 1) * self.parts)

    def received_counts(self, rank: int) -> Tensor:
        """Return [parts], int64: how many of them each part owns."""
        return torch.from_numpy(np.diff(self.bounds[rank * self.parts : (rank + 1) * self.parts + 1]))

    def sent(self, rank: int) -> list[Tensor]:
        """For each receiver: [.], int32, the nodes of a part that it receives, by number."""
        return [self._read(at, at + 1) for at in range(rank, self.parts**2, self.parts)]

    def _read(self, first: int, last: int) -> Tensor:
        return torch.from_numpy(np.array(self.nodes[self.bounds[first] : self.bounds[last]]))


def _opened(file: Path) -> FileIO:
    with writing("folder", file):
        return file.open("wb", buffering=0)
