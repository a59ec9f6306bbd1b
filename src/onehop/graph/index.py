"""An index as a graph without a source column: entry e is an edge from row e to row ``index[e]``.

Scattering by an index is an aggregation over this graph, and gathering is an aggregation over its transpose.
Gathering needs only the index. At the first scatter, the entries are sorted by row, unless the index ascends.
"""

from typing import Any

import torch
from torch import Tensor

from onehop import native
from onehop.errors import ArgumentError, IndexRangeError, integer
from onehop.graph import build


class IndexRows:
    """The checked copy of an index, [E], int32; the native graph is made from it on first use.

    ``rows`` is the number of rows that the index refers to; ``cols`` and ``edges`` are E.
    """

    __slots__ = ("_ascends", "cols", "edges", "numbers", "rows")

    def __init__(self, numbers: Tensor, rows: int) -> None:
        self.numbers, self.rows = numbers, rows
        self.cols = self.edges = numbers.numel()
        self._ascends: bool | None = None

    @property
    def ascends(self) -> bool:
        """True if no entry is smaller than the entry before."""
        if self._ascends is None:
            self._ascends = bool((self.numbers[1:] >= self.numbers[:-1]).all())
        return self._ascends

    def native(self) -> Any:
        """Return the native graph, whose edges are in the order of their rows."""
        address = self.numbers.data_ptr()
        return native.extension.csr_from_index(address, self.edges, self.rows, native.threads())


def from_index(index: Tensor, rows: int) -> Any:
    """Return the rows of an index, or a graph on its device; see :meth:`onehop.Graph.from_index`."""
    if not isinstance(index, Tensor) or index.dim() != 1 or index.dtype not in (torch.int32, torch.int64):
        kind = type(index).__name__
        if isinstance(index, Tensor):
            kind = f"{index.dtype} of shape {list(index.shape)}"
        raise ArgumentError(f"index: expected a one-dimensional int32 or int64 tensor, got {kind}.")
    count = index.numel()
    if type(rows) is not int or rows < 0:
        rows = integer("num_rows", rows)
    if max(count, rows) > build.MOST_NODES:
        raise ArgumentError(
            f"index: {count} entries and {rows} rows are more than the {build.MOST_NODES} that onehop "
            "numbers in 32 bits."
        )
    if not index.is_cpu or type(index) is not Tensor:
        entries = torch.arange(count, dtype=index.dtype, device=index.device)
        return build.from_edge_index(torch.stack([entries, index]), None, (count, rows))
    numbers = torch.empty(count, dtype=torch.int32, device="cpu")
    given_as = native.address(index), index.stride(0), count, index.dtype == torch.int64
    wrong = native.extension.narrow_index(*given_as, rows, numbers.data_ptr(), native.threads())
    if wrong >= 0:
        raise IndexRangeError(f"index: entry {wrong} is {int(index[wrong])}, which is not in [0, {rows}).")
    return IndexRows(numbers, rows)
