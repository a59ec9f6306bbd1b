"""Feature reads of single windows as requests; they check the DRAM model against the command level."""

from dataclasses import dataclass

import numpy as np

from onehop.machines.dram import Requests
from onehop.machines.ndp.durations import read_cost
from onehop.machines.ndp.layer import LayerRun

# Number of windows that are sampled from a layer, and maximum number of requests of a window.
_WINDOWS, _REQUESTS = 4, 50_000


@dataclass(frozen=True, slots=True)
class RankReads:
    """Feature reads of a rank in a sample of windows.

    Attributes:
        rank: Number of the rank.
        windows: Numbers of the windows.
        requests: The bursts that the rank reads, window by window.
    """

    rank: int
    windows: list[int]
    requests: Requests


def window_reads(run: LayerRun, window: int, rank: int) -> Requests:
    """Return the bursts of feature slices that a rank reads in a window, in the rank's order.

    The rank reads bundle by bundle. In each bundle it reads the tiles in order, and in a tile every source
    once, when it is first needed. A rank stores the slices of its pod's nodes contiguously, each aligned to a
    burst, starting with the nodes assigned to the pod's first rank (:func:`~.durations.read_cost` explains
    why).
    """
    traffic = run.traffic
    workload, pods, shape = run.workload, traffic.pods, traffic.shape
    first = rank // pods.size * pods.size
    in_pod = (workload.owner >= first) & (workload.owner < first + pods.size)
    nodes = np.flatnonzero(in_pod)
    place = np.zeros(workload.graph.num_src, dtype=np.int64)
    place[nodes[np.argsort(workload.owner[nodes], kind="stable")]] = np.arange(len(nodes))

    begin = window * shape.window
    rows = workload.rows(begin, min(begin + shape.window, workload.num_dst))
    degrees = np.diff(rows.rowptr)
    tile, kept = np.repeat(np.arange(len(degrees)) // shape.tile, degrees), in_pod[rows.col]
    source, tile = rows.col[kept], tile[kept]
    if workload.retile != "none":
        _, once = np.unique(tile * np.int64(workload.graph.num_src) + source, return_index=True)
        source = source[np.sort(once)]
    source = source[np.argsort(workload.owner[source], kind="stable")]
    bursts = int(traffic.slice_bursts[rank])
    starts = place[source] * bursts % (run.memory.rank.address_layout.bursts - bursts)
    wanted = (starts[:, None] + np.arange(bursts)).reshape(-1)
    return Requests(wanted, np.zeros(len(wanted), dtype=np.uint8))


def model_error_percent(run: LayerRun) -> float:
    """Return the error of the modelled time of some windows' feature reads against the command level, in %.

    The windows are spread over the layer. Each contributes the rank that reads most; of very long windows,
    only the beginning is used. The error is 0 if nothing is read.
    """
    counts = run.traffic.pod_reads
    clock_ns, modelled, found = run.memory.device.timing.clock_ps / 1000.0, 0.0, 0.0
    for window in _sampled(run):
        rank = int(counts[window].argmax())
        requests = _beginning(run, window, rank)
        if not len(requests):
            continue
        bursts = int(run.traffic.slice_bursts[rank])
        modelled += len(requests) * read_cost(run.traffic, run.memory, bursts).ns + run.memory.fill_ns
        found += run.memory.rank.commands(requests, log=False).counts.cycles * clock_ns
    return 100.0 * (modelled / found - 1.0) if found else 0.0


def sampled_reads(run: LayerRun) -> RankReads:
    """Return feature reads of the rank that reads most in the layer, in a few windows spread over the layer.

    Only the beginning of very long windows is used.
    """
    rank, windows = int(run.traffic.pod_reads.sum(axis=0).argmax()), _sampled(run)
    read = [_beginning(run, window, rank).bursts for window in windows]
    bursts = np.concatenate([np.zeros(0, dtype=np.int64), *read])
    return RankReads(rank, windows, Requests(bursts, np.zeros(len(bursts), dtype=np.uint8)))


def _sampled(run: LayerRun) -> list[int]:
    """Return the numbers of a few windows, spread over the layer; an empty list if nothing is read."""
    counts = run.traffic.pod_reads
    if not counts.sum():
        return []
    windows: list[int] = np.unique(np.linspace(0, len(counts) - 1, _WINDOWS).astype(np.int64)).tolist()
    return windows


def _beginning(run: LayerRun, window: int, rank: int) -> Requests:
    """Return a rank's reads in a window; for very long windows, only the first reads."""
    requests = window_reads(run, window, rank)
    return Requests(requests.bursts[:_REQUESTS], requests.writes[:_REQUESTS])
