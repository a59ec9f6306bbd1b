"""The lower bound of a layer's time: the time of its busier path, if the other path is hidden behind it."""

from dataclasses import dataclass

import numpy as np

from onehop.machines.ndp.durations import Reals, WindowTimes
from onehop.machines.ndp.traffic import sums


@dataclass(frozen=True, slots=True)
class Paths:
    """Work of both paths over all windows of a layer, independent of the order.

    Attributes:
        dram_ns: DRAM-path: reading, reducing and writing back in the busiest rank.
        host_ns: Host-path: bundles, outputs, final vectors and lists of the busiest channel. Each window's
            outputs and final vectors move in one go.
    """

    dram_ns: float
    host_ns: float

    @property
    def bound_ns(self) -> float:
        """Lower bound of the windows' time: the time of the busier path."""
        return max(self.dram_ns, self.host_ns)

    @property
    def shorter_ns(self) -> float:
        """The work of the less busy path."""
        return min(self.dram_ns, self.host_ns)

    def hidden_share(self, windows_ns: float) -> float:
        """Return the share of the shorter path's work that overlaps with the longer path's work.

        The share is 1 if the windows take no longer than the longer path, or if the shorter path has no work.
        It is 0 if the windows take as long as both paths together, or longer because the paths wait for each
        other.

        Args:
            windows_ns: Time of the windows.
        """
        if self.shorter_ns == 0.0:
            return 1.0
        return min(1.0, max(0.0, (self.dram_ns + self.host_ns - windows_ns) / self.shorter_ns))


def paths(times: WindowTimes, channels: int) -> Paths:
    """Return the work of both paths; ranks are divided evenly and in order among the channels."""
    return busiest(rank_work(times).sum(axis=0), channel_work(times, channels).sum(axis=0))


def busiest(of_ranks: Reals, of_channels: Reals) -> Paths:
    """Return the work of both paths from the work of every rank, [R], and of every channel, [C]."""
    return Paths(float(of_ranks.max()), float(of_channels.max()))


def rank_work(times: WindowTimes) -> Reals:
    """Return [W, R]: a rank's time for listing, reading, reducing and writing, as in :func:`.windows.run`."""
    work = times.adjacency + times.write_back + _reduction(times)
    return work if times.listing is None else work + times.listing.scan


def channel_work(times: WindowTimes, channels: int) -> Reals:
    """Return [W, C]: a channel's time for bundles, outputs, final vectors and lists."""
    per_channel = times.outputs + times.finals
    if times.listing is not None:
        per_channel = per_channel + times.listing.lists + times.listing.tiles[:, None]
    if times.transfer == "host":
        # Every channel of a pod carries all of the pod's bundles to its own ranks, and reads the bundles of
        # its own ranks.
        span = max(1, times.pod * channels // times.adjacency.shape[1])
        written = np.repeat(sums(times.bundle_in, channels // span), span, axis=1)
        per_channel = per_channel + written + sums(times.bundle_out, channels)
    return per_channel


def _reduction(times: WindowTimes) -> Reals:
    """Return [W, R]: time of a rank's reduction of all bundles of its pod."""
    windows, ranks = times.reads.shape
    shape = (windows, ranks // times.pod, times.pod)
    reads, edges = times.reads.reshape(shape), times.edges.reshape(shape)
    # A bundle that is cut into pieces fills the pipeline once per piece.
    fills = (edges > 0) * times.pieces[:, None, None] * times.fill_ns
    found = np.empty(shape)
    for place in range(times.pod):
        read, unit = (each[place :: times.pod, None] for each in (times.read_ns, times.unit_ns))
        work = np.maximum(reads * read, edges * unit) + fills * (read > 0)
        found[:, :, place] = work.sum(axis=2)
    return found.reshape(windows, ranks)
