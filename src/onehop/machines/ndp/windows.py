"""Execution windows: a recurrence that computes how ranks and channels wait for each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onehop.machines.native import extension
from onehop.machines.ndp.durations import Reals, WindowTimes
from onehop.plans.ndp import HOST_ORDERS

RANK_PHASES = ("adjacency", "features", "write_back", "listing", "unit")
CHANNEL_PHASES = ("bundle_read", "bundle_write", "outputs", "finals", "lists")
EVENTS = ("A", "X", "W", "L", "bundle read", "bundle write", "Q", "Z", "lists", "tile list", "instructions")
# Kinds of events from this index on happen on channels.
FIRST_CHANNEL_EVENT = 4
# A window is bound by imbalance if its busiest rank takes this many times as long as the mean.
IMBALANCE = 1.25


@dataclass(frozen=True, slots=True)
class Event:
    """One activity of a rank or a channel.

    Attributes:
        what: One of :data:`EVENTS`.
        window: The number of its window.
        where: Number of the rank; or of the channel, for bundles, Q and Z.
        start_ns: Its start time.
        end_ns: Its end time.
    """

    what: str
    window: int
    where: int
    start_ns: float
    end_ns: float

    @property
    def on_channel(self) -> bool:
        """Return whether the activity happened on a channel."""
        return EVENTS.index(self.what) >= FIRST_CHANNEL_EVENT


@dataclass(frozen=True, slots=True)
class Schedule:
    """Times of a layer's windows.

    Attributes:
        total_ns: Time of all windows.
        rank_busy_ns: [R, 5]: by :data:`RANK_PHASES`; "unit" is the part of "features" in which the unit is
            the bottleneck, not the DRAM.
        channel_busy_ns: [C, 5]: by :data:`CHANNEL_PHASES`.
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

        "host" means that the busiest channel worked longer than the busiest rank. Otherwise "imbalance" means
        that the busiest rank worked more than 1.25 times as long as the mean rank, and "dram" that it did
        not.
        """
        channel, rank, mean = self.busy_ns.T
        uneven = np.where(rank > IMBALANCE * mean, "imbalance", "dram")
        found: list[str] = np.where(channel > rank, "host", uneven).tolist()
        return found

    def bound(self) -> dict[str, int]:
        """Return the number of windows by bottleneck; see :meth:`bounds`."""
        found = self.bounds()
        return {name: found.count(name) for name in ("host", "imbalance", "dram")}


def unit_share(schedules: Sequence[Schedule]) -> float:
    """Return the share of reading time that the units add to the DRAM's, over all ranks; 0 without reads."""
    read = sum(float(one.rank_busy_ns[:, 1].sum()) for one in schedules)
    unit = sum(float(one.rank_busy_ns[:, 4].sum()) for one in schedules)
    return unit / read if read else 0.0


def run(times: WindowTimes, channels: int, order: str, record: int = 0) -> Schedule:
    """Run the recurrence and return the schedule.

    Each rank does, per window: A; X for each bundle of the pod as it arrives; then W of an earlier window.
    All orders except ``after`` read A of the next window before this W. Each channel moves bundles, two of
    which a module can hold; then Q and Z of the window before, Z once all channels have their Q. ``between``
    moves Q and then Z in equal parts, one after each bundle; ``early`` also moves such parts while it waits
    for the bundles of ranks that still read.

    If tile lists are made, ranks list the targets of the next window after they have read the adjacency of
    this one. The host reads these lists after its first bundle, or at once if it moves no bundles. It merges
    them, and writes the tile list between two other transfers, or after the last one. The adjacency of the
    next window waits for this.

    Args:
        times: The durations.
        channels: Number of channels; ranks are divided among them evenly and in order.
        order: One of :data:`onehop.plans.ndp.HOST_ORDERS`; the last two only if bundles use the Host-path.
        record: Number of windows whose events are kept.
    """
    windows, ranks = times.adjacency.shape
    record = min(record, windows)
    # Upper bound of the number of events. Each rank has A, W and its pod's bundles; each channel has Q, Z and
    # bundles read and written; all come in pieces. Q and Z of a window have a part for each bundle of the
    # next window, and a channel moves at most as many of these as there are ranks.
    pieces = int(times.pieces[: record + 1].sum())
    most = record * (2 * ranks + 4 * channels) + pieces * ranks * (1 + times.pod + 1 + 2 * channels) + 1
    rank_busy, channel_busy = np.zeros((ranks, len(RANK_PHASES))), np.zeros((channels, len(CHANNEL_PHASES)))
    of_windows, event_time = np.zeros((windows, 4)), np.zeros((most, 2))
    event_what = np.zeros((most, 3), dtype=np.int32)
    # This list keeps the copies that the native loop reads alive.
    read: list[NDArray[Any]] = []

    def address(values: NDArray[Any], dtype: type = np.float64) -> int:
        read.append(np.ascontiguousarray(values, dtype=dtype))
        return read[-1].ctypes.data

    layer = extension.NdpWindows()
    layer.windows, layer.ranks, layer.channels, layer.pod = windows, ranks, channels, times.pod
    layer.transfer = ("none", "link", "host").index(times.transfer)
    layer.order = HOST_ORDERS.index(order)
    layer.lag, layer.record = times.lag, record
    layer.pieces = address(times.pieces, np.int64)
    layer.adjacency_ns = address(times.adjacency)
    layer.reads, layer.edges = address(times.reads), address(times.edges)
    layer.read_ns, layer.unit_ns, layer.fill_ns = (
        address(times.read_ns),
        address(times.unit_ns),
        times.fill_ns,
    )
    layer.bundle_out_ns, layer.bundle_in_ns = address(times.bundle_out), address(times.bundle_in)
    layer.outputs_ns, layer.reduce_ns = address(times.outputs), address(times.reduce)
    layer.finals_ns, layer.write_ns = address(times.finals), address(times.write_back)
    layer.poll_ns, layer.again_ns = times.poll_ns, times.again_ns
    if times.listing is not None:
        layer.scan_ns, layer.lists_ns = address(times.listing.scan), address(times.listing.lists)
        layer.merge_ns, layer.tiles_ns = address(times.listing.merge), address(times.listing.tiles)
    timeline = extension.NdpWindowTimes()
    timeline.rank_busy, timeline.channel_busy = rank_busy.ctypes.data, channel_busy.ctypes.data
    timeline.window = of_windows.ctypes.data
    timeline.event_what, timeline.event_time = event_what.ctypes.data, event_time.ctypes.data
    timeline.most_events = most
    extension.ndp_windows(layer, timeline)
    recorded = [
        Event(EVENTS[what], int(window), int(where), float(start), float(end))
        for (what, window, where), (start, end) in zip(
            event_what[: timeline.events], event_time[: timeline.events], strict=True
        )
    ]
    return Schedule(timeline.total_ns, rank_busy, channel_busy, of_windows[:, 0], of_windows[:, 1:], recorded)
