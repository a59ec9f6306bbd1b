"""Graphs from lists of edges, compressed rows and SciPy matrices, with all checks of the input."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from onehop import config, native, thresholds
from onehop.errors import ArgumentError, IndexRangeError, integer
from onehop.graph import placed
from onehop.graph.placed import PlacedCsr

# Node numbers are stored in 32 bits.
MOST_NODES = 2**31 - 1


def from_edge_index(edge_index: Tensor, num_nodes: int | None, size: tuple[int, int] | None) -> Any:
    """Builds a graph, native or on a device; see :meth:`onehop.Graph.from_edge_index`."""
    _check_edge_index(edge_index)
    on_device = edge_index.device.type in placed.MADE_ON and edge_index.size(1) <= placed.MOST_EDGES
    if not on_device or type(edge_index) is not Tensor:
        edge_index = _in_memory("edge_index", edge_index)
    if size is not None and num_nodes is not None:
        raise ArgumentError(
            "size, num_nodes: give one of them; size=(num_src, num_dst) is for bipartite graphs."
        )
    if size is not None:
        if not isinstance(size, tuple | list) or len(size) != 2:
            raise ArgumentError(f"size: expected (num_src, num_dst), got {size!r}.")
        num_src, num_dst = (_checked_count("size", each) for each in size)
    elif num_nodes is not None:
        num_src = num_dst = _checked_count("num_nodes", num_nodes)
    else:
        largest = int(edge_index.max()) + 1 if edge_index.numel() else 0
        num_src = num_dst = _checked_count("edge_index", largest)
    if edge_index.device.type in placed.MADE_ON:
        _check_there(edge_index, num_src, num_dst)
        wide = edge_index.size(1) > thresholds.now.wide_edges
        return PlacedCsr.from_edge_index(edge_index, num_src, num_dst, wide)
    source, target = edge_index[0], edge_index[1]
    return from_coo(target, source, num_dst, num_src)


def on_host(there: PlacedCsr) -> Any:
    """Return a native graph with the edges of a graph on a device; the edges are copied."""
    source, target = there.edge_index().cpu()
    return from_coo(target, source, there.rows, there.cols)


def with_loops(edge_index: Tensor, num_nodes: int, forwards: bool) -> Any:
    """Builds a native graph with a self loop at every node; see :mod:`onehop.graph.self_loops`."""
    _check_edge_index(edge_index)
    nodes = _checked_count("num_nodes", num_nodes)
    edge_index = _in_memory("edge_index", edge_index)
    source, target = edge_index if forwards else edge_index.flip(0)
    return from_coo(target, source, nodes, nodes, loops=nodes)


def from_csr(rowptr: Tensor, col: Tensor, num_src: int | None) -> Any:
    """Builds a native graph; see :meth:`onehop.Graph.from_csr`."""
    for name, tensor in (("rowptr", rowptr), ("col", col)):
        if not isinstance(tensor, Tensor):
            raise ArgumentError(f"{name}: expected a tensor, got {type(tensor).__name__}.")
        dense_vector = tensor.layout == torch.strided and tensor.dim() == 1
        of_integers = tensor.dtype in (torch.int32, torch.int64)
        if not dense_vector or not of_integers or tensor.device.type != "cpu":
            raise ArgumentError(
                f"{name}: expected a one-dimensional int32 or int64 CPU tensor, got {_describe(tensor)}."
            )
    rowptr, col = _in_memory("rowptr", rowptr), _in_memory("col", col)
    if rowptr.numel() == 0:
        raise ArgumentError("rowptr: expected at least one entry (a graph without destinations has [0]).")
    # This is a copy, because native code relies on the checks here. It has 64 bits, in which differences of
    # damaged entries cannot overflow.
    pointers = torch.empty(rowptr.shape, dtype=torch.int64, device="cpu").copy_(rowptr)
    counts = pointers.diff()
    if int(pointers[0]) != 0 or int(pointers[-1]) != col.numel() or bool((counts < 0).any()):
        raise ArgumentError(
            f"rowptr: expected entries that ascend from 0 to the {col.numel()} entries of col, "
            f"got {int(pointers[0])} to {int(pointers[-1])}."
        )
    num_dst = rowptr.numel() - 1
    num_src = _checked_count("num_src", num_dst if num_src is None else num_src)
    _checked_count("rowptr", num_dst)
    csr, wrong, edge = native.extension.csr_from_rows(
        native.address(pointers),
        native.address(col),
        col.stride(0),
        col.dtype == torch.int64,
        num_dst,
        num_src,
        native.threads(),
    )
    if wrong:
        raise _outside("source", int(col[edge]), edge, num_src)
    return csr


def from_scipy(matrix: Any) -> Any:
    """Builds a native graph; see :meth:`onehop.Graph.from_scipy`."""
    import scipy.sparse

    if not scipy.sparse.issparse(matrix) or matrix.ndim != 2:
        raise ArgumentError(
            f"matrix: expected a two-dimensional SciPy sparse matrix, got {type(matrix).__name__}."
        )
    num_dst, num_src = matrix.shape
    num_src, num_dst = (_checked_count("matrix", each) for each in (num_src, num_dst))
    if matrix.format in ("csc", "csr"):
        pointer = np.array(matrix.indptr, dtype=np.int64)  # a copy, so that checked values are used
        counts = np.diff(pointer)
        # In SciPy, the arrays may be longer than the pointers say, and SciPy does not check them again after
        # writes.
        if pointer[0] != 0 or (counts < 0).any() or pointer[-1] > len(matrix.indices):
            raise ArgumentError(
                "matrix: indptr must ascend from 0 to the number of indices; rebuild the matrix."
            )
        outer = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        inner = np.asarray(matrix.indices[: pointer[-1]], dtype=np.int64)
        row, col = (outer, inner) if matrix.format == "csr" else (inner, outer)
    else:
        coo = matrix.tocoo()
        row, col = np.asarray(coo.row, dtype=np.int64), np.asarray(coo.col, dtype=np.int64)
        if row.shape != col.shape:
            raise ArgumentError(
                f"matrix: expected a row and a column for each entry, got {len(row)} and {len(col)}; rebuild "
                "the matrix."
            )
    return from_coo(torch.from_numpy(row), torch.from_numpy(col), num_dst, num_src)


def from_coo(row: Tensor, col: Tensor, rows: int, cols: int, loops: int = 0) -> Any:
    """Builds a native graph from rows and columns of edges, [E] each, followed by ``loops`` self loops."""
    csr, wrong, edge = native.extension.csr_from_coo(
        row=native.address(row),
        col=native.address(col),
        row_stride=row.stride(0),
        col_stride=col.stride(0),
        edges=row.numel(),
        wide_index=row.dtype == torch.int64,
        rows=rows,
        cols=cols,
        wide_perm=row.numel() + loops > thresholds.now.wide_edges,
        threads=native.threads(),
        loops=loops,
    )
    if wrong:
        kind, tensor, count = ("destination", row, rows) if wrong == 1 else ("source", col, cols)
        raise _outside(kind, int(tensor[edge]), edge, count)
    return csr


def _check_there(edge_index: Tensor, num_src: int, num_dst: int) -> None:
    """Checks node numbers on the device where they are.

    The host does not wait for a GPU, unless ``ONEHOP_CHECK=full``: a wrong number fails a device assertion
    before anything reads it, as in torch's own indexing.
    """
    ends = (("destination", edge_index[1], num_dst), ("source", edge_index[0], num_src))
    for kind, numbers, count in ends:
        wrong = (numbers < 0) | (numbers >= count)
        if not (edge_index.is_cpu or config.full_check()):
            torch._assert_async(~wrong.any(), f"edge_index: a {kind} is not in [0, {count})")
        elif bool(wrong.any()):
            edge = int(wrong.to(torch.uint8).argmax())
            raise _outside(kind, int(numbers[edge]), edge, count)


def _outside(kind: str, number: int, edge: int, count: int) -> IndexRangeError:
    return IndexRangeError(
        f"edge_index: {kind} {number} of edge {edge} is not in [0, {count}), the graph's "
        f"{kind}s. Check the edges, or give the right num_nodes or size."
    )


def _in_memory(name: str, tensor: Tensor) -> Tensor:
    """Return a plain CPU tensor of the same numbers; wrapper subclasses (PyG's EdgeIndex) have no address."""
    if type(tensor) is Tensor:
        return tensor.cpu()
    plain = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu").copy_(tensor)
    if type(plain) is not Tensor:
        raise ArgumentError(f"{name}: expected a tensor with data, got a {type(tensor).__name__}.")
    return plain


def _check_edge_index(edge_index: Tensor) -> None:
    if not isinstance(edge_index, Tensor):
        raise ArgumentError(f"edge_index: expected a tensor [2, E], got {type(edge_index).__name__}.")
    if edge_index.layout != torch.strided or edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ArgumentError(
            f"edge_index: expected a dense tensor of shape [2, E], got {_describe(edge_index)}."
        )
    if edge_index.dtype not in (torch.int32, torch.int64):
        raise ArgumentError(
            f"edge_index: expected int32 or int64, got {edge_index.dtype}; convert with .long()."
        )
    if edge_index.is_meta:
        raise ArgumentError("edge_index: expected a tensor with data, got one on meta.")


def _checked_count(name: str, value: Any) -> int:
    """Return a number of nodes as a plain int; integers of NumPy and tensors are accepted."""
    # A fast path, because layers make graphs and pass plain integers.
    count = value if type(value) is int else integer(name, value)
    if count < 0:
        raise ArgumentError(f"{name}: expected a number of nodes, zero or more, got {value!r}.")
    if count > MOST_NODES:
        raise ArgumentError(
            f"{name}: {count} nodes are more than the {MOST_NODES} that onehop numbers in 32 bits."
        )
    return count


def _describe(tensor: Tensor) -> str:
    return f"{tensor.dtype} of shape {list(tensor.shape)} on {tensor.device}"
