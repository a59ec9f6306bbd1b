"""Bytes that a layer moves in each window, by rank, from the counts of its graph."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from onehop.machines.ndp.config import NdpConfig
from onehop.machines.ndp.counts import TargetGroups, WindowCounts, pods_rows, pods_touched
from onehop.machines.ndp.mapping import ELEMENT_BYTES, Integers, Pods

# Bytes of a node in re-tiling's lists.
NODE_BYTES = 4

Number = TypeVar("Number", np.int64, np.float64)


class Workload(Protocol):
    """Targets with their edges on ranks: a graph (:class:`.counts.RankWorkload`), or some windows of one."""

    @property
    def num_dst(self) -> int:
        """Number of targets."""

    @property
    def num_edges(self) -> int:
        """Number of edges."""

    @property
    def order(self) -> NDArray[np.int32] | None:
        """Return [num_dst]: the targets in order of processing; None means node order."""

    @property
    def nodes_of_rank(self) -> Integers:
        """Return [ranks]: sources of the graph that are assigned to each rank."""

    @property
    def edges_of_rank(self) -> Integers:
        """Return [ranks]: edges of each rank's part of the adjacency."""

    def counts(self, shape: TargetGroups) -> WindowCounts:
        """Return the counts of every window of this shape."""


@dataclass(frozen=True, slots=True)
class Finals:
    """Final vectors, which the host computes from a layer's outputs and writes to the ranks.

    Attributes:
        width: Number of columns.
        work_ns: Time of the host's own work per target, in addition to adding up its outputs.
        pods: The mapping in which the vectors are stored: the mapping of the layer that reads them. None
            means the layer's own mapping.
    """

    width: int
    work_ns: float
    pods: Pods | None


@dataclass(frozen=True)
class LayerTraffic:
    """Bytes that one layer moves under one mapping.

    Attributes:
        config: The machine.
        workload: The graph on its ranks, or windows of it.
        pods: The mapping.
        width: Columns of the feature vectors.
        tile: Number of targets in a tile.
        broadcast: Whether a bundle is written once per channel, and inside a DIMM without using the channel.
        finals: The final vectors; None means the aggregated vectors, in the layer's own mapping.
        relists: Whether the tile list is made and stored during the layer; if not, a stored list is read.
    """

    config: NdpConfig
    workload: Workload
    pods: Pods
    width: int
    tile: int
    broadcast: bool
    finals: Finals | None = None
    relists: bool = False

    @property
    def final_width(self) -> int:
        """Return the columns of final vectors."""
        return self.width if self.finals is None else self.finals.width

    @property
    def final_pods(self) -> Pods:
        """Return the mapping of final vectors."""
        return self.pods if self.finals is None or self.finals.pods is None else self.finals.pods

    @property
    def slice_bursts(self) -> Integers:
        """Return [R]: bursts of a rank's slice of a vector that is read."""
        return self.pods.slice_bursts(self.width, self.config.burst_bytes)

    @property
    def final_slice_bursts(self) -> Integers:
        """Return [R]: bursts of a rank's slice of a final vector."""
        return self.final_pods.slice_bursts(self.final_width, self.config.burst_bytes)

    @cached_property
    def shape(self) -> TargetGroups:
        """Sizes of tiles and windows: a window has as many targets as an output buffer can hold slices."""
        return groups(self.config, self.pods, self.width, self.tile)

    @cached_property
    def counts(self) -> WindowCounts:
        """Counts of the windows."""
        return self.workload.counts(self.shape)

    @cached_property
    def targets(self) -> Integers:
        """Return [W]: number of targets in each window."""
        starts = np.arange(0, self.workload.num_dst, self.shape.window, dtype=np.int64)
        return np.minimum(self.workload.num_dst - starts, self.shape.window)

    @property
    def listed(self) -> bool:
        """Return whether targets come from a tile list; then each target's adjacency is read separately."""
        return self.workload.order is not None

    @property
    def over_host(self) -> bool:
        """Return whether bundles use the Host-path."""
        return uses_channels(self.pods, self.broadcast)

    @property
    def inside_dimm(self) -> bool:
        """Return whether bundles stay inside the buffer chip."""
        return self.pods.size > 1 and not self.over_host

    @cached_property
    def adjacency_bytes(self) -> Integers:
        """Return [W, R]: bytes of the rank's own edges."""
        return self.counts.edges * self.config.module.adjacency_entry_bytes

    @cached_property
    def adjacency_bursts(self) -> Integers:
        """Return [W, R]: bursts that are read for the rank's own edges."""
        if self.listed:
            return self.counts.row_bursts
        return -(-self.adjacency_bytes // self.config.burst_bytes)

    @cached_property
    def list_bytes(self) -> Integers:
        """Return [W]: bytes of the tile list that every rank reads, or stores in the layer that makes it."""
        return self.targets * NODE_BYTES if self.listed else np.zeros_like(self.targets)

    @cached_property
    def pointer_bursts(self) -> Integers:
        """Return [W]: bursts of row pointers that each rank reads.

        A rank has one pointer for each target. In node order, pointers are read as a stream. With a tile
        list, each burst that holds the begin or end of a row is read once per tile, because the host can sort
        the targets of a tile.
        """
        each, burst, order = (
            self.config.module.row_pointer_bytes,
            self.config.burst_bytes,
            self.workload.order,
        )
        if order is None or not each:
            return -(-self.targets * each // burst)
        tile = self.shape.tile
        sorted_tiles = np.sort(np.resize(order, (-(-len(order) // tile), tile)).astype(np.int64), axis=1)
        if len(order) % tile:
            sorted_tiles[-1] = np.sort(np.resize(order[-(len(order) % tile) :], tile))
        first, last = sorted_tiles * each // burst, ((sorted_tiles + 2) * each - 1) // burst
        seen = np.concatenate([np.full((len(last), 1), -1), last[:, :-1]], axis=1)
        of_tiles = np.maximum(last - np.maximum(first - 1, seen), 0).sum(axis=1)
        return np.add.reduceat(of_tiles, np.arange(0, len(of_tiles), self.shape.window // tile))

    @property
    def pointer_places(self) -> int:
        """Return the number of bursts that all row pointers of a rank take."""
        nodes = int(self.workload.nodes_of_rank.sum())
        return -(-(nodes + 1) * self.config.module.row_pointer_bytes // self.config.burst_bytes)

    @property
    def adjacency_places(self) -> int:
        """Return the number of adjacency bursts in the rank that has the most edges."""
        most = int(self.workload.edges_of_rank.max())
        return -(-most * self.config.module.adjacency_entry_bytes // self.config.burst_bytes)

    @cached_property
    def pod_reads(self) -> Integers:
        """Return [W, R]: slices that the rank reads for all bundles of its pod."""
        return self._over_pod(self.counts.reads)

    @cached_property
    def pod_edges(self) -> Integers:
        """Return [W, R]: edges that the rank processes."""
        return self._over_pod(self.counts.edges)

    @cached_property
    def feature_bursts(self) -> Integers:
        """Return [W, R]: bursts of feature slices read."""
        return self.pod_reads * self.slice_bursts

    @cached_property
    def bundle_out_bytes(self) -> Integers:
        """Return [W, R]: bytes of the rank's bundle, as the host reads it."""
        return self.adjacency_bytes if self.over_host else np.zeros_like(self.adjacency_bytes)

    @cached_property
    def bundle_in_bytes(self) -> Integers:
        """Return [W, R]: bytes of all copies of the rank's bundle that the host writes to one channel."""
        copies = 1 if self.broadcast else self.pods.in_channel
        return self.bundle_out_bytes * copies

    @cached_property
    def link_bytes(self) -> int:
        """Bytes of bundles that a buffer chip passes between its own modules."""
        return int(self.adjacency_bytes.sum()) * (self.pods.size - 1) if self.inside_dimm else 0

    @cached_property
    def output_bytes(self) -> Integers:
        """Return [W, R]: bytes of partial or finished slices that the host reads."""
        return pods_touched(self.counts, self.pods) * self.pods.slice_bytes(self.width)

    @cached_property
    def final_bytes(self) -> Integers:
        """Return [W, R]: bytes of slices of final vectors that the host writes to the module."""
        return pods_rows(self.counts, self.final_pods) * self.final_pods.slice_bytes(self.final_width)

    @cached_property
    def write_bursts(self) -> Integers:
        """Return [W, R]: bursts of final slices written to DRAM."""
        return pods_rows(self.counts, self.final_pods) * self.final_slice_bursts

    @cached_property
    def bundle_nodes(self) -> int:
        """Upper bound of the nodes from which one bundle's reads choose: the nodes assigned to its rank."""
        return int(self.workload.nodes_of_rank.max())

    @cached_property
    def pod_nodes(self) -> int:
        """Upper bound of the number of nodes whose slices a rank holds."""
        return self.bundle_nodes * self.pods.size

    def by_channel(self, values: Integers) -> Integers:
        """Return [W, C]: sums over the ranks of each channel."""
        topology = self.config.topology
        return sums(values, topology.channels)

    def totals(self) -> dict[str, int]:
        """Return the total bytes by kind; kinds that end in ``_useful`` omit the padding of bursts."""
        ranks, burst = self.config.topology.ranks, self.config.burst_bytes
        useful = int((self.pod_reads * self.pods.slice_bytes(self.width)).sum())
        return {
            "adjacency_read": int(self.adjacency_bursts.sum()) * burst,
            "adjacency_useful": int(self.adjacency_bytes.sum()),
            "row_pointer_read": int(self.pointer_bursts.sum()) * burst * ranks,
            "tile_list_read": 0 if self.relists else int(self.list_bytes.sum()) * ranks,
            "feature_read": int(self.feature_bursts.sum()) * burst,
            "feature_useful": useful,
            "bundle_read": int(self.bundle_out_bytes.sum()),
            "bundle_write": int(self.bundle_in_bytes.sum()) * self.pods.channels,
            "bundle_in_dimm": self.link_bytes,
            "outputs_read": int(self.output_bytes.sum()),
            "finals_write": int(self.final_bytes.sum()),
            "write_back": int(self.write_bursts.sum()) * burst,
            "write_back_useful": self.workload.num_dst * self.final_width * ELEMENT_BYTES,
        }

    def _over_pod(self, values: Integers) -> Integers:
        return np.repeat(sums(values, self.pods.count), self.pods.size, axis=1)


def uses_channels(pods: Pods, broadcast: bool) -> bool:
    """Return whether bundles use the Host-path: they exist, and no buffer chip passes them on."""
    return pods.size > 1 and not (pods.inside_dimm and broadcast)


def groups(config: NdpConfig, pods: Pods, width: int, tile: int) -> TargetGroups:
    """Return the sizes of tiles and windows of a layer; see :attr:`LayerTraffic.shape`.

    Raises:
        ArgumentError: A buffer cannot hold one output slice.
    """
    return TargetGroups.of(config.module.buffer_bytes, int(pods.slice_bytes(width).max()), tile)


def sums(values: NDArray[Number], groups: int) -> NDArray[Number]:
    """Return [W, groups]: sums over a given number of groups of neighbouring columns."""
    summed: NDArray[Number] = values.reshape(len(values), groups, values.shape[1] // groups).sum(axis=2)
    return summed
