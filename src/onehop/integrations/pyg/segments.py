"""Rows of a sorted index, such as a batch vector, or between bounds: which belong together, remembered."""

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.identity import CACHE, Mark

_SAMPLES = 1000


def segments_of(index: Tensor, num_rows: int | None) -> Graph | None:
    """The graph of a sorted index, whose edge e goes from row e to ``index[e]``: found, or made.

    Args:
        index: [E], int64, on the CPU, not made in inference mode; E is at least 1.
        num_rows: How many rows there are to be; None means up to the last in the index.

    Returns:
        None if the index does not ascend, or leaves the range.
    """
    # An index that does not ascend is asked once.
    if CACHE.find(index, "no segments") is not None:
        return None
    if num_rows is None:
        num_rows = int(index[-1]) + 1
    rest = ("segments", num_rows)
    found: Graph | None = CACHE.find(index, rest)
    if found is not None:
        return found
    # A few entries tell most others from those that ascend.
    sample = index[:: max(index.size(0) // _SAMPLES, 1)]
    if not (_ascends(sample) and _ascends(index)):
        CACHE.store(index, "no segments", Mark())
        return None
    if int(index[0]) < 0 or int(index[-1]) >= num_rows:
        return None
    # Tensors made in inference mode could not be used outside it, where they will be found again.
    with torch.inference_mode(False), torch.no_grad():
        # It reads the index as if its entries lay side by side.
        rowptr = torch._convert_indices_from_coo_to_csr(index.contiguous(), num_rows)
        try:
            made = Graph.from_csr(rowptr, torch.arange(index.size(0), device="cpu"), index.size(0))
        except ArgumentError:
            return None
    CACHE.store(index, rest, made)
    return made


def segments_between(ptr: Tensor, rows: int) -> Graph | None:
    """The graph of segments of rows, whose edge e goes from row e to the segment that has it: found, or made.

    Args:
        ptr: [segments + 1], int64, on the CPU, not made in inference mode: where each segment begins, and the
            last one ends; one segment at least.
        rows: E, how many rows there are; at least 1.

    Returns:
        None if ``ptr`` does not ascend from 0 to E.
    """
    found: Graph | None = CACHE.find(ptr, "segments")
    if found is not None and found.num_edges == rows:
        return found
    with torch.inference_mode(False), torch.no_grad():
        try:
            made = Graph.from_csr(ptr.clone(), torch.arange(rows, device="cpu"), rows)
        except ArgumentError:
            return None
    CACHE.store(ptr, "segments", made)
    return made


def _ascends(index: Tensor) -> bool:
    return bool((index[1:] >= index[:-1]).all())
