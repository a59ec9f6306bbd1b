"""Re-tiling in the first layer: each window's targets are listed while the window before it runs."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from onehop.machines.ndp.config import NdpConfig
from onehop.machines.ndp.counts import RankWorkload, Scanned
from onehop.machines.ndp.mapping import Integers
from onehop.machines.ndp.memory_times import BurstTime, MemoryTimes
from onehop.machines.ndp.traffic import NODE_BYTES, sums

Reals = NDArray[np.float64]

# Bytes in which a unit records the number of nodes of a row, which a row-by-row merge needs. An assumption.
_ROW_NOTE_BYTES = 1


@dataclass(frozen=True, slots=True)
class ListingTimes:
    """Durations in ns of listing each window's targets: W windows, R ranks, C channels.

    Attributes:
        scan: [W, R]: a rank reads its adjacency in order, and tests and sets flags.
        lists: [W, C]: the host reads the lists, with one poll per batch.
        merge: [W]: the host merges the lists.
        tiles: [W]: the host writes the tile list, on every channel at once; 0 if nothing is listed.
    """

    scan: Reals
    lists: Reals
    merge: Reals
    tiles: Reals


@dataclass(frozen=True, slots=True)
class RetilingCost:
    """The cost of one re-tiling of a graph.

    Attributes:
        time_ns: Time that re-tiling adds to its layer, compared with a layer that reads stored tile lists.
        batch: Number of nodes that are listed before lists are merged.
        scan_ns: Time of reading the adjacency and its row pointers in order, in the slowest rank.
        flags_ns: Time of testing and setting flags, in the slowest rank.
        store_ns: Time of writing the tile list to DRAM, in each rank.
        modules_ns: Time of all three together, in the slowest rank.
        merge_ns: Time of the host's merging.
        host_ns: Time of merging, and of the busiest channel's reading of lists and writing of tile lists.
        hidden_share: Share of the modules' and the host's time that overlaps with the layer's other work.
        bytes: Bytes moved, by kind.
        bursts_read: DRAM bursts read, over all ranks.
        bursts_written: DRAM bursts written, over all ranks.
        activations: Row activations, over all ranks.
    """

    time_ns: float
    batch: int
    scan_ns: float
    flags_ns: float
    store_ns: float
    modules_ns: float
    merge_ns: float
    host_ns: float
    hidden_share: float
    bytes: dict[str, int]
    bursts_read: float
    bursts_written: float
    activations: float


@dataclass(frozen=True, slots=True)
class Retiling:
    """The lists that must be made for each window before its adjacency can be read; batches are listed whole.

    Attributes:
        config: The machine.
        memory: The DRAM's times.
        batch: Number of nodes in a batch.
        by_rows: Whether lists are merged row by row.
        nodes_of_rank: [R]: sources of the graph that are assigned to each rank.
        scanned: What the units read: rows, [W]; edges and nodes, [W, R].
        batches: [W]: number of batches that are merged.
    """

    config: NdpConfig
    memory: MemoryTimes
    batch: int
    by_rows: bool
    nodes_of_rank: Integers
    scanned: Scanned
    batches: Integers

    @classmethod
    def of(
        cls, config: NdpConfig, memory: MemoryTimes, workload: RankWorkload, window: int, batch: int
    ) -> "Retiling":
        """Return the re-tiling of a graph in a re-tiled order, with window and batch sizes in targets."""
        nodes = workload.num_dst
        last = np.minimum(np.arange(window, nodes + window, window), nodes)
        batches = np.concatenate([[0], -(-last // batch)])

        def by_window(of_batches: Integers) -> Integers:
            before = np.zeros((1, *of_batches.shape[1:]), dtype=np.int64)
            sums: Integers = np.concatenate([before, of_batches.cumsum(axis=0)])[batches]
            return sums[1:] - sums[:-1]

        scanned = Scanned(*map(by_window, workload.scanned(batch)))
        by_rows = workload.retile == "rows"
        return cls(config, memory, batch, by_rows, workload.nodes_of_rank, scanned, np.diff(batches))

    def part(self, first: int, last: int) -> "Retiling":
        """Return the windows from ``first`` up to ``last``."""
        scanned = Scanned(*(each[first:last] for each in self.scanned))
        return replace(self, scanned=scanned, batches=self.batches[first:last])

    def times(self) -> ListingTimes:
        """Return the durations."""
        config, control, scanned = self.config, self.config.control, self.scanned
        scan = self._scan_bursts() * self.memory.stream().ns + self._flags_ns()
        notes = _ROW_NOTE_BYTES * scanned.rows[:, None] if self.by_rows else 0
        ranks_per_channel = config.topology.ranks_per_channel
        exchange = control.poll_ns + control.access_ns * ranks_per_channel
        lists = sums(scanned.nodes * NODE_BYTES + notes, config.topology.channels)
        nodes = scanned.nodes.sum(axis=1)
        return ListingTimes(
            scan + self.memory.fill_ns * (scan > 0),
            lists * self.memory.byte_ns() + exchange * self.batches[:, None],
            nodes / config.host.merge_nodes_per_us * 1000.0,
            nodes * NODE_BYTES * self.memory.byte_ns("write") + control.access_ns * self.batches,
        )

    def ahead_ns(self) -> Reals:
        """Return [W]: in each window, time of the slowest rank's listing for the next window."""
        scan = np.append(self.times().scan.max(axis=1), 0.0)
        scan[1] += scan[0]
        return scan[1:]

    def cost(self, added_ns: float) -> RetilingCost:
        """Return the cost of the whole re-tiling, given the time that it adds to its layer."""
        config, memory, scanned, times = self.config, self.memory, self.scanned, self.times()
        ranks, nodes = config.topology.ranks, int(scanned.nodes.sum())
        read, (tests, sets) = self._scan_bursts(), self._flags()
        stored = nodes * NODE_BYTES / config.burst_bytes
        store_ns = stored * memory.stream("write").ns
        modules_ns = float(times.scan.sum(axis=0).max()) + store_ns
        merge_ns = float(times.merge.sum())
        host_ns = merge_ns + float(times.lists.sum(axis=0).max() + times.tiles.sum())
        work_ns = modules_ns + host_ns
        notes = _ROW_NOTE_BYTES * int(scanned.rows.sum()) * ranks if self.by_rows else 0
        return RetilingCost(
            time_ns=added_ns,
            batch=self.batch,
            scan_ns=float(read.sum(axis=0).max()) * memory.stream().ns,
            flags_ns=float(self._flags_ns().sum(axis=0).max()),
            store_ns=store_ns,
            modules_ns=modules_ns,
            merge_ns=merge_ns,
            host_ns=host_ns,
            hidden_share=min(1.0, max(0.0, 1.0 - added_ns / work_ns)) if work_ns else 1.0,
            bytes={
                "retile_scan": round(float(read.sum()) * config.burst_bytes),
                "retile_flags": round(float((tests + sets).sum()) * config.burst_bytes),
                "retile_lists": nodes * NODE_BYTES + notes,
                "retile_tile_lists": nodes * NODE_BYTES * config.topology.channels,
                "retile_stored": nodes * NODE_BYTES * ranks,
            },
            bursts_read=float((read + tests).sum()),
            bursts_written=float(sets.sum()) + stored * ranks,
            activations=float(
                read.sum() * memory.stream().activations
                + tests.sum() * self._flag().activations
                + sets.sum() * self._flag("write").activations
                + stored * ranks * memory.stream("write").activations
            ),
        )

    def _scan_bursts(self) -> Reals:
        """Return [W, R]: bursts of adjacency and row pointers that are read in order."""
        module, scanned = self.config.module, self.scanned
        pointers = scanned.rows[:, None] * module.row_pointer_bytes
        bursts: Reals = (scanned.edges * module.adjacency_entry_bytes + pointers) / self.config.burst_bytes
        return bursts

    def _flags(self) -> tuple[Integers, Integers]:
        """Return [W, R] twice: flags tested, one per edge, and flags set, one per node."""
        tests, sets = self.scanned.edges, self.scanned.nodes
        return (tests, sets) if self.config.module.flags_in_dram else (0 * tests, 0 * sets)

    def _flags_ns(self) -> Reals:
        tests, sets = self._flags()
        return tests * self._flag().ns + sets * self._flag("write").ns

    def _flag(self, op: str = "read") -> BurstTime:
        """Return the cost of accessing one of the rank's flags, which take one bit per node."""
        places = -(-int(self.nodes_of_rank.max()) // (8 * self.config.burst_bytes))
        return self.memory.random(1, op, runs=places)
