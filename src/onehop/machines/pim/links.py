"""Time of transfers between host and cores, and of merging on the host."""

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import interpolate
from onehop.machines.pim.parts import Links, Points


def broadcast_gbps(config: PimConfig) -> float:
    """Return the rate of sending the same data to all cores of every rank, counted at the receivers."""
    links = config.links
    full = links.broadcast_gbps[0][1]
    share = fmean(_ranks_gbps(config, links.core_push_gbps, full)) / full
    return _power_law(links.broadcast_gbps, config.ranks) * share


def push_gbps(config: PimConfig) -> float:
    """Return the rate of sending each core its own data."""
    links = config.links
    return min(links.push_gbps, sum(_ranks_gbps(config, links.core_push_gbps, links.rank_push_gbps)))


def pull_limit_gbps(config: PimConfig) -> float:
    """Return the rate at which the cores of all ranks send together."""
    return sum(_ranks_gbps(config, config.links.core_pull_gbps, config.links.rank_pull_gbps))


def broadcast_ns(config: PimConfig, delivered_bytes: float) -> float:
    """Return the time of sending the same data to all cores of every rank, including latency."""
    call_ns = config.links.call_us * 1e3
    return delivered_bytes / broadcast_gbps(config) + call_ns if delivered_bytes else 0.0


def push_ns(config: PimConfig, sent_bytes: float) -> float:
    """Return the time of sending each core its own data, including latency."""
    return sent_bytes / push_gbps(config) + config.links.call_us * 1e3 if sent_bytes else 0.0


def retrieve_ns(config: PimConfig, rank_blocks: np.ndarray, reuse_buffers: bool) -> float:
    """Return the time of receiving a block of a rank's size from each of its cores, including latency.

    If the host reuses its buffers, first touches of their pages cost nothing: the measured rates include
    buffers that are new in every call. That the rates include this is a hypothesis.
    """
    links = config.links
    sizes = rank_blocks * np.array(config.rank_cores)
    if not sizes.sum():
        return 0.0
    rates = np.minimum(interpolate(links.pull_gbps, rank_blocks / 1024), pull_limit_gbps(config))
    time = float((sizes / rates).sum())
    if reuse_buffers:
        saved = float(sizes.sum()) / links.page_bytes * links.page_fault_ns
        time = max(time - saved, float(sizes.sum()) / links.host_dram_gbps)
    return time + links.call_us * 1e3


def merge_ns(
    links: Links, rows: Sequence[float], widths: Sequence[float], adds: Sequence[bool], threads: int
) -> float:
    """Return the time of copying or adding rows of slices of 4-byte values, by a number of threads."""
    time = 0.0
    for count, width, add in zip(rows, widths, adds, strict=True):
        time += count * float(interpolate(links.add_ns if add else links.copy_ns, width))
    return time / threads


def shared_finish(sizes: np.ndarray, gbps: float) -> np.ndarray:
    """Return end times in ns of transfers of ``sizes`` bytes, [n], that share a link evenly."""
    order = np.argsort(sizes, kind="stable")
    finish = np.empty(len(sizes))
    time, before = 0.0, 0.0
    for place, which in enumerate(order):
        time += (sizes[which] - before) * (len(sizes) - place) / gbps
        before = sizes[which]
        finish[which] = time
    return finish


def _ranks_gbps(config: PimConfig, core_gbps: float, rank_gbps: float) -> list[float]:
    """Return the rate of each rank by its cores: a power law through one core's rate and a full rank's."""
    points = (1.0, core_gbps), (float(config.links.full_rank_cores), rank_gbps)
    return [_power_law(points, cores) for cores in config.rank_cores]


def _power_law(points: Points, at: float) -> float:
    """Return the curve's value, interpolated on logarithms; beyond its ends, the value at the end."""
    places, values = zip(*points, strict=True)
    logs = [math.log(value) for value in values]
    return math.exp(float(np.interp(math.log(at), [math.log(place) for place in places], logs)))
