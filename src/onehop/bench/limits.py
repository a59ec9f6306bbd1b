"""Measurement of this machine's memory bandwidth, the limit of aggregation.

Three figures: reading a buffer from end to end, copying one, and reading randomly chosen rows of a matrix
that fits no cache. Aggregation cannot be faster than the last, at the same row length: it reads one row an
edge.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop import native
from onehop.bench.stamp import last_level_cache_bytes
from onehop.bench.timing import Times, interleave
from onehop.errors import ArgumentError

ROW_FLOATS = (16, 32, 64, 128, 256, 512)
# How many rows ahead the gather prefetches; the best of them is the roof.
PREFETCHES = (0, 4, 8, 16, 32)
# A matrix this many times the last-level cache is read from memory, all but 1/16 of the rows.
TIMES_CACHE = 16
# The native gather reads whole lines of the cache.
ROW_MULTIPLE = 16
# Rows that attention gathers for an edge, forward and backward.
ATTENTION_ROWS = {"gat": (1, 2), "gatv2": (1, 3), "transformer": (2, 4)}
_FLOAT_BYTES = 4
_INDEX_BYTES = 4


@dataclass(frozen=True)
class Bandwidth:
    """Bytes moved in a time.

    Attributes:
        moved_bytes: What one call reads and writes.
        times: Of the calls.
    """

    moved_bytes: int
    times: Times

    @property
    def gbps(self) -> float:
        """10^9 bytes a second, from the median."""
        return self.moved_bytes / self.times.median_s / 1e9

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"gbps": self.gbps, "moved_bytes": self.moved_bytes, **self.times.to_dict()}


@dataclass(frozen=True)
class GatherRoof:
    """The fastest gather of rows, for one row length.

    Attributes:
        row_floats: float32 numbers in a row.
        prefetch: Rows prefetched ahead; the best of :data:`PREFETCHES`.
        bandwidth: Rows and row numbers read.
    """

    row_floats: int
    prefetch: int
    bandwidth: Bandwidth

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"row_floats": self.row_floats, "prefetch": self.prefetch, **self.bandwidth.to_dict()}


def default_bytes() -> int:
    """Size of a buffer that no cache holds: sixteen times the last-level cache, at least 256 MiB."""
    return max(TIMES_CACHE * last_level_cache_bytes(), 256 << 20)


def row_lengths(widths: Sequence[int]) -> Sequence[int]:
    """``widths``, checked.

    Raises:
        ArgumentError: One is no multiple of 16.
    """
    for width in widths:
        if width % ROW_MULTIPLE:
            raise ArgumentError(f"widths: expected multiples of {ROW_MULTIPLE}, got {width}.")
    return widths


def streaming(buffer_bytes: int, rounds: int) -> dict[str, Bandwidth]:
    """Bandwidth of reading (``read``) and of copying (``copy``, read plus written bytes) a buffer."""
    # Ones, because pages that were never written would all be the system's one page of zeros.
    source = torch.ones(max(buffer_bytes // _FLOAT_BYTES, 1), device="cpu")
    target = torch.zeros_like(source)
    size = source.numel() * _FLOAT_BYTES
    times = interleave(
        {
            "read": lambda: native.extension.stream_read(source.data_ptr(), size, native.threads()),
            "copy": lambda: target.copy_(source),
        },
        rounds,
    )
    return {"read": Bandwidth(size, times["read"]), "copy": Bandwidth(2 * size, times["copy"])}


def random_gather(row_floats: Sequence[int], matrix_bytes: int, rounds: int) -> list[GatherRoof]:
    """The gather roof by row length in float32 numbers, over rows in random order, each read about once."""
    generator = torch.Generator().manual_seed(0)
    roofs = []
    for floats in row_floats:
        count = max(matrix_bytes // (floats * _FLOAT_BYTES), 1)
        x = torch.ones(count, floats, device="cpu")
        index = torch.randint(count, (count,), generator=generator, dtype=torch.int32, device="cpu")
        roofs.append(gather_roof(x, index, rounds))
    return roofs


def gather_roof(x: Tensor, index: Tensor, rounds: int) -> GatherRoof:
    """The fastest gather of the rows ``index`` of ``x``: the best of all prefetch distances.

    Args:
        x: [N, F], float32, contiguous.
        index: [E], int32, each in [0, N).
        rounds: Measurements of each prefetch distance.
    """
    times = interleave({str(p): gather_call(x, index, p) for p in PREFETCHES}, rounds)
    best = min(times, key=lambda name: times[name].median_s)
    return GatherRoof(x.size(1), int(best), Bandwidth(gathered_bytes(index.numel(), x.size(1)), times[best]))


def gather_call(x: Tensor, index: Tensor, prefetch: int) -> Callable[[], float]:
    """A call that reads the rows ``index`` of ``x``, adds them up in registers, and writes nothing."""
    threads, gather_rows = native.threads(), native.extension.gather_rows

    def call() -> float:
        return float(gather_rows(x.data_ptr(), x.size(1), index.data_ptr(), index.numel(), prefetch, threads))

    return call


def gathered_bytes(edges: int, width: int) -> int:
    """Bytes that a gather reads: the rows, and their numbers."""
    return edges * (width * _FLOAT_BYTES + _INDEX_BYTES)


def aggregated_bytes(edges: int, num_dst: int, width: int) -> int:
    """Bytes that an aggregation must move: those that a gather reads, and the rows it writes."""
    return gathered_bytes(edges, width) + num_dst * width * _FLOAT_BYTES


def attention_bytes(kind: str, edges: int, num_nodes: int, heads: int, head_width: int) -> tuple[int, int]:
    """Bytes that attention must move, forward and backward, if no source row is found in a cache.

    The kind is a key of :data:`ATTENTION_ROWS`.
    """
    row, per_head = heads * head_width * _FLOAT_BYTES, heads * _FLOAT_BYTES
    forward, backward = ATTENTION_ROWS[kind]
    scores = per_head if kind == "gat" else 0
    return (
        edges * (_INDEX_BYTES + forward * row + scores) + num_nodes * (2 * row + per_head),
        edges * (2 * _INDEX_BYTES + backward * row + 2 * per_head + scores) + 8 * num_nodes * row,
    )


def percent_of_roof(edges: int, num_dst: int, width: int, seconds: float, roof: Bandwidth) -> float:
    """The bandwidth that an aggregation reached, in percent of the gather's."""
    return 100 * aggregated_bytes(edges, num_dst, width) / seconds / 1e9 / roof.gbps
