"""One interface to the three levels: ranks behind a bus, and the time that traffic to them takes."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from onehop.errors import ArgumentError
from onehop.machines.dram import closed_form, command
from onehop.machines.dram.access import OPERATIONS, Access
from onehop.machines.dram.closed_form import lost_to_refresh
from onehop.machines.dram.command import CommandRun
from onehop.machines.dram.curve import BurstCost, Curve
from onehop.machines.dram.device import Dram
from onehop.machines.dram.layout import Layout, layout_for
from onehop.machines.dram.report import DramReport, report
from onehop.machines.dram.requests import Requests, generate

LEVELS = ("command", "curve", "closed")
SCHEDULERS = ("fr_fcfs", "fr_fcfs_rows")

# Requests of a command-level run that represents endless traffic: some hundred refreshes.
_LONG_RUN = 100_000
_MOST_QUEUE = 256


@dataclass(frozen=True, slots=True)
class Memory:
    """Ranks behind one data bus, with their controller.

    Attributes:
        dram: The device.
        ranks: Ranks behind the bus, a power of two up to 64; 1 for a unit that sees its own rank only.
        layout: How bursts lie in the ranks: a name or a list of fields (:class:`~.layout.Layout`).
        queue: Requests of a kind, reads or writes, that the controller chooses among; 1 to 256.
        refresh: Whether the ranks are refreshed.
        scheduler: ``fr_fcfs``: the oldest request whose next command is ready. ``fr_fcfs_rows``: the same,
            but a row that an older request still needs is not closed.
    """

    dram: Dram
    ranks: int = 1
    layout: str = "row_first"
    queue: int = 32
    refresh: bool = True
    scheduler: str = "fr_fcfs"

    def __post_init__(self) -> None:
        """Checks every field."""
        if not isinstance(self.dram, Dram):
            raise ArgumentError(f'dram: expected a Dram, as preset("DDR5_4800AN"), got {self.dram!r}.')
        layout_for(self.layout, self.dram.organisation, self.ranks)
        if type(self.queue) is not int or not 1 <= self.queue <= _MOST_QUEUE:
            raise ArgumentError(f"queue: expected an integer from 1 to {_MOST_QUEUE}, got {self.queue!r}.")
        if not isinstance(self.refresh, bool):
            raise ArgumentError(f"refresh: expected true or false, got {self.refresh!r}.")
        if self.scheduler not in SCHEDULERS:
            raise ArgumentError(
                f"scheduler: expected one of {', '.join(SCHEDULERS)}, got {self.scheduler!r}."
            )
        lost = max(lost_to_refresh(self.dram.timing, op, self.ranks) for op in OPERATIONS)
        if self.refresh and lost >= self.dram.timing.refi:
            raise ArgumentError(
                f"ranks: refreshing {self.ranks} in turn takes {lost} clocks of every "
                f"{self.dram.timing.refi} (timing.refi), which leaves no time for work; take fewer ranks, a "
                "longer refi, or refresh=False."
            )

    @property
    def address_layout(self) -> Layout:
        """The layout for these ranks."""
        return layout_for(self.layout, self.dram.organisation, self.ranks)

    def burst_cycles(self, access: Access, level: str = "closed") -> float:
        """Clocks a burst in endless traffic, refresh included.

        Raises:
            ArgumentError: The level is unknown.
        """
        return _closed(self, access) if level == "closed" else self.cost(access, level).cycles

    def cost(self, access: Access, level: str = "closed") -> BurstCost:
        """Clocks, row activations and row misses a burst in endless traffic.

        Row activations have no formula: which rows a controller closes depends on all waiting requests. The
        closed form takes them from a command-level run, which is cached.

        Args:
            access: The traffic.
            level: ``closed``, ``curve`` or ``command``.

        Raises:
            ArgumentError: The level is unknown.
        """
        return _cost(self, access, level)

    def gbps(self, access: Access, level: str = "closed") -> float:
        """Bandwidth in 1e9 bytes a second, whole bursts counted."""
        clock_ps = self.dram.timing.clock_ps
        return self.dram.organisation.burst_bytes / (self.burst_cycles(access, level) * clock_ps) * 1000.0

    def time_ns(
        self, runs: float | NDArray[np.float64], access: Access, level: str = "closed"
    ) -> float | NDArray[np.float64]:
        """Time of runs that are requested one after another: filling the pipeline, then burst by burst.

        Args:
            runs: Number of runs of ``access.run_bytes``; or [N] such numbers, one for each time runs are
                requested. 0 takes no time.
            access: The kind of runs.
            level: ``closed``, ``curve`` or ``command``.

        Returns:
            Nanoseconds, of the shape of ``runs``.
        """
        bursts = np.asarray(runs, dtype=np.float64) * access.run_bursts(self.dram.organisation)
        timing = self.dram.timing
        cycles = bursts * self.burst_cycles(access, level) + (timing.rcd + timing.cl + timing.bl)
        spent = np.where(bursts > 0, cycles * timing.clock_ps / 1000.0, 0.0)
        return float(spent) if spent.ndim == 0 else spent

    def run(self, access: Access, requests: int, level: str = "closed", seed: int = 0) -> DramReport:
        """A report of a number of bursts of traffic.

        Args:
            access: The traffic.
            requests: Bursts.
            level: ``closed``, ``curve`` or ``command``.
            seed: Seed of the addresses of random runs; used by the command level only.

        Raises:
            ArgumentError: A value is out of range.
        """
        if level == "command":
            return self.serve(self.requests(access, requests, seed))
        _check_count(requests)
        counts = _cost(self, access, level).counts(
            requests, access.op, self.dram.timing.refi, self.ranks if self.refresh else 0
        )
        return report(self.dram, level, self.ranks, counts)

    def requests(self, access: Access, count: int, seed: int = 0) -> Requests:
        """Requests of a kind of traffic.

        Args:
            access: The traffic.
            count: Bursts.
            seed: Seed of the addresses of random runs.
        """
        _check_count(count)
        return generate(access, self.dram.organisation, self.address_layout, count, seed)

    def serve(self, requests: Requests) -> DramReport:
        """A command-level report of given requests, such as those of a recorded trace.

        Raises:
            ArgumentError: A burst lies outside the ranks.
        """
        return report(self.dram, "command", self.ranks, self.commands(requests, log=False).counts)

    def commands(self, requests: Requests, log: bool = True) -> CommandRun:
        """The same, with every command that was issued.

        Args:
            requests: What to read and write, in this order.
            log: Whether to keep the commands, some 170 bytes a request.

        Raises:
            ArgumentError: A burst lies outside the ranks.
        """
        return command.serve(
            self.dram,
            self.address_layout,
            requests,
            queue=self.queue,
            refresh=self.refresh,
            scheduler=self.scheduler,
            log=log,
        )


def _check_count(requests: int) -> None:
    if type(requests) is not int or requests < 1:
        raise ArgumentError(f"requests: expected an integer of at least 1, got {requests!r}.")


def _cost(memory: Memory, access: Access, level: str) -> BurstCost:
    """Cost of a burst at a level."""
    if level == "closed":
        return replace(_measured(memory, access), cycles=_closed(memory, access))
    if level == "command":
        return _measured(memory, access)
    if level == "curve":
        if access.pattern == "sequential":
            return _measured(memory, access)
        return _curve(memory, access.op, access.span_bytes).at(access.run_bursts(memory.dram.organisation))
    raise ArgumentError(f"level: expected one of {', '.join(LEVELS)}, got {level!r}.")


@lru_cache(maxsize=4096)
def _closed(memory: Memory, access: Access) -> float:
    return closed_form.burst_cycles(
        memory.dram, access, memory.address_layout, memory.ranks, memory.queue, memory.refresh
    )


@lru_cache(maxsize=1024)
def _measured(memory: Memory, access: Access) -> BurstCost:
    counts = memory.commands(memory.requests(access, _LONG_RUN), log=False).counts
    return BurstCost.of(counts)


@lru_cache(maxsize=256)
def _curve(memory: Memory, op: str, span_bytes: int | None) -> Curve:
    """The curve from one burst to four rows, in powers of two: longer runs are like sequential traffic."""
    shape = memory.dram.organisation
    lengths = [1 << i for i in range((4 * shape.row_bursts).bit_length())]
    points = [
        _measured(memory, Access("random", length * shape.burst_bytes, op, span_bytes)) for length in lengths
    ]
    return Curve(tuple(lengths), tuple(points))
