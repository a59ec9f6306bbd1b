"""Measurement of this machine's memory bandwidth, which limits aggregation.

There are three measurements: reading a buffer from end to end, copying a buffer, and reading randomly chosen
rows of a matrix that does not fit into any cache. Aggregation cannot be faster than the last, at the same row
length, because it reads one row per edge.
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
# Numbers of rows by which the gather prefetches ahead; the best of them gives the roof.
PREFETCHES = (0, 4, 8, 16, 32)
# For a matrix this many times as large as the last-level cache, 15 of 16 rows are read from memory.
TIMES_CACHE = 16
# The native gather reads whole cache lines.
ROW_MULTIPLE = 16
# Rows that attention gathers per edge, forward and backward.
ATTENTION_ROWS = {"gat": (1, 2), "gatv2": (1, 3), "transformer": (2, 4)}
_FLOAT_BYTES = 4
_INDEX_BYTES = 4


@dataclass(frozen=True)
class Bandwidth:
    """Bytes moved, and the times that this took.

    Attributes:
        moved_bytes: Bytes that one call reads and writes.
        times: Times of the calls.
    """

    moved_bytes: int
    times: Times

    @property
    def gbps(self) -> float:
        """10^9 bytes per second, from the median time."""
        return self.moved_bytes / self.times.median_s / 1e9

    def to_dict(self) -> dict[str, Any]:
        """Return the bandwidth, ready for JSON."""
        return {"gbps": self.gbps, "moved_bytes": self.moved_bytes, **self.times.to_dict()}


@dataclass(frozen=True)
class GatherRoof:
    """The fastest gather of rows, for one row length.

    Attributes:
        row_floats: Number of float32 numbers in a row.
        prefetch: Number of rows prefetched ahead; the best of :data:`PREFETCHES`.
        bandwidth: Bandwidth of reading rows and row numbers.
    """

    row_floats: int
    prefetch: int
    bandwidth: Bandwidth

    def to_dict(self) -> dict[str, Any]:
        """Return the roof, ready for JSON."""
        return {"row_floats": self.row_floats, "prefetch": self.prefetch, **self.bandwidth.to_dict()}


def default_bytes() -> int:
    """Return a buffer size that no cache holds: 16 times the last-level cache, at least 256 MiB."""
    return max(TIMES_CACHE * last_level_cache_bytes(), 256 << 20)


def row_lengths(widths: Sequence[int]) -> Sequence[int]:
    """Check ``widths`` and return them.

    Raises:
        ArgumentError: A width is not a multiple of 16.
    """
    for width in widths:
        if width % ROW_MULTIPLE:
            raise ArgumentError(f"widths: expected multiples of {ROW_MULTIPLE}, got {width}.")
    return widths


def streaming(buffer_bytes: int, rounds: int) -> dict[str, Bandwidth]:
    """Measure the bandwidth of reading (``read``) and copying (``copy``, read plus written) a buffer."""
    # The buffer holds ones, because pages that were never written would all be the system's one zero page.
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
    """Measure the gather roof by row length (in floats), over rows in random order, each read about once."""
    generator = torch.Generator().manual_seed(0)
    roofs = []
    for floats in row_floats:
        count = max(matrix_bytes // (floats * _FLOAT_BYTES), 1)
        x = torch.ones(count, floats, device="cpu")
        index = torch.randint(count, (count,), generator=generator, dtype=torch.int32, device="cpu")
        roofs.append(gather_roof(x, index, rounds))
    return roofs


def gather_roof(x: Tensor, index: Tensor, rounds: int) -> GatherRoof:
    """Measure the fastest gather of the rows ``index`` of ``x`` over all prefetch distances.

    Args:
        x: [N, F], float32, contiguous.
        index: [E], int32, each in [0, N).
        rounds: Number of measurements of each prefetch distance.
    """
    times = interleave({str(p): gather_call(x, index, p) for p in PREFETCHES}, rounds)
    best = min(times, key=lambda name: times[name].median_s)
    return GatherRoof(x.size(1), int(best), Bandwidth(gathered_bytes(index.numel(), x.size(1)), times[best]))


def gather_call(x: Tensor, index: Tensor, prefetch: int) -> Callable[[], float]:
    """Return a call that reads the rows ``index`` of ``x``, adds them up in registers and writes nothing."""
    threads, gather_rows = native.threads(), native.extension.gather_rows

    def call() -> float:
        return float(gather_rows(x.data_ptr(), x.size(1), index.data_ptr(), index.numel(), prefetch, threads))

    return call


def gathered_bytes(edges: int, width: int) -> int:
    """Return the bytes that a gather reads: the rows, and their numbers."""
    return edges * (width * _FLOAT_BYTES + _INDEX_BYTES)


def aggregated_bytes(edges: int, num_dst: int, width: int) -> int:
    """Return the bytes that an aggregation must move: the bytes of a gather, and the rows that it writes."""
    return gathered_bytes(edges, width) + num_dst * width * _FLOAT_BYTES


def attention_bytes(kind: str, edges: int, num_nodes: int, heads: int, head_width: int) -> tuple[int, int]:
    """Return the bytes that attention must move, forward and backward, if caches hold no source row.

    ``kind`` is a key of :data:`ATTENTION_ROWS`.
    """
    row, per_head = heads * head_width * _FLOAT_BYTES, heads * _FLOAT_BYTES
    forward, backward = ATTENTION_ROWS[kind]
    scores = per_head if kind == "gat" else 0
    return (
        edges * (_INDEX_BYTES + forward * row + scores) + num_nodes * (2 * row + per_head),
        edges * (2 * _INDEX_BYTES + backward * row + 2 * per_head + scores) + 8 * num_nodes * row,
    )


def percent_of_roof(edges: int, num_dst: int, width: int, seconds: float, roof: Bandwidth) -> float:
    """Return an aggregation's bandwidth in percent of the gather's bandwidth."""
    return 100 * aggregated_bytes(edges, num_dst, width) / seconds / 1e9 / roof.gbps
