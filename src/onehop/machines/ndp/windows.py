"""Execution windows: bytes become times, and a recurrence gives the waits between them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onehop.machines.native import extension
from onehop.machines.ndp.memory_times import BurstTime, MemoryTimes
from onehop.machines.ndp.traffic import LayerTraffic, sums

Reals = NDArray[np.float64]

RANK_PHASES = ("adjacency", "features", "write_back", "unit")
CHANNEL_PHASES = ("bundle_read", "bundle_write", "outputs", "finals")
EVENTS = ("A", "X", "W", "bundle read", "bundle write", "Q", "Z", "instructions")
# Kinds of events from this index on happen on channels.
FIRST_CHANNEL_EVENT = 3
# A rank's phase that is this much longer than the mean binds its window by imbalance.
IMBALANCE = 1.25


@dataclass(frozen=True, slots=True)
class WindowTimes:
    """Durations in ns of everything that a layer's windows consist of: W windows, R ranks, C channels.

    Attributes:
        pod: Ranks of a pod.
        transfer: Path of bundles to the other ranks of a pod: "none", "link" inside a DIMM, "host".
        lag: Windows between a reduction and its write-back: output buffers less one.
        fill_ns: Added to every reduction of a bundle, before its first data.
        poll_ns: Added before the host reads outputs of modules.
        pieces: [W]: pieces in which the window's adjacency is read, as many as buffers it fills.
        adjacency: [W, R]: A, reading the rank's own adjacency.
        reads: [W, R]: slices that each other rank of the pod reads for this rank's bundle.
        edges: [W, R]: edges of the rank's bundle.
        read_ns: [R]: reading one slice of a feature vector.
        unit_ns: [R]: one edge in the rank's unit.
        bundle_out: [W, R]: the host reads the rank's bundle.
        bundle_in: [W, R]: it writes the bundle, all copies, on each channel of the pod.
        outputs: [W, C]: Q, the host reads outputs.
        reduce: [W]: the host adds outputs up.
        finals: [W, C]: Z, the host writes final vectors to the modules.
        write_back: [W, R]: W, the modules write them to DRAM.
    """

    pod: int
    transfer: str
    lag: int
    fill_ns: float
    poll_ns: float
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


@dataclass(frozen=True, slots=True)
class Event:
    """An activity of a rank or a channel.

    Attributes:
        what: One of :data:`EVENTS`.
        window: Its window.
        where: Number of the rank; of the channel, for bundles, Q and Z.
        start_ns: Its begin.
        end_ns: Its end.
    """

    what: str
    window: int
    where: int
    start_ns: float
    end_ns: float

    @property
    def on_channel(self) -> bool:
        """Return whether it happened on a channel."""
        return EVENTS.index(self.what) >= FIRST_CHANNEL_EVENT


@dataclass(frozen=True, slots=True)
class Schedule:
    """Times of a layer's windows.

    Attributes:
        total_ns: Time of all of them.
        rank_busy_ns: [R, 4]: by :data:`RANK_PHASES`; "unit" is the part of "features" in which the unit is
            the bottleneck, not the DRAM.
        channel_busy_ns: [C, 4]: by :data:`CHANNEL_PHASES`.
        ends_ns: [W]: the time at which the last rank finished the window's step.
        busy_ns: [W, 3]: in each window's step, the busiest channel, the busiest rank, the mean over ranks.
        events: Events of the first windows, ordered by time within each rank and channel.
    """

    total_ns: float
    rank_busy_ns: Reals
    channel_busy_ns: Reals
    ends_ns: Reals
    busy_ns: Reals
    events: list[Event]

    def bounds(self) -> list[str]:
        """Return [W]: the bottleneck of each window.

        "host": the busiest channel worked longer than the busiest rank. Else "imbalance" where the busiest
        rank worked more than 1.25 times as long as the mean one, and "dram" where it did not.
        """
        channel, rank, mean = self.busy_ns.T
        uneven = np.where(rank > IMBALANCE * mean, "imbalance", "dram")
        found: list[str] = np.where(channel > rank, "host", uneven).tolist()
        return found

    def bound(self) -> dict[str, int]:
        """Number of windows by bottleneck; see :meth:`bounds`."""
        found = self.bounds()
        return {name: found.count(name) for name in ("host", "imbalance", "dram")}


def adjacency_cost(traffic: LayerTraffic, memory: MemoryTimes) -> BurstTime:
    """Cost of a burst of the adjacency: with tile lists, each target's part is a separate read."""
    return memory.random(1) if traffic.listed else memory.stream()


def write_cost(traffic: LayerTraffic, memory: MemoryTimes, bursts: int) -> BurstTime:
    """Cost of a burst of final slices of a given number of bursts each.

    In order of their numbers, a rank's targets of a window are contiguous in it, however nodes are assigned.
    """
    if not traffic.workload.reorders:
        return memory.stream("write")
    return memory.random(bursts, "write", runs=traffic.pod_nodes)


def read_cost(traffic: LayerTraffic, memory: MemoryTimes, bursts: int) -> BurstTime:
    """Cost of a burst of feature slices of a given number of bursts each, for one bundle.

    A rank stores the slices of its pod's nodes contiguously, those assigned to the pod's first rank first. In
    the order of their numbers a bundle's slices, evenly spaced, would fall onto a few banks only.
    """
    return memory.random(bursts, runs=traffic.bundle_nodes)


def times_of(traffic: LayerTraffic, memory: MemoryTimes) -> WindowTimes:
    """The durations of a layer's windows."""
    config, pods = traffic.config, traffic.pods
    module, control = config.module, config.control
    bursts, columns = pods.slice_bursts(traffic.width), pods.slice_bytes(traffic.width) // 4
    per_channel_byte = 1.0 / config.channel_gbps
    stream, fill = memory.stream(), memory.fill_ns

    list_bursts = traffic.list_bytes[:, None] / 64.0
    adjacency = traffic.adjacency_bursts * adjacency_cost(traffic, memory).ns + list_bursts * stream.ns
    adjacency += fill * (traffic.adjacency_bursts > 0)
    read_ns = np.array([read_cost(traffic, memory, int(n)).ns for n in bursts])
    write_ns = np.array([write_cost(traffic, memory, int(n)).ns for n in bursts])

    def host(values: NDArray[np.int64], copies: int = 1) -> Reals:
        """Time over one channel; every separate transfer has its own access time."""
        return (values * per_channel_byte + control.access_ns * copies * (values > 0)).astype(np.float64)

    copies = 1 if traffic.broadcast else pods.in_channel
    bundle_in = host(traffic.bundle_in_bytes, copies)
    fullest = traffic.adjacency_bytes.max(axis=1, initial=0)
    return WindowTimes(
        pod=pods.size,
        transfer="host" if traffic.over_host else "link" if traffic.inside_dimm else "none",
        # Two of the four buffers hold bundles where these are transferred.
        lag=(1 if pods.size > 1 else module.output_buffers - 1),
        fill_ns=fill,
        poll_ns=control.poll_ns,
        pieces=np.maximum(1, -(-fullest // module.buffer_bytes)),
        adjacency=adjacency,
        reads=traffic.counts.reads.astype(np.float64),
        edges=traffic.counts.edges.astype(np.float64),
        read_ns=bursts * read_ns,
        unit_ns=(-(-columns // module.lanes) * 1000.0 / module.clock_mhz).astype(np.float64),
        bundle_out=host(traffic.bundle_out_bytes),
        bundle_in=bundle_in,
        outputs=sums(host(traffic.output_bytes), config.topology.channels),
        reduce=traffic.output_bytes.sum(axis=1) / config.host.reduce_gbps,
        finals=sums(host(traffic.final_bytes), config.topology.channels),
        write_back=traffic.write_bursts * write_ns + fill * (traffic.write_bursts > 0),
    )


def run(times: WindowTimes, channels: int, record: int = 0) -> Schedule:
    """Runs the recurrence.

    Per window and rank: A; X for each bundle of the pod as it arrives; then W of an earlier window. Per
    channel: bundles, two of which a module can hold; then Q and Z of the window before, Z once all channels
    have their Q.

    Args:
        times: The durations.
        channels: Channels, among which the ranks are divided evenly and in order.
        record: Number of windows whose events are kept.
    """
    windows, ranks = times.adjacency.shape
    record = min(record, windows)
    # Per rank A, W and its pod's bundles; per channel Q, Z and bundles read and written; by pieces.
    pieces = int(times.pieces[:record].sum())
    most = record * (ranks + 2 * channels) + pieces * ranks * (1 + times.pod + 1 + channels) + 1
    arrays: dict[str, NDArray[Any]] = {
        "rank_busy": np.zeros((ranks, 4)),
        "channel_busy": np.zeros((channels, 4)),
        "window": np.zeros((windows, 4)),
        "event_what": np.zeros((most, 3), dtype=np.int32),
        "event_time": np.zeros((most, 2)),
    }
    real = [
        np.ascontiguousarray(values, dtype=np.float64)
        for values in (
            times.adjacency,
            times.reads,
            times.edges,
            times.read_ns,
            times.unit_ns,
            times.bundle_out,
            times.bundle_in,
            times.outputs,
            times.reduce,
            times.finals,
            times.write_back,
        )
    ]
    adjacency, reads, edges, read, unit, bundle_out, bundle_in, outputs, reduce, finals, write = (
        values.ctypes.data for values in real
    )
    in_pieces = np.ascontiguousarray(times.pieces, dtype=np.int64)
    total, events = extension.ndp_windows(
        windows,
        ranks,
        channels,
        times.pod,
        ("none", "link", "host").index(times.transfer),
        times.lag,
        record,
        in_pieces.ctypes.data,
        adjacency,
        reads,
        edges,
        read,
        unit,
        times.fill_ns,
        bundle_out,
        bundle_in,
        outputs,
        reduce,
        finals,
        write,
        times.poll_ns,
        arrays["rank_busy"].ctypes.data,
        arrays["channel_busy"].ctypes.data,
        arrays["window"].ctypes.data,
        arrays["event_what"].ctypes.data,
        arrays["event_time"].ctypes.data,
        most,
    )
    return Schedule(
        total,
        arrays["rank_busy"],
        arrays["channel_busy"],
        arrays["window"][:, 0],
        arrays["window"][:, 1:],
        [
            Event(EVENTS[what], int(window), int(where), float(start), float(end))
            for (what, window, where), (start, end) in zip(
                arrays["event_what"][:events], arrays["event_time"][:events], strict=True
            )
        ],
    )
