"""Counts of edges, reads and touched rows, made once per graph; all mappings' times follow from them."""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onehop import native
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.machines.native import extension
from onehop.machines.ndp.config import Topology
from onehop.machines.ndp.mapping import Integers, Pods, candidates, owners
from onehop.plans.ndp import MERGES

# Number of targets in a block, the unit of counts; windows consist of whole blocks.
BLOCK_TARGETS = 128


@dataclass(frozen=True, slots=True)
class TargetGroups:
    """The grouping of targets.

    Attributes:
        tile: Number of targets in a tile.
        block: Number of targets in a block, for which counts are kept: a multiple of the tile.
        window: Number of targets in a window: a multiple of the block.
    """

    tile: int
    block: int
    window: int

    @classmethod
    def of(cls, buffer_bytes: int, slice_bytes: int, tile: int) -> "TargetGroups":
        """Return the grouping for outputs of ``slice_bytes`` each in a buffer.

        Raises:
            ArgumentError: The buffer cannot hold even one slice.
        """
        room = buffer_bytes // slice_bytes
        if room < 1:
            raise ArgumentError(
                f"module.buffer_kib: a buffer of {buffer_bytes} bytes cannot hold one output slice of "
                f"{slice_bytes} bytes; choose larger buffers, a mapping of more ranks a pod, or a smaller "
                "width."
            )
        tile = min(tile, room)
        block = tile * max(1, min(room, BLOCK_TARGETS) // tile)
        return cls(tile, block, room // block * block)


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """Counts by group of targets (block or window) and rank.

    Attributes:
        rows: [G, ranks]: targets of the group that are assigned to the rank, which holds their final vectors.
        edges: [G, ranks]: edges whose source is assigned to the rank.
        reads: [G, ranks]: as ``edges``, but a source that a tile needs several times counts once per tile.
        row_bursts: [G, ranks]: bursts of the rank's adjacency when each target's part is read separately.
        touched: For each pod size, [G, pods]: targets with an edge whose source is assigned to the pod.
    """

    rows: Integers
    edges: Integers
    reads: Integers
    row_bursts: Integers
    touched: dict[int, Integers]

    def grouped(self, blocks: int) -> "WindowCounts":
        """Return the counts of windows that consist of a given number of blocks each."""
        starts = np.arange(0, len(self.rows), blocks)
        if len(starts) == 0:
            return self

        def add(values: Integers) -> Integers:
            return np.add.reduceat(values, starts, axis=0)

        rows, edges, reads, row_bursts = map(add, (self.rows, self.edges, self.reads, self.row_bursts))
        touched = {size: add(values) for size, values in self.touched.items()}
        return WindowCounts(rows, edges, reads, row_bursts, touched)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes that the counts depend on.

    Attributes:
        entry_bytes: Bytes of an edge of the adjacency.
        burst_bytes: Bytes of a DRAM burst.
        pods: Number of ranks in a pod, for every mapping that is counted.
    """

    entry_bytes: int
    burst_bytes: int
    pods: tuple[int, ...]

    @classmethod
    def of(cls, topology: Topology, entry_bytes: int, burst_bytes: int, pods: Pods | None) -> "Sizes":
        """Return the sizes for GraNDe's mappings, and for a user's mapping if one is given."""
        every = [each.size for each in candidates(topology)] + ([] if pods is None else [pods.size])
        return cls(entry_bytes, burst_bytes, tuple(sorted(set(every))))


def count(
    work: extension.NdpWork, tile: int, block: int, sizes: Sizes, rows: Integers, threads: int
) -> WindowCounts:
    """Count edges, reads and touched targets by blocks of targets; each thread needs 4 bytes per source.

    ``rows``: [blocks, ranks], the targets that are assigned to each rank, from :func:`assigned_rows`.
    """
    blocks, ranks = rows.shape
    pod_sizes = np.array(sizes.pods, dtype=np.int32)
    columns = [ranks // size for size in sizes.pods]
    edges, reads, row_bursts = (np.zeros((blocks, ranks), dtype=np.int64) for _ in range(3))
    touched = np.zeros((blocks, sum(columns)), dtype=np.int64)
    counts = extension.NdpCounts()
    counts.tile, counts.block = tile, block
    counts.entry_bytes, counts.burst_bytes = sizes.entry_bytes, sizes.burst_bytes
    counts.pod, counts.levels = pod_sizes.ctypes.data, len(pod_sizes)
    counts.edges, counts.reads = edges.ctypes.data, reads.ctypes.data
    counts.row_bursts = row_bursts.ctypes.data
    counts.touched, counts.touched_stride = touched.ctypes.data, touched.shape[1]
    extension.ndp_count(work, counts, threads)
    parts = np.split(touched, np.cumsum(columns)[:-1], axis=1)
    return WindowCounts(rows, edges, reads, row_bursts, dict(zip(sizes.pods, parts, strict=True)))


def assigned_rows(target_owner: NDArray[np.uint8], ranks: int, block: int) -> Integers:
    """Return [blocks, ranks]: targets of each block that are assigned to each rank.

    ``target_owner``: [targets], the rank of every target, in order of processing.
    """
    blocks = -(-len(target_owner) // block)
    block_of = np.arange(len(target_owner), dtype=np.int64) // block
    return np.bincount(block_of * ranks + target_owner, minlength=blocks * ranks).reshape(blocks, ranks)


class Scanned(NamedTuple):
    """Amounts that the units read from the adjacency, in order, until each batch of nodes is listed.

    Attributes:
        rows: [batches]: rows that are begun.
        edges: [batches, ranks]: edges of each rank.
        nodes: [batches, ranks]: nodes of each rank's list.
    """

    rows: Integers
    edges: Integers
    nodes: Integers


class Rows(NamedTuple):
    """Rows of the adjacency for consecutive targets.

    Attributes:
        rowptr: [M + 1], int64.
        col: [edges], int32: the sources.
        owner: [M], uint8: the rank of every target.
        order: [M], int32: the targets' node numbers; None if they are consecutive.
    """

    rowptr: NDArray[np.int64]
    col: NDArray[np.int32]
    owner: NDArray[np.uint8]
    order: NDArray[np.int32] | None


class RankWorkload:
    """A graph on a machine's ranks, with its targets in one order; its counts are cached.

    Args:
        graph: The graph.
        topology: The ranks that nodes are assigned to.
        entry_bytes: Bytes of an edge of the adjacency.
        burst_bytes: Bytes of a DRAM burst.
        retile: The tiling of targets, as in :class:`onehop.plans.NdpPlan`.
        batch: Number of nodes that are listed before lists are merged; unused if lists are merged row by row.
        pods: A user's mapping that assigns nodes to ranks; None means that nodes are assigned in turn.

    Raises:
        ArgumentError: A graph whose sources and destinations are different nodes would be re-tiled, or the
            mapping loses nodes.
    """

    def __init__(
        self,
        graph: Graph,
        topology: Topology,
        entry_bytes: int,
        burst_bytes: int,
        *,
        retile: str,
        batch: int = 1,
        pods: Pods | None = None,
    ) -> None:
        self.graph, self.topology = graph, topology
        self.num_src, self.num_dst, self.num_edges = graph.num_src, graph.num_dst, graph.num_edges
        self.sizes = Sizes.of(topology, entry_bytes, burst_bytes, pods)
        self.retile, self.batch = retile, batch
        self._owners = partial(owners, topology) if pods is None else pods.owners
        self.owner = self._owners(graph.num_src)
        self._counted: dict[tuple[int, int], WindowCounts] = {}
        self._missed: dict[tuple[int, int], int] = {}
        self._scanned: dict[int, Scanned] = {}
        if self.reorders and graph.num_src != graph.num_dst:
            raise ArgumentError(
                f"plan: re-tiling lists sources as targets, and this graph has {graph.num_src} sources and "
                f"{graph.num_dst} destinations; choose retile='index'."
            )

    @property
    def reorders(self) -> bool:
        """Return whether targets are processed in an order other than node order."""
        return self.retile in MERGES

    @cached_property
    def order(self) -> NDArray[np.int32] | None:
        """Return [num_dst]: the targets in order of processing; None means node order."""
        return self._listed(self.batch)[0] if self.reorders else None

    @cached_property
    def target_owner(self) -> NDArray[np.uint8]:
        """Return [num_dst]: the rank of every target, in order of processing."""
        owner = self._owners(self.graph.num_dst)
        return owner if self.order is None else owner[self.order]

    @cached_property
    def nodes_of_rank(self) -> Integers:
        """Return [ranks]: sources that are assigned to each rank."""
        return np.bincount(self.owner, minlength=self.topology.ranks)

    @cached_property
    def edges_of_rank(self) -> Integers:
        """Return [ranks]: edges of each rank's part of the adjacency."""
        degrees = self.graph.out_degrees.numpy()
        return np.bincount(self.owner, degrees, minlength=self.topology.ranks).astype(np.int64)

    def scanned(self, batch: int) -> Scanned:
        """Return what re-tiling reads in batches of this size."""
        if batch not in self._scanned:
            _, rows, edges = self._listed(batch)
            nodes = assigned_rows(self.target_owner, self.topology.ranks, batch)
            self._scanned[batch] = Scanned(rows, edges, nodes)
        return self._scanned[batch]

    def _listed(self, batch: int) -> tuple[NDArray[np.int32], Integers, Integers]:
        """Return the order of targets for a batch size, and what the units read per batch: rows and edges."""
        order = np.empty(self.graph.num_dst, dtype=np.int32)
        rows = np.zeros(-(-len(order) // batch), dtype=np.int64)
        edges = np.zeros((len(rows), self.topology.ranks), dtype=np.int64)
        extension.ndp_retile(
            self._native(None),
            MERGES.index(self.retile),
            batch,
            rows.ctypes.data,
            edges.ctypes.data,
            order.ctypes.data,
        )
        return order, rows, edges

    def rows(self, first: int, last: int) -> Rows:
        """Return the targets from ``first`` up to ``last``, in order of processing."""
        rowptr, col = self.graph.rowptr.numpy(), self.graph.col.numpy()
        owner = self.target_owner[first:last]
        if self.order is None:
            ends = rowptr[first : last + 1]
            return Rows(ends - ends[0], col[ends[0] : ends[-1]], owner, None)
        targets = self.order[first:last]
        counts = rowptr[targets + 1] - rowptr[targets]
        ends = np.concatenate([[0], np.cumsum(counts)])
        edges = np.arange(ends[-1]) + np.repeat(rowptr[targets] - ends[:-1], counts)
        return Rows(ends, col[edges], owner, targets)

    def counts(self, shape: TargetGroups) -> WindowCounts:
        """Return the counts of every window of this shape."""
        key = (shape.tile, shape.block)
        if key not in self._counted:
            self._counted[key] = self._count(*key)
        return self._counted[key].grouped(shape.window // shape.block)

    def cache_misses(self, entries: int, ways: int) -> int:
        """Return the reads that miss a cache of ``entries`` vectors, with targets in order of processing."""
        key = (entries, ways)
        if key not in self._missed:
            self._missed[key] = extension.ndp_cache_misses(self._native(self.order), entries, ways)
        return self._missed[key]

    def read_reduction_percent(self, tile: int) -> float:
        """Return the vector reads that tiling saves, in percent of the edges: the paper's Figure 7."""
        if not self.graph.num_edges:
            return 0.0
        block = tile * -(-BLOCK_TARGETS // tile)
        reads = int(self.counts(TargetGroups(tile, block, block)).reads.sum())
        return 100.0 * (1.0 - reads / self.graph.num_edges)

    def _count(self, tile: int, block: int) -> WindowCounts:
        rows = self._rows(block)
        counts = count(self._native(self.order), tile, block, self.sizes, rows, native.threads())
        return replace(counts, reads=counts.edges) if self.retile == "none" else counts

    def _rows(self, block: int) -> Integers:
        """Return [blocks, ranks]: targets whose final vectors each rank holds."""
        return assigned_rows(self.target_owner, self.topology.ranks, block)

    def _native(self, order: NDArray[np.int32] | None) -> extension.NdpWork:
        graph = self.graph
        return extension.NdpWork(
            graph.rowptr.data_ptr(),
            graph.col.data_ptr(),
            0 if order is None else order.ctypes.data,
            graph.num_dst,
            graph.num_src,
            self.owner.ctypes.data,
            self.topology.ranks,
        )

    def native(self) -> extension.NdpWork:
        """The graph with targets in node order, for the native loops."""
        return self._native(None)


def pods_touched(counts: WindowCounts, pods: Pods) -> Integers:
    """Return [G, ranks]: targets whose outputs the host must read from the rank: those its pod touches."""
    return np.repeat(counts.touched[pods.size], pods.size, axis=1)


def pods_rows(counts: WindowCounts, pods: Pods) -> Integers:
    """Return [G, ranks]: targets whose final vectors the rank holds a slice of."""
    of_pod = counts.rows.reshape(len(counts.rows), pods.count, pods.size).sum(axis=2)
    return np.repeat(of_pod, pods.size, axis=1)
