"""Counts of single windows of a graph, computed from the rows of their own targets only.

A window's counts depend only on the edges of its own targets. So windows of a graph that does not fit into
memory can be counted once their own rows are known.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onehop.machines.native import extension
from onehop.machines.ndp.config import NdpConfig
from onehop.machines.ndp.counts import (
    RankWorkload,
    Rows,
    Sizes,
    TargetGroups,
    WindowCounts,
    assigned_rows,
    count,
)
from onehop.machines.ndp.mapping import Integers, Pods, owners
from onehop.machines.ndp.sampling import Runs

# Number of windows that are simulated before a run, to bring the machine into the state in which the previous
# windows would leave it.
_WARM_WINDOWS = 8


class RowSource(Protocol):
    """A graph that returns the sources of any destinations, for example :func:`onehop.datasets.implicit`."""

    num_nodes: int

    def rows(self, nodes: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return row pointers, [M + 1], and sources of these M destinations."""


class ComputedTargets:
    """Targets, in node order, of a graph whose rows are computed on demand.

    Args:
        source: The graph.
        config: The machine.
        retile: ``index`` or ``none``.
        pods: A user's mapping that assigns nodes to ranks; None means that nodes are assigned in turn.
    """

    def __init__(self, source: RowSource, config: NdpConfig, retile: str, pods: Pods | None) -> None:
        self._source, self.retile = source, retile
        self.num_src = self.num_dst = source.num_nodes
        self.num_edges: int | None = None
        topology = config.topology
        self.owner = (partial(owners, topology) if pods is None else pods.owners)(source.num_nodes)
        self.nodes_of_rank = np.bincount(self.owner, minlength=topology.ranks)
        # Unknown; only re-tiled graphs need these numbers.
        self.edges_of_rank = np.zeros_like(self.nodes_of_rank)
        self.sizes = Sizes.of(topology, config.module.adjacency_entry_bytes, config.burst_bytes, pods)

    def rows(self, first: int, last: int) -> Rows:
        """Return the targets from ``first`` up to ``last``."""
        rowptr, col = self._source.rows(np.arange(first, last))
        return Rows(rowptr, col, self.owner[first:last], None)


# Targets in order of processing, of a graph in memory or of a graph whose rows are computed.
Targets = RankWorkload | ComputedTargets


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive windows, in the form that traffic needs.

    Attributes:
        num_dst: Number of targets in the windows.
        num_edges: Number of edges of these targets.
        order: [num_dst]: the targets in order of processing; None means node order.
        nodes_of_rank: [R]: sources of the whole graph that are assigned to each rank.
        edges_of_rank: [R]: edges of each rank's part of the whole adjacency.
        counted: Counts of the windows.
    """

    num_dst: int
    num_edges: int
    order: NDArray[np.int32] | None
    nodes_of_rank: Integers
    edges_of_rank: Integers
    counted: WindowCounts

    def counts(self, shape: TargetGroups) -> WindowCounts:
        """Return the counts of the windows, whose shape was fixed when they were counted."""
        return self.counted


class Stretch(NamedTuple):
    """Windows from ``first`` up to ``last``; they contain the runs from ``runs[0]`` up to ``runs[1]``."""

    first: int
    last: int
    runs: tuple[int, int]


def stretches(runs: Runs, windows: int) -> list[Stretch]:
    """Return the windows to simulate: every run, some windows before it, and one after it.

    The window after a run is needed because the run reads its adjacency. Runs whose windows meet are
    simulated in one go, so a sample of all windows simulates the whole layer.

    Args:
        runs: The runs.
        windows: Number of windows in the layer.
    """
    found: list[Stretch] = []
    for number, (begin, end) in enumerate(zip(runs.first.tolist(), runs.last.tolist(), strict=True)):
        first, last = max(0, begin - _WARM_WINDOWS), min(windows, end + 1)
        if found and first <= found[-1].last:
            found[-1] = Stretch(found[-1].first, last, (found[-1].runs[0], number + 1))
        else:
            found.append(Stretch(first, last, (number, number + 1)))
    return found


def segments(
    config: NdpConfig, targets: Targets, shape: TargetGroups, wanted: list[Stretch]
) -> Iterator[Segment]:
    """Yield the counts of stretches of windows, one after another; targets are in order of processing."""
    ranks = config.topology.ranks
    for stretch in wanted:
        first, last = stretch.first * shape.window, min(stretch.last * shape.window, targets.num_dst)
        taken = targets.rows(first, last)
        work = extension.NdpWork(
            taken.rowptr.ctypes.data,
            taken.col.ctypes.data,
            0,
            last - first,
            targets.num_src,
            targets.owner.ctypes.data,
            ranks,
        )
        # Use one thread: each thread needs 4 bytes per source of the whole graph.
        rows = assigned_rows(taken.owner, ranks, shape.block)
        found = count(work, shape.tile, shape.block, targets.sizes, rows, threads=1)
        found = found.grouped(shape.window // shape.block)
        if targets.retile == "none":
            found = replace(found, reads=found.edges)
        of_ranks = targets.nodes_of_rank, targets.edges_of_rank
        yield Segment(last - first, len(taken.col), taken.order, *of_ranks, found)
