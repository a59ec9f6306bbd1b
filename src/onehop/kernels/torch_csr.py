"""Sums through torch's sparse matrices (cuSPARSE on NVIDIA GPUs), with cached preparation.

The matrix is cached with the graph, for each direction, device and dtype. Its values are the products of the
most recent weights and scales, and are reused if these tensors are the same and unchanged.
"""

import warnings
import weakref
from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.calls import Aggregate, accumulator
from onehop.graph import Graph
from onehop.graph.streams import Streams

_MOST_NARROW = 2**31 - 1


def applies(call: Aggregate) -> bool:
    """Return whether torch's sparse matrices can compute a sum.

    A matrix has one number per edge, so separate weights for heads are not possible. It must have the dtype
    of x and of the result, so 16-bit features are possible only without weights and with a 16-bit result.
    """
    if call.x.dtype in (torch.float32, torch.float64):
        return call.weight is None or call.weight.dim() == 1
    return call.weight is None and not call.widen


def aggregate(graph: Graph, call: Aggregate) -> Tensor:
    """Compute the sum of a call, [rows, F], in the dtype of x; a mean's division must be in the scales."""
    x, transposed = call.x, call.transposed
    if graph.num_edges == 0 or x.size(1) == 0:
        return x.new_zeros(call.rows, x.size(1))
    parts = call.weight, call.src_scale, call.dst_scale
    key = ("torch csr", transposed, x.device, x.dtype)
    entry = graph.derived.get(key)
    if entry is None or not entry.is_of(parts):
        names = tuple(map(_named, parts))  # before the tensors are read
        layout = _layout(graph, transposed, x.device)
        values = _values(layout, *parts, x.dtype)
        matrix = _matrix(layout, values, call.rows, x.size(0))
        streams = Streams((layout.rowptr, layout.col, values))
        entry = _KeptMatrix(matrix, values.nbytes, names, streams)
        graph.keep(key, entry, x.device)
    entry.streams.meet()
    out: Tensor = torch.sparse.mm(entry.matrix, x)
    return out


_Name = tuple["weakref.ref[Tensor]", int] | None


@dataclass(frozen=True, slots=True)
class _KeptMatrix:
    """A matrix, and the identities of the tensors from which its values were computed."""

    matrix: Tensor
    nbytes: int
    names: tuple[_Name, ...]
    streams: Streams

    @property
    def device(self) -> torch.device:
        return self.matrix.device

    def is_of(self, parts: tuple[Tensor | None, ...]) -> bool:
        for name, part in zip(self.names, parts, strict=True):
            if name is None or part is None:
                if name is not None or part is not None:
                    return False
            elif name[0]() is not part or name[1] != part._version:
                return False
        return True


def _named(part: Tensor | None) -> _Name:
    return None if part is None else (weakref.ref(part), part._version)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The positions of a matrix's numbers on a device, for one direction."""

    rowptr: Tensor
    col: Tensor
    row: Tensor
    perm: Tensor | None
    streams: Streams

    @property
    def device(self) -> torch.device:
        return self.col.device

    @property
    def nbytes(self) -> int:
        perm = 0 if self.perm is None else self.perm.nbytes
        return self.rowptr.nbytes + self.col.nbytes + self.row.nbytes + perm


def _layout(graph: Graph, transposed: bool, device: torch.device) -> _Layout:
    key = ("torch csr layout", transposed, device)
    layout = graph.derived.get(key)
    if layout is None:
        csr = graph.on(device, transposed)
        index = torch.int32 if graph.num_edges <= _MOST_NARROW else torch.int64
        arrays = csr.rowptr.to(index), csr.col.to(index), csr.row_of_edges(), csr.perm
        layout = _Layout(*arrays, Streams(arrays))
        graph.keep(key, layout, device)
    layout.streams.meet()
    return layout


def _values(
    layout: _Layout, weight: Tensor | None, src: Tensor | None, dst: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Return the products of weights and both ends' scales, in the order of the layout, [E]."""
    if weight is None:
        values = torch.ones(layout.col.size(0), dtype=accumulator(dtype), device=layout.device)
    else:
        values = weight.clone() if layout.perm is None else weight.index_select(0, layout.perm)
    for scale, ends in ((src, layout.col), (dst, layout.row)):
        if scale is not None:
            values = values * scale.index_select(0, ends)
    return values.to(dtype)


def _matrix(layout: _Layout, values: Tensor, rows: int, cols: int) -> Tensor:
    with warnings.catch_warnings():
        # torch warns once in each process that sparse CSR matrices are in beta state.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        return torch.sparse_csr_tensor(
            layout.rowptr, layout.col, values, (rows, cols), check_invariants=False, device=values.device
        )
