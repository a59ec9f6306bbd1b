"""Predicts a plan's time from the order of reads and the machine's speeds.

``time = passes * (edges * row + index) + writes + pieces``

- ``passes``: number of passes over the graph, width / column tile.
- ``row``: the time of reading one row's tile. It is the mean over caches and memory of
  :meth:`~onehop.tuner.speeds.Speeds.row_s`, each weighted by the share of reads that it serves
  (:meth:`~onehop.tuner.cost_model.Locality.miss_share` of that cache). The nearest cache's time includes the
  arithmetic.
- ``index``: 4 bytes per edge and 8 per row, at the speed of memory.
- ``writes``: the result, counted twice if it passes through the caches to memory, once if it bypasses them;
  if it passes through them in another order, also the jump to each row.
- ``pieces``: scheduling of items, idle threads at the end, and waking threads.

The model ignores pages (TLB), the banks of memory, and the mapping of rows to sets of a cache. So it only
ranks plans; their times are measured.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.graph.reorder import ordered_csr
from onehop.plans import CpuPlan
from onehop.tuner.speeds import ITEM_S, WAKE_S, Speeds

# Approximate number of reads that are sampled from a larger number.
SAMPLED_READS = 1 << 19
_WINDOWS = 96
# Knuth's multiplicative hash.
_HASH, _HASH_BITS = 2654435761, 16


@dataclass(frozen=True, slots=True)
class Locality:
    """Share of reads that find a row in a cache of a given size, from sampled reuse times and footprints.

    The kernels read the rows of x in the order of the graph's columns. For each read of a sampled row, the
    reuse time is the number of reads since the last read of the same row. The reuse times give the footprint,
    which is the mean number of distinct rows in a window of a given length. The footprint gives the share of
    reads that miss: reads whose reuse time is longer than the window that fills the cache. Theory: X. Xiang,
    C. Ding, H. Luo, B. Bao, "HOTL: a higher order theory of locality", ASPLOS 2013. Rows are sampled by a
    hash of their number, so that all reads of a sampled row are seen: C. Waldspurger et al., "Efficient MRC
    construction with SHARDS", FAST 2015.

    Attributes:
        reads: Number of reads.
        rows: Number of distinct rows that are read, estimated from the sample.
        windows: Ascending window lengths, in reads.
        footprints: Mean number of distinct rows in a window, for each length.
        longer: Share of the reads whose reuse time exceeds each length, including first reads.
    """

    reads: int
    rows: float
    windows: np.ndarray
    footprints: np.ndarray
    longer: np.ndarray

    @classmethod
    def of(cls, col: Tensor, num_src: int) -> "Locality":
        """Return the locality of reading rows in the order of ``col`` ([E], int32)."""
        reads = len(col)
        kept_share, position, node = _sample(col, num_src, reads)
        if len(node) == 0:
            one = np.ones(1)
            return cls(reads, 0.0, one, 0 * one, 0 * one)
        order = torch.sort(node, stable=True).indices
        nodes, when = node[order].numpy(), position[order].numpy().astype(np.float64)
        same = nodes[1:] == nodes[:-1]
        gaps = when[1:] - when[:-1]
        reuse = gaps[same]
        first = when[np.concatenate([[True], ~same])] + 1
        last = reads - when[np.concatenate([~same, [True]])]
        windows = np.unique(np.geomspace(1, max(reads, 2), _WINDOWS).astype(np.int64)).astype(np.float64)
        absent = sum(_excess(times, windows) for times in (reuse, first, last))
        footprints = (len(first) - absent / (reads - windows + 1)) / kept_share
        beyond = len(reuse) - np.searchsorted(np.sort(reuse), windows, side="right")
        # Relative to the expected sample size: reads of hubs that the sample missed would have been hits
        # (SHARDS-adj).
        longer = np.minimum((beyond + len(first)) / (kept_share * reads), 1.0)
        return cls(reads, len(first) / kept_share, windows, np.maximum.accumulate(footprints), longer)

    def miss_share(self, cache_rows: float, streams: int = 1) -> float:
        """Return the share of reads that miss an LRU cache with room for a given number of rows.

        Args:
            cache_rows: Number of rows that the cache can hold.
            streams: Number of threads that fill the cache together, each at another position of the same
                order.
        """
        if self.rows == 0 or cache_rows >= self.rows:
            return 0.0
        if cache_rows < 1:
            return 1.0
        window = float(np.interp(cache_rows, self.footprints, self.windows)) / streams
        return float(np.interp(math.log(max(window, 1.0)), np.log(self.windows), self.longer))


def _sample(col: Tensor, num_src: int, reads: int) -> tuple[float, Tensor, Tensor]:
    """Return the share of sampled rows, and the positions and rows of their reads."""
    limit = 1 << _HASH_BITS
    threshold = limit if reads <= SAMPLED_READS else max(1, limit * SAMPLED_READS // reads)
    if threshold == limit:
        return 1.0, torch.arange(reads, device="cpu"), col
    numbers = torch.arange(num_src, dtype=torch.int64, device="cpu")
    chosen = ((numbers * _HASH) >> 8) % limit < threshold
    position = chosen[col].nonzero().squeeze(1)
    return threshold / limit, position, col[position]


def _excess(times: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """Return, for each window, the sum of the amounts by which times exceed it."""
    ordered = np.sort(times)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    shorter = np.searchsorted(ordered, windows, side="right")
    return np.asarray((sums[-1] - sums[shorter]) - windows * (len(ordered) - shorter))


# Share of a cache for the rows of x; the rest holds indices, results and other data.
CACHE_SHARE = 0.75
_INDEX_BYTES, _POINTER_BYTES = 4, 8
_LINE_BYTES = 64
_BFLOAT16_BYTES = 2
# No machine reads more slowly; lower speeds were measured while the machine was busy, and are ignored.
_SLOWEST_BPS = 1e9


@dataclass(slots=True)
class CostModel:
    """Predictions for one graph, direction, width and dtype.

    Attributes:
        graph: The graph.
        transposed: Whether rows are sources.
        width: Number of columns.
        itemsize: Bytes of a number of x.
        speeds: Speeds of the machine.
        vector_bytes: Size of the kernels' vector registers in bytes.
        reads_two: Whether each edge reads a row from two tensors, as in gradients of extrema and attention.
    """

    graph: Graph
    transposed: bool
    width: int
    itemsize: int
    speeds: Speeds
    vector_bytes: int
    reads_two: bool
    _localities: dict[str, Locality] = field(default_factory=dict, init=False)

    @property
    def sources(self) -> int:
        """Number of rows of x."""
        return self.graph.num_dst if self.transposed else self.graph.num_src

    @property
    def rows(self) -> int:
        """Number of rows of the result."""
        return self.graph.num_src if self.transposed else self.graph.num_dst

    def locality(self, ordering: str) -> Locality:
        """Return the locality of an order; the order is computed first if needed."""
        if ordering not in self._localities:
            csr = ordered_csr(self.graph, ordering, self.transposed)
            self._localities[ordering] = Locality.of(csr.col, self.sources)
        return self._localities[ordering]

    def predict(self, plan: CpuPlan) -> float:
        """Return the predicted seconds of a call."""
        speeds, edges = self.speeds, self.graph.num_edges
        threads = min(plan.threads, speeds.threads) if plan.threads else speeds.threads
        itemsize = _BFLOAT16_BYTES if plan.storage == "bfloat16" else self.itemsize
        tile = min(plan.column_tile or self.width, self.width)
        passes = -(-self.width // tile)
        # The times were measured with all threads together; fewer threads take longer.
        slower = speeds.threads / threads
        read = edges * (1 + self.reads_two) * self._row_s(plan, tile * itemsize)
        index = (edges * _INDEX_BYTES + self.rows * _POINTER_BYTES) / speeds.write_bps
        time = passes * (read * slower + index) + self._write_s(plan)
        items = 1 + edges // plan.edges_per_item
        time += passes * items * ITEM_S / threads
        if threads > 1:
            # At the end, each thread except one waits for half an item on average, or there are too few
            # items.
            time += time / max(items, threads) * (threads - 1) / 2 + passes * WAKE_S
        if plan.storage == "bfloat16":
            time += self.sources * self.width * (self.itemsize + itemsize) / speeds.write_bps
        return min(time, edges * self.width * itemsize / _SLOWEST_BPS + WAKE_S)

    def _row_s(self, plan: CpuPlan, tile_bytes: int) -> float:
        speeds, locality = self.speeds, self.locality(plan.ordering)
        threads = min(plan.threads, speeds.threads) if plan.threads else speeds.threads
        read_bytes = max(tile_bytes, _LINE_BYTES)
        total, missed = 0.0, 1.0
        share = CACHE_SHARE * self._sets_share(tile_bytes)
        for level, size in enumerate(speeds.levels):
            rows = share * size / read_bytes
            # Threads share the last cache, at different positions of the order; the other caches are private.
            streams = threads if level == len(speeds.levels) - 1 else 1
            misses = locality.miss_share(rows, streams)
            misses = min(missed, misses)
            total += (missed - misses) * speeds.row_s(level, read_bytes, plan.prefetch)
            missed = misses
        total += missed * speeds.row_s(len(speeds.levels), read_bytes, plan.prefetch)
        vectors = -(-tile_bytes // self.vector_bytes)
        blocks = -(-vectors // plan.register_block) if plan.register_block else 1
        # Every further block iterates over the edges again, and finds them in the cache.
        return total + (blocks - 1) * speeds.row_s(0, _LINE_BYTES, plan.prefetch)

    def _sets_share(self, tile_bytes: int) -> float:
        """Return the share of a cache's sets to which the lines of a tile map.

        The set of a line follows from the last bits of its number. Rows of 2^k lines (times an odd number)
        all begin with the same last k bits, so a tile of fewer lines leaves the other sets unused.
        """
        row_bytes = self.width * self.itemsize
        if row_bytes % _LINE_BYTES:
            return 1.0
        lines = row_bytes // _LINE_BYTES
        return min(1.0, -(-tile_bytes // _LINE_BYTES) / (lines & -lines))

    def _write_s(self, plan: CpuPlan) -> float:
        out_bytes = self.rows * self.width * self.itemsize
        past = plan.nontemporal and self.width * self.itemsize % _LINE_BYTES == 0
        fits = bool(self.speeds.levels) and out_bytes <= CACHE_SHARE * self.speeds.levels[-1]
        times = 0.5 if fits and not past else 1.0 if past else 2.0
        jumps = 0.0
        if plan.ordering != "none" and not fits and not past:
            row_bytes = self.width * self.itemsize
            jumps = self.rows * self.speeds.row_s(len(self.speeds.levels), row_bytes, plan.prefetch)
        return times * out_bytes / self.speeds.write_bps + jumps
