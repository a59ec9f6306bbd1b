"""Conversion of bytes to times: the durations of everything that happens in a layer's windows."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from onehop.machines.ndp.mapping import ELEMENT_BYTES
from onehop.machines.ndp.memory_times import BurstTime, MemoryTimes
from onehop.machines.ndp.retiling import ListingTimes, Retiling
from onehop.machines.ndp.traffic import LayerTraffic, sums

Reals = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WindowTimes:
    """Durations in ns of everything that happens in a layer's windows: W windows, R ranks, C channels.

    Attributes:
        pod: Number of ranks in a pod.
        transfer: Path of bundles to the other ranks of a pod: "none", "link" inside a DIMM, "host".
        lag: Number of windows between a reduction and its write-back: output buffers minus one.
        fill_ns: Time added to every reduction of a bundle, before its first data.
        poll_ns: Time added before the host reads outputs of modules.
        again_ns: If the host moves a window's outputs or finals on a channel in parts, time added to each
            part except the first: an access to each module.
        pieces: [W]: number of pieces in which the window's adjacency is read: as many as the buffers it
            fills.
        adjacency: [W, R]: A, reading the rank's own adjacency with row pointers and tile lists; in a layer
            that makes the tile lists, they are stored instead of read.
        reads: [W, R]: number of slices that each other rank of the pod reads for this rank's bundle.
        edges: [W, R]: number of edges of the rank's bundle.
        read_ns: [R]: reading one slice of a feature vector.
        unit_ns: [R]: one edge in the rank's unit.
        bundle_out: [W, R]: the host reads the rank's bundle.
        bundle_in: [W, R]: the host writes all copies of the bundle, on each channel of the pod.
        outputs: [W, C]: Q, the host reads outputs.
        reduce: [W]: the host adds up outputs and computes final vectors from them.
        finals: [W, C]: Z, the host writes final vectors to the modules.
        write_back: [W, R]: W, the modules write them to DRAM.
        listing: Durations of making tile lists during the layer; None if the layer does not make them.
    """

    pod: int
    transfer: str
    lag: int
    fill_ns: float
    poll_ns: float
    again_ns: float
    pieces: NDArray[np.int64]
    adjacency: Reals
    reads: Reals
    edges: Reals
    read_ns: Reals
    unit_ns: Reals
    bundle_out: Reals
    bundle_in: Reals
    outputs: Reals
    reduce: Reals
    finals: Reals
    write_back: Reals
    listing: ListingTimes | None = None


def adjacency_cost(traffic: LayerTraffic, memory: MemoryTimes) -> BurstTime:
    """Return the cost of a burst of the adjacency: random places with tile lists, else one stream."""
    return memory.random(1, runs=traffic.adjacency_places) if traffic.listed else memory.stream()


def pointer_cost(traffic: LayerTraffic, memory: MemoryTimes) -> BurstTime:
    """Return the cost of a burst of row pointers: random places with tile lists, else one stream."""
    return memory.random(1, runs=traffic.pointer_places) if traffic.listed else memory.stream()


def list_cost(traffic: LayerTraffic, memory: MemoryTimes) -> BurstTime:
    """Return the cost of a burst of the tile list, which is stored or read."""
    return memory.stream("write" if traffic.relists else "read")


def write_cost(traffic: LayerTraffic, memory: MemoryTimes, bursts: int) -> BurstTime:
    """Return the cost of a burst of final slices that have ``bursts`` bursts each.

    In node order, a rank's targets of a window are contiguous in the rank, however nodes are assigned.
    """
    if not traffic.listed:
        return memory.stream("write")
    return memory.random(bursts, "write", runs=traffic.bundle_nodes * traffic.final_pods.size)


def read_cost(traffic: LayerTraffic, memory: MemoryTimes, bursts: int) -> BurstTime:
    """Return the cost of a burst of feature slices that have ``bursts`` bursts each, for one bundle.

    A rank stores the slices of its pod's nodes contiguously, and the slices of nodes assigned to the pod's
    first rank come first. In node order, a bundle's slices would be evenly spaced and fall onto a few banks
    only.
    """
    return memory.random(bursts, runs=traffic.bundle_nodes)


def with_stored_list(times: WindowTimes, traffic: LayerTraffic, memory: MemoryTimes) -> WindowTimes:
    """Return the durations of a layer that makes tile lists, as if the lists had been stored before."""
    bursts = traffic.list_bytes[:, None] / traffic.config.burst_bytes
    more = bursts * (memory.stream().ns - list_cost(traffic, memory).ns)
    return replace(times, adjacency=times.adjacency + more, listing=None)


def times_of(traffic: LayerTraffic, memory: MemoryTimes, retiling: Retiling | None = None) -> WindowTimes:
    """Return the durations of a layer's windows.

    ``retiling`` describes the re-tiling of these windows, if tile lists are made during the layer.
    """
    config, pods = traffic.config, traffic.pods
    module, control = config.module, config.control
    bursts, columns = traffic.slice_bursts, pods.slice_bytes(traffic.width) // ELEMENT_BYTES
    fill = memory.fill_ns
    work_ns = 0.0 if traffic.finals is None else traffic.finals.work_ns

    list_bursts = traffic.list_bytes[:, None] / config.burst_bytes
    parts, pointers = traffic.adjacency_bursts, traffic.pointer_bursts[:, None]
    adjacency = parts * adjacency_cost(traffic, memory).ns + pointers * pointer_cost(traffic, memory).ns
    adjacency += list_bursts * list_cost(traffic, memory).ns + fill * (parts + pointers > 0)
    read_ns = np.array([read_cost(traffic, memory, int(n)).ns for n in bursts])
    write_ns = np.array([write_cost(traffic, memory, int(n)).ns for n in traffic.final_slice_bursts])

    def host(values: NDArray[np.int64], op: str = "read", copies: int = 1) -> Reals:
        """Return the time over one channel; every separate transfer has its own access time."""
        accesses = control.access_ns * copies * (values > 0)
        return (values * memory.byte_ns(op) + accesses).astype(np.float64)

    copies = 1 if traffic.broadcast else pods.in_channel
    bundle_in = host(traffic.bundle_in_bytes, "write", copies)
    fullest = traffic.adjacency_bytes.max(axis=1)
    return WindowTimes(
        pod=pods.size,
        transfer="host" if traffic.over_host else "link" if traffic.inside_dimm else "none",
        # If bundles are transferred, two of the four buffers hold bundles.
        lag=(1 if pods.size > 1 else module.output_buffers - 1),
        fill_ns=fill,
        poll_ns=control.poll_ns,
        again_ns=control.access_ns * config.topology.ranks_per_channel,
        pieces=np.maximum(1, -(-fullest // module.buffer_bytes)),
        adjacency=adjacency,
        reads=traffic.counts.reads.astype(np.float64),
        edges=traffic.counts.edges.astype(np.float64),
        read_ns=bursts * read_ns,
        unit_ns=(-(-columns // module.lanes) * 1000.0 / module.clock_mhz).astype(np.float64),
        bundle_out=host(traffic.bundle_out_bytes),
        bundle_in=bundle_in,
        outputs=sums(host(traffic.output_bytes), config.topology.channels),
        reduce=traffic.output_bytes.sum(axis=1) / config.host.reduce_gbps + traffic.targets * work_ns,
        finals=sums(host(traffic.final_bytes, "write"), config.topology.channels),
        write_back=traffic.write_bursts * write_ns + fill * (traffic.write_bursts > 0),
        listing=None if retiling is None else retiling.times(),
    )
