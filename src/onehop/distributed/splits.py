"""The edges of a part in two graphs, of which the first needs nothing from other processes.

Both are made on first use, and kept: sums take one of them, all other operators the other.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.distributed.loops import counts_before, looped_rowptr, merged
from onehop.distributed.part import Part
from onehop.graph import Graph


@dataclass(frozen=True, slots=True)
class EdgeSplit:
    """Two graphs that have all edges of a part between them.

    Attributes:
        first: Owned rows as sources.
        second: The rest.
    """

    first: Graph
    second: Graph

    @property
    def nbytes(self) -> int:
        """Bytes of both, with what was derived from them."""
        return self.first.nbytes + self.second.nbytes


class Splits:
    """The splits of a part, which graphs with and without implied self loops share.

    Args:
        part: The part.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        self._by_source: EdgeSplit | None = None
        self._by_row: dict[bool, EdgeSplit] = {}

    @property
    def by_source(self) -> EdgeSplit:
        """Edges from owned rows, and edges from halo rows, into all rows; implied loops are left out."""
        if self._by_source is None:
            part, rows, halo = self._part, self._part.num_sources, len(self._part.halo_nodes)
            source, rowptr, near = part.source.cpu(), part.rowptr.cpu(), self.is_near.cpu()
            near_rowptr = counts_before(near)[rowptr]
            self._by_source = EdgeSplit(
                Graph.from_csr(near_rowptr, source[near], rows),
                Graph.from_csr(rowptr - near_rowptr, source[~near] - rows, halo),
            )
        return self._by_source

    def by_row(self, loops: bool) -> EdgeSplit:
        """Rows whose sources are all owned, and the other rows, which have all sources.

        The edges of both graphs, one after the other, are those of the part.

        Args:
            loops: True adds a loop as the last edge of every row.
        """
        if loops not in self._by_row:
            part, rows, halo = self._part, self._part.num_sources, len(self._part.halo_nodes)
            source, rowptr, inner = part.source.cpu(), part.rowptr.cpu(), part.inner_rows
            if loops:
                own = torch.arange(rows, dtype=torch.int32, device="cpu")
                rowptr, source = looped_rowptr(rowptr), merged(rowptr, source, own)
            cut = int(rowptr[inner])
            self._by_row[loops] = EdgeSplit(
                Graph.from_csr(rowptr[: inner + 1], source[:cut], rows),
                Graph.from_csr(rowptr[inner:] - cut, source[cut:], rows + halo),
            )
        return self._by_row[loops]

    @property
    def is_near(self) -> Tensor:
        """Return [e], bool: edges from owned rows. A new tensor."""
        return self._part.source < self._part.num_sources

    @property
    def nbytes(self) -> int:
        """Bytes of the splits that were made."""
        made = [*self._by_row.values(), *([] if self._by_source is None else [self._by_source])]
        return sum(split.nbytes for split in made)
