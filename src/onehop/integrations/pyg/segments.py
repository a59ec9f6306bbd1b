"""Rows of a sorted index, such as a batch vector, or between bounds: which belong together, remembered."""

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.identity import remembered

_SAMPLES = 1000


def segments_of(index: Tensor, num_rows: int | None) -> Graph | None:
    """The graph of a sorted index, whose edge e goes from row e to ``index[e]``: found, or made.

    Args:
        index: [E], int64, on the CPU, not made in inference mode; E is at least 1.
        num_rows: Number of rows of the result; None means one more than the last number in the index.

    Returns:
        None if the index does not ascend, or leaves the range; that is remembered too.
    """
    found = remembered(index, key=("segments", num_rows), make=lambda: _segments(index, num_rows))
    return found if isinstance(found, Graph) else None


def _segments(index: Tensor, num_rows: int | None) -> Graph | bool:
    # A few entries tell most others from those that ascend.
    sample = index[:: max(index.size(0) // _SAMPLES, 1)]
    if not (_ascends(sample) and _ascends(index)):
        return False
    last = int(index[-1])
    rows = last + 1 if num_rows is None else num_rows
    if int(index[0]) < 0 or last >= rows:
        return False
    # It reads the index as if its entries lay side by side.
    rowptr = torch._convert_indices_from_coo_to_csr(index.contiguous(), rows)
    return _from_bounds(rowptr, index.size(0)) or False


def segments_between(ptr: Tensor, rows: int) -> Graph | None:
    """The graph of segments of rows, whose edge e goes from row e to the segment that has it: found, or made.

    Args:
        ptr: [segments + 1], int64, on the CPU, not made in inference mode: where each segment begins, and the
            last one ends; at least one segment.
        rows: E, the number of rows; at least 1.

    Returns:
        None if ``ptr`` does not ascend from 0 to E.
    """
    return remembered(ptr, key=("segments between", rows), make=lambda: _from_bounds(ptr.clone(), rows))


def _from_bounds(ptr: Tensor, rows: int) -> Graph | None:
    try:
        return Graph.from_csr(ptr, torch.arange(rows, device="cpu"), rows)
    except ArgumentError:
        return None


def _ascends(index: Tensor) -> bool:
    return bool((index[1:] >= index[:-1]).all())
