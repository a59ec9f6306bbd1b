"""Time that this machine takes to read a row, by the row's location, length and prefetch distance.

The times are measured when first needed, in a fraction of a second, with sums over graphs whose sources are
drawn at random from buffers. The buffers are sized by the caches that the system reports. So the times
include the arithmetic.
"""

import bisect
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from onehop import processor
from onehop.backends.cpu import CpuBackend
from onehop.calls import Aggregate, on
from onehop.graph import Graph
from onehop.plans import CpuPlan
from onehop.plans.default import default_plan
from onehop.tuner.calls import duration

ROW_BYTES = (64, 256, 1024)
PREFETCHES = (0, 4, 16, 64)
# Rows of a measurement for each thread; enough that neither a call's overhead nor its results matter.
_EDGES_PER_THREAD, _DEGREE = 1 << 16, 512
_REPEATS = 4
_FLOAT_BYTES = 4
# Of the random rows of a buffer with this many times the last cache's size, three in four come from memory.
_TIMES_CACHE, _MOST_BYTES = 4, 1 << 30
# The size of the buffer for memory if the system reports no caches.
_UNKNOWN_BYTES = 256 << 20
# Cost of scheduling an item, and of waking a thread; upper ends of the range of OpenMP runtimes.
ITEM_S = 0.3e-6
WAKE_S = 5e-6


@dataclass(frozen=True, slots=True)
class Speeds:
    """Times of one machine with a given number of threads.

    Attributes:
        levels: Bytes of each cache, the nearest first; memory is the level after the last cache.
        threads: Number of threads that read at the same time.
        row_seconds: [levels + 1][ROW_BYTES][PREFETCHES]: seconds for each row, all threads together.
        write_bps: Bytes per second of writes to memory, whether they bypass the caches or not.
    """

    levels: tuple[int, ...]
    threads: int
    row_seconds: tuple[tuple[tuple[float, ...], ...], ...]
    write_bps: float

    def row_s(self, level: int, row_bytes: float, prefetch: int) -> float:
        """Return the seconds to read a row, interpolated between measured lengths and prefetch distances.

        Rows shorter than the shortest measured length take as long as that, because at least one cache line
        is read.
        """
        by_length = [_at(PREFETCHES, times, prefetch) for times in self.row_seconds[level]]
        return _at(ROW_BYTES, by_length, row_bytes)


@lru_cache(maxsize=16)
def speeds(threads: int, isa: str) -> Speeds:
    """Return the speeds of this machine with this many threads and this instruction set, measured once."""
    caches = tuple(processor.caches().values())
    largest = min(_TIMES_CACHE * caches[-1], _MOST_BYTES) if caches else _UNKNOWN_BYTES
    buffer = torch.zeros(largest // _FLOAT_BYTES, device="cpu")
    generator = torch.Generator().manual_seed(0)
    sizes = [*(cache // 2 for cache in caches), largest]
    rows = _believable([_row_times(buffer, size, threads, generator) for size in sizes])
    write_s = min(duration(lambda: buffer.fill_(1.0)) for _ in range(_REPEATS))
    return Speeds(caches, threads, rows, buffer.nbytes / write_s)


def _row_times(
    buffer: torch.Tensor, size: int, threads: int, generator: torch.Generator
) -> tuple[tuple[float, ...], ...]:
    """Return [ROW_BYTES][PREFETCHES]: seconds for a random row in the buffer's first ``size`` bytes.

    Every measurement reads different rows, because rows that are read again would come from a cache, even
    with a large buffer.
    """
    table = []
    edges = _EDGES_PER_THREAD * threads
    target = torch.arange(edges, device="cpu") // _DEGREE
    rows = edges // _DEGREE
    for row_bytes in ROW_BYTES:
        sources, width = max(1, size // row_bytes), row_bytes // _FLOAT_BYTES
        x = buffer[: sources * width].view(sources, width)
        x.sum()  # data smaller than a cache are cached from here on
        default = dataclasses.replace(
            default_plan(sources, rows, edges, width, _FLOAT_BYTES),
            column_tile=0,
            threads=threads,
        )
        rounds = []
        for _ in range(_REPEATS):
            graphs = [
                Graph.from_edge_index(
                    torch.stack(
                        [torch.randint(sources, (edges,), generator=generator, device="cpu"), target]
                    ),
                    size=(sources, rows),
                )
                for _ in PREFETCHES
            ]
            rounds.append(
                [
                    _sum(graph, x, dataclasses.replace(default, prefetch=prefetch))
                    for graph, prefetch in zip(graphs, PREFETCHES, strict=True)
                ]
            )
        table.append(tuple(min(times) / edges for times in zip(*rounds, strict=True)))
    return tuple(table)


def _believable(levels: list[tuple[tuple[float, ...], ...]]) -> tuple[tuple[tuple[float, ...], ...], ...]:
    """Return the times without those that other programs disturbed.

    In the result, nearer levels are not slower than farther ones, and shorter rows are not slower than longer
    ones.
    """
    times = torch.tensor(levels, dtype=torch.float64, device="cpu")
    for axis in (0, 1):
        times = times.flip(axis).cummin(axis).values.flip(axis)
    return tuple(tuple(tuple(row) for row in level) for level in times.tolist())


def _sum(graph: Graph, x: torch.Tensor, plan: CpuPlan) -> float:
    """Return the seconds of a sum."""
    backend = CpuBackend(plan)
    call = on(graph, Aggregate, x=x)
    return duration(lambda: backend.run(graph, call))


def _at(places: Sequence[int], values: Sequence[float], place: float) -> float:
    """Return the interpolated value at a place: linear between places; before the first, the first value."""
    after = min(max(bisect.bisect_left(places, place), 1), len(places) - 1)
    low, high = places[after - 1], places[after]
    share = max(0.0, (place - low) / (high - low))
    return values[after - 1] + (values[after] - values[after - 1]) * share
