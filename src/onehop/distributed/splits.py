"""The edges of a part in two graphs; the first graph needs nothing from other processes.

There are two ways to split the edges: sums use one of them, all other operators use the other. Each is made
on first use and kept.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from onehop.distributed.loops import counts_before, looped_rowptr, merged
from onehop.distributed.part import Part
from onehop.graph import Graph


class EdgeSplit(NamedTuple):
    """Two graphs that together have all edges of a part; the first has only owned rows as sources."""

    first: Graph
    second: Graph


class Splits:
    """The splits of a part, which graphs with and without implied self loops share."""

    def __init__(self, part: Part) -> None:
        self._part = part
        # Keys: by source, and by row with or without loops.
        self._splits: dict[str | bool, EdgeSplit] = {}

    @property
    def by_source(self) -> EdgeSplit:
        """Split into edges from owned rows and edges from halo rows, into all rows, without implied loops."""
        if "source" not in self._splits:
            part, rows, halo = self._part, self._part.num_sources, len(self._part.halo_nodes)
            source, rowptr, near = part.source.cpu(), part.rowptr.cpu(), self.is_near.cpu()
            near_rowptr = counts_before(near)[rowptr]
            self._splits["source"] = EdgeSplit(
                Graph.from_csr(near_rowptr, source[near], rows),
                Graph.from_csr(rowptr - near_rowptr, source[~near] - rows, halo),
            )
        return self._splits["source"]

    def by_row(self, loops: bool) -> EdgeSplit:
        """Split into rows whose sources are all owned, and the other rows, which have all sources.

        The edges of both graphs, one after the other, are the part's edges; with ``loops``, the last edge of
        every row is a loop.
        """
        if loops not in self._splits:
            part, rows, halo = self._part, self._part.num_sources, len(self._part.halo_nodes)
            source, rowptr, inner = part.source.cpu(), part.rowptr.cpu(), part.inner_rows
            if loops:
                loop_sources = torch.arange(rows, dtype=torch.int32, device="cpu")
                rowptr, source = looped_rowptr(rowptr), merged(rowptr, source, loop_sources)
            cut = int(rowptr[inner])
            self._splits[loops] = EdgeSplit(
                Graph.from_csr(rowptr[: inner + 1], source[:cut], rows),
                Graph.from_csr(rowptr[inner:] - cut, source[cut:], rows + halo),
            )
        return self._splits[loops]

    @property
    def is_near(self) -> Tensor:
        """Return [e], bool: whether each edge starts at an owned row. A new tensor."""
        return self._part.source < self._part.num_sources

    @property
    def nbytes(self) -> int:
        """Bytes of the splits that were made, including what was derived from them."""
        return sum(graph.nbytes for split in self._splits.values() for graph in split)
