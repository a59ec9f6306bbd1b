"""Predicted time of a plan, from the order of reads and the machine's speeds.

``time = passes * (edges * row + index) + writes + pieces``

- ``passes``: number of passes over the graph, width / column tile.
- ``row``: the time of reading one row's tile: the mean over caches and memory of
  :meth:`~onehop.tuner.speeds.Speeds.row_s`, each weighted by the share of reads that it serves
  (:meth:`~onehop.tuner.locality.Locality.miss_share` of that cache). The nearest cache's time includes the
  arithmetic.
- ``index``: 4 bytes an edge (2 with narrow columns) and 8 a row, at the speed of memory.
- ``writes``: the result, counted twice if it passes through the caches to memory, once if it bypasses them;
  and if it passes through them in another order, the jump to each row.
- ``pieces``: scheduling of items, idle threads at the end, and waking threads.

Not modelled: pages (TLB), the banks of memory, and the mapping of rows to sets of a cache. So the model ranks
plans; their times are measured.
"""

from dataclasses import dataclass

from onehop.graph import Graph
from onehop.graph.reorder import ordered_csr
from onehop.plans import CpuPlan
from onehop.tuner.locality import Locality
from onehop.tuner.speeds import ITEM_S, WAKE_S, Speeds

# Share of a cache for the rows of x; the rest holds indices, results and other data.
CACHE_SHARE = 0.75
_INDEX_BYTES, _POINTER_BYTES = {"int32": 4, "int16": 2}, 8
_LINE_BYTES = 64
_BFLOAT16_BYTES = 2
# No machine reads slower: speeds that were measured while the machine was busy are ignored.
_SLOWEST_BPS = 1e9


@dataclass(slots=True)
class CostModel:
    """Predictions for one graph, direction, width and dtype.

    Attributes:
        graph: The graph.
        transposed: Whether rows are sources.
        width: Columns.
        itemsize: Bytes of a number of x.
        speeds: Speeds of the machine.
        vector_bytes: Size of the kernels' registers.
        reads_two: Whether each edge reads a row of two tensors, as gradients of extrema and attention do.
    """

    graph: Graph
    transposed: bool
    width: int
    itemsize: int
    speeds: Speeds
    vector_bytes: int
    reads_two: bool
    localities: dict[str, Locality]

    @property
    def sources(self) -> int:
        """Rows of x."""
        return self.graph.num_dst if self.transposed else self.graph.num_src

    @property
    def rows(self) -> int:
        """Rows of the result."""
        return self.graph.num_src if self.transposed else self.graph.num_dst

    def locality(self, ordering: str) -> Locality:
        """The locality of an order, which is made first if needed."""
        if ordering not in self.localities:
            csr = ordered_csr(self.graph, ordering, self.transposed)
            self.localities[ordering] = Locality.of(csr.col, self.sources)
        return self.localities[ordering]

    def predict(self, plan: CpuPlan) -> float:
        """Seconds of a call."""
        speeds, edges = self.speeds, self.graph.num_edges
        threads = min(plan.threads, speeds.threads) if plan.threads else speeds.threads
        itemsize = _BFLOAT16_BYTES if plan.storage == "bfloat16" else self.itemsize
        tile = min(plan.column_tile or self.width, self.width)
        passes = -(-self.width // tile)
        # All threads together took the times measured; fewer take longer.
        slower = speeds.threads / threads
        read = edges * (1 + self.reads_two) * self._row_s(plan, tile * itemsize)
        index = (edges * _INDEX_BYTES[plan.index] + self.rows * _POINTER_BYTES) / speeds.write_bps
        time = passes * (read * slower + index) + self._write_s(plan)
        items = 1 + edges // plan.edges_per_item
        time += passes * items * ITEM_S / threads
        if threads > 1:
            # At the end, each thread but one waits for half an item, or there are too few items.
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
            # Threads share the last cache, at different places of the order; the other caches are private.
            streams = threads if level == len(speeds.levels) - 1 else 1
            misses = locality.miss_share(rows, streams)
            misses = min(missed, misses)
            total += (missed - misses) * speeds.row_s(level, read_bytes, plan.prefetch)
            missed = misses
        total += missed * speeds.row_s(len(speeds.levels), read_bytes, plan.prefetch)
        vectors = -(-tile_bytes // self.vector_bytes)
        blocks = -(-vectors // plan.register_block) if plan.register_block else 1
        # Every further block iterates over the edges once more, and finds them in the cache.
        return total + (blocks - 1) * speeds.row_s(0, _LINE_BYTES, plan.prefetch)

    def _sets_share(self, tile_bytes: int) -> float:
        """The share of a cache's sets to which the lines of a tile map.

        The set of a line follows from the last bits of its number. Rows of 2^k lines (times an odd number)
        all begin at the same k bits, so a tile of fewer lines leaves the other sets unused.
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
