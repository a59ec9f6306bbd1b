"""Rows of a matrix by their numbers: copying them from it, and adding to them."""

import torch
from torch import Tensor

from onehop import native
from onehop.errors import IndexRangeError
from onehop.native import DTYPE_CODES, address, extension
from onehop.processor import last_level_cache_bytes

# Number of rows between the prefetched row and the row being read.
_PREFETCH = 16
# Number of rows of a mapped file that are requested together, and copied while the next ones are being read.
_REQUESTED = 512


def take_rows(matrix: Tensor, index: Tensor) -> Tensor:
    """Return ``matrix[index]`` for a CPU tensor of any dtype, without a gradient.

    Args:
        matrix: [N, ...].
        index: [n], int32 or int64, contiguous.

    Returns:
        [n, ...].

    Raises:
        IndexRangeError: A number is not in [0, N).
    """
    out = torch.empty((index.numel(), *matrix.shape[1:]), dtype=matrix.dtype, device="cpu")
    copy_rows(matrix, index, out)
    return out


def copy_rows(matrix: Tensor, index: Tensor, out: Tensor, blocks: int = 1) -> None:
    """Compute ``out[:] = matrix[index]``; see :func:`take_rows`.

    Each number is read and checked once, when it is used, so that another thread may write to the index.

    Args:
        matrix: [blocks * N, ...].
        index: [n], int32 or int64, contiguous.
        out: [blocks * n, ...], of the same dtype, contiguous.
        blocks: The number of consecutive blocks of rows; the index applies to each block. More than one block
            requires a contiguous matrix.

    Raises:
        IndexRangeError: A number is not in [0, N).
    """
    if not out.numel():
        return
    if _dense(matrix):
        _copy(_call(matrix, index, out, blocks))
    else:
        torch.index_select(matrix, 0, index, out=out)


def copy_mapped_rows(matrix: Tensor, index: Tensor, out: Tensor) -> None:
    """Compute ``out[:] = matrix[index]`` for a matrix in a mapped file.

    Rows that are not in memory are requested before they are copied, many at a time, because a plain copy
    would wait for the disk at every page.

    Args:
        matrix: [N, ...].
        index: [n], int32 or int64, contiguous.
        out: [n, ...], of the same dtype, contiguous.

    Raises:
        IndexRangeError: A number is not in [0, N).
    """
    if not out.numel() or not _dense(matrix):
        copy_rows(matrix, index, out)
        return
    count = index.numel()
    call = _call(matrix, index, out)
    extension.request_rows(call, 0, min(_REQUESTED, count))
    for begin in range(0, count, _REQUESTED):
        end = min(begin + _REQUESTED, count)
        extension.request_rows(call, end, min(_REQUESTED, count - end))
        _copy(_call(matrix, index[begin:end], out[begin:end]))


def add_rows(
    matrix: Tensor, index: Tensor, rows: Tensor, sources: Tensor | None = None, weights: Tensor | None = None
) -> None:
    """Compute ``matrix[index[i]] += weights[i] * rows[sources[i]]`` for every i, in order.

    The result does not depend on the number of threads.

    Args:
        matrix: [N, ...], float32 or float64, with contiguous rows.
        index: [n], int32 or int64, contiguous; read and checked as in :func:`copy_rows`.
        rows: [M, ...], of the same dtype.
        sources: [n], like the index; None means that entry i adds row i.
        weights: [n], of the same dtype as ``matrix``, contiguous; None means 1.

    Raises:
        IndexRangeError: A number is out of range. Some rows may have been added.
    """
    rows = rows.contiguous()
    if rows.numel() and index.numel():
        call = _call(matrix, index, rows)
        call.dtype, call.sources_rows = DTYPE_CODES[matrix.dtype], rows.size(0)
        call.sources, call.weights = (0 if each is None else address(each) for each in (sources, weights))
        if not extension.add_rows(call):
            raise IndexRangeError("index, sources: expected numbers of rows.")


def _dense(matrix: Tensor) -> bool:
    """Return whether rows are contiguous, with any stride between them, and their numbers are in memory."""
    if matrix.is_neg() or matrix.is_conj() or matrix._is_zerotensor():
        return False
    return matrix.is_contiguous() or (matrix.size(0) > 0 and matrix[0].is_contiguous())


def _copy(call: extension.RowsCall) -> None:
    if not extension.copy_rows(call):
        raise IndexRangeError(f"index: expected numbers of rows, in [0, {call.matrix_rows}).")


def _call(matrix: Tensor, index: Tensor, rows: Tensor, blocks: int = 1) -> extension.RowsCall:
    call = extension.RowsCall()
    call.threads, call.prefetch = native.threads(), _PREFETCH
    # A copy that does not fit the caches should not evict their contents.
    call.nontemporal = rows.nbytes > last_level_cache_bytes() > 0
    call.index, call.count, call.wide_index = address(index), index.numel(), index.dtype == torch.int64
    call.row_bytes = rows.nbytes // rows.size(0)
    call.matrix, call.stride = address(matrix), matrix.stride(0) * matrix.element_size()
    call.blocks, call.matrix_rows = blocks, matrix.size(0) // blocks
    call.rows = address(rows)
    return call
