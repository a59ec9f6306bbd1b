"""Time of transfers between host and cores, and of merging on the host."""

from collections.abc import Sequence

import numpy as np

from onehop.machines.pim.config import Links, PimConfig
from onehop.machines.pim.costs import interpolate


def broadcast_ns(config: PimConfig, delivered_bytes: float) -> float:
    """Time of sending all cores of every rank the same, counted at the receivers; latency included."""
    links = config.links
    rate = min(links.broadcast_gbps, links.rank_broadcast_gbps * config.ranks)
    return delivered_bytes / rate + links.call_us * 1e3 if delivered_bytes else 0.0


def push_ns(config: PimConfig, sent_bytes: float) -> float:
    """Time of sending each core its own data; latency included."""
    links = config.links
    rate = min(links.push_gbps, links.rank_push_gbps * config.ranks)
    return sent_bytes / rate + links.call_us * 1e3 if sent_bytes else 0.0


def retrieve_ns(config: PimConfig, rank_blocks: np.ndarray, reuse_buffers: bool) -> float:
    """Time of receiving a block of a given size from each core of every rank; latency included.

    Where the host's buffers are kept, the first touches of their pages cost nothing: the measured rates
    include buffers that are new in every call. That the rates include this is a hypothesis.
    """
    links = config.links
    sizes = rank_blocks * np.array(config.rank_cores)
    if not sizes.sum():
        return 0.0
    rates = np.minimum(interpolate(links.pull_gbps, rank_blocks / 1024), links.rank_pull_gbps * config.ranks)
    time = float((sizes / rates).sum())
    if reuse_buffers:
        saved = float(sizes.sum()) / links.page_bytes * links.page_fault_ns
        time = max(time - saved, float(sizes.sum()) / links.host_dram_gbps)
    return time + links.call_us * 1e3


def merge_ns(
    links: Links, rows: Sequence[float], widths: Sequence[float], adds: Sequence[bool], threads: int
) -> float:
    """Time of copying or adding rows of slices of a given number of 4-byte values, by a number of threads."""
    time = 0.0
    for count, width, add in zip(rows, widths, adds, strict=True):
        time += count * float(interpolate(links.add_ns if add else links.copy_ns, width))
    return time / threads


def shared_finish(sizes: np.ndarray, gbps: float) -> np.ndarray:
    """End times of several transfers that share a link evenly, in ns.

    Args:
        sizes: [n], bytes.
        gbps: Bandwidth of the link.
    """
    order = np.argsort(sizes, kind="stable")
    finish = np.empty(len(sizes))
    time, before = 0.0, 0.0
    for place, which in enumerate(order):
        time += (sizes[which] - before) * (len(sizes) - place) / gbps
        before = sizes[which]
        finish[which] = time
    return finish
