"""One interface to both levels: ranks behind a bus, and the time that traffic to these ranks takes."""

import math
from bisect import bisect_right
from dataclasses import astuple, dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from onehop.errors import ArgumentError, check_choice
from onehop.machines.common.checks import check, check_integer
from onehop.machines.dram.command import REFRESHES, SCHEDULERS, CommandRun, Controller, serve
from onehop.machines.dram.device import Dram
from onehop.machines.dram.layout import Layout, layout_for
from onehop.machines.dram.limits import Limits, limits, lost_to_refresh
from onehop.machines.dram.report import CommandCounts, DramReport, report
from onehop.machines.dram.requests import OPERATIONS, Access, Requests, generate

LEVELS = ("command", "curve")
# Number of requests in a command-level run that represents endless traffic; it includes about a hundred
# refreshes.
_LONG_RUN = 100_000
_MOST = {"queue": 256, "close_after": 1 << 20}


@dataclass(frozen=True, slots=True)
class BurstCost:
    """Cost of one burst in endless traffic.

    Attributes:
        cycles: Clocks.
        activations: ACT commands.
        misses: Requests that find their bank closed.
        open_clocks: Clocks in which a row is open, summed over the banks.
    """

    cycles: float
    activations: float
    misses: float
    open_clocks: float

    @classmethod
    def of(cls, counts: CommandCounts) -> "BurstCost":
        """Return the mean over a run."""
        bursts = counts.reads + counts.writes
        each = counts.cycles, counts.activations, counts.row_misses, counts.open_clocks
        return cls(*(count / bursts for count in each))

    def counts(self, bursts: int, op: str, refi: int, refreshed_ranks: int) -> CommandCounts:
        """Return the counts for this many bursts; ``refreshed_ranks`` are refreshed every ``refi`` clocks."""
        cycles = round(bursts * self.cycles)
        activations = min(bursts, round(bursts * self.activations))
        misses = min(activations, round(bursts * self.misses))
        return CommandCounts(
            cycles=cycles,
            reads=bursts if op == "read" else 0,
            writes=bursts if op == "write" else 0,
            row_hits=bursts - activations,
            row_misses=misses,
            row_conflicts=activations - misses,
            activations=activations,
            refreshes=cycles // refi * refreshed_ranks,
            open_clocks=round(bursts * self.open_clocks),
        )


@dataclass(frozen=True, slots=True)
class Curve:
    """Costs of random runs by their length.

    Attributes:
        lengths: Lengths of runs in bursts, ascending.
        costs: Cost of a burst at each length.
    """

    lengths: tuple[int, ...]
    costs: tuple[BurstCost, ...]

    def at(self, length: int) -> BurstCost:
        """Return the cost at a length: linear in its logarithm between points, constant beyond the ends."""
        right = bisect_right(self.lengths, length)
        if right == 0 or right == len(self.lengths):
            return self.costs[max(0, right - 1)]
        low, high = self.lengths[right - 1], self.lengths[right]
        share = math.log(length / low) / math.log(high / low)
        ends = zip(astuple(self.costs[right - 1]), astuple(self.costs[right]), strict=True)
        return BurstCost(*(before + share * (after - before) for before, after in ends))


@dataclass(frozen=True, slots=True)
class Memory:
    """Ranks behind one data bus, with their memory controller.

    Attributes:
        dram: The device.
        ranks: Ranks behind the bus, a power of two up to 64; 1 for a unit that sees its own rank only.
        layout: How bursts are placed in the ranks: a name or a list of fields (:class:`~.layout.Layout`).
        queue: Requests of a kind, reads or writes, that the controller chooses among; 1 to 256.
        refresh: Whether the ranks are refreshed.
        scheduler: ``fr_fcfs`` serves the oldest request whose next command is ready. ``fr_fcfs_rows`` does so
            too, but does not close a row that an older request still needs.
        refresh_mode: ``all_bank`` refreshes all banks of a rank at once, every REFI. ``same_bank`` refreshes
            one set of banks after another (:class:`Organisation`) while the other banks work; the device must
            have ``rfc_sb``.
        close_after: Number of accesses after which an open row is closed as soon as possible; 1 is the
            closed-page policy. 0 is the open-page policy: a row stays open until its bank needs another row.

    Examples:
        >>> from onehop.machines.dram import Access, Memory, preset
        >>> memory = Memory(preset("DDR5_4800AN"))
        >>> report = memory.run(Access("random", run_bytes=64), requests=1000)
        >>> report.served, round(report.percent_of_peak)
        (1000, 62)
    """

    dram: Dram
    ranks: int = 1
    layout: str = "row_first"
    queue: int = 32
    refresh: bool = True
    scheduler: str = "fr_fcfs"
    refresh_mode: str = "all_bank"
    close_after: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.dram, Dram):
            raise ArgumentError(f'dram: expected a Dram, as preset("DDR5_4800AN"), got {self.dram!r}.')
        layout_for(self.layout, self.dram.organisation, self.ranks)
        check(self, error=ArgumentError, least={"close_after": 0}, most=_MOST)
        check_choice("scheduler", self.scheduler, SCHEDULERS)
        check_choice("refresh_mode", self.refresh_mode, REFRESHES[1:])
        if self.refresh_mode == "same_bank" and not self.dram.timing.rfc_sb:
            raise ArgumentError(
                f"refresh_mode: {self.dram.name} has no same-bank refresh; give the device timing.rfc_sb and "
                "timing.refi_sb, or take all_bank."
            )
        self._check_same_bank()
        lost = max(lost_to_refresh(self.dram.timing, op, self.ranks) for op in OPERATIONS)
        if self.refresh and self.refresh_mode == "all_bank" and lost >= self.dram.timing.refi:
            raise ArgumentError(
                f"ranks: refreshing {self.ranks} in turn takes {lost} clocks of every "
                f"{self.dram.timing.refi} (timing.refi), which leaves no time for work; take fewer ranks, a "
                "longer refi, or refresh=False."
            )

    def _check_same_bank(self) -> None:
        """Refuse same-bank refreshes that leave no time for work."""
        timing = self.dram.timing
        # Rows are closed one by one, in every rank.
        last_access = max(timing.ras, timing.cwl + timing.bl + timing.wr)
        closed = last_access + self.dram.organisation.refresh_set * timing.ppd + timing.rp
        if self.refresh and self.refresh_mode == "same_bank" and self.ranks * closed >= timing.refi_sb:
            raise ArgumentError(
                f"ranks: closing the rows for a same-bank refresh of {self.ranks} takes up to "
                f"{self.ranks * closed} clocks of every {timing.refi_sb} (timing.refi_sb), which leaves no "
                "time for work; take fewer ranks, a longer refi_sb, or all_bank."
            )

    @property
    def address_layout(self) -> Layout:
        """The layout for these ranks."""
        return layout_for(self.layout, self.dram.organisation, self.ranks)

    def burst_cycles(self, access: Access, level: str = "command") -> float:
        """Return the clocks per burst in endless traffic, including refresh.

        Raises:
            ArgumentError: The level is unknown.
        """
        return self.cost(access, level).cycles

    def cost(self, access: Access, level: str = "command") -> BurstCost:
        """Return the clocks, row activations and row misses per burst in endless traffic.

        Both levels are based on runs of the command level, which are cached.

        Args:
            access: The traffic.
            level: ``command`` or ``curve``.

        Raises:
            ArgumentError: The level is unknown.
        """
        check_level(level)
        if level == "command":
            return _measured(self, access)
        if access.write_share is not None:
            raise ArgumentError(f"level: expected command, which alone knows mixed traffic, got {level!r}.")
        if access.pattern == "sequential":
            return _measured(self, access)
        return _curve(self, access.op, access.span_bytes).at(access.run_bursts(self.dram.organisation))

    def limits(self, access: Access) -> Limits:
        """Return the limits of this endless traffic, computed from the timings alone, without a run.

        Raises:
            ArgumentError: The formula does not cover this memory's policy or this traffic
                (:meth:`why_no_limits`).
        """
        why = self.why_no_limits(access)
        if why:
            raise ArgumentError(f"limits: {why}.")
        return limits(self.dram, access, self.address_layout, self.ranks, self.queue, self.refresh)

    def why_no_limits(self, access: Access) -> str:
        """Return why :meth:`limits` has no answer for this traffic; empty if it has one."""
        if self.refresh and self.refresh_mode != "all_bank":
            return "the formula knows refreshes of all banks only; simulate refreshes by bank"
        if self.close_after:
            return "the formula knows open pages only; simulate pages that are closed"
        if access.write_share is not None:
            return "the formula knows reads alone or writes alone; simulate mixed traffic"
        if access.span_bytes is not None:
            return "the formula knows runs all over the ranks only; simulate a small range of addresses"
        return ""

    def gbps(self, access: Access, level: str = "command") -> float:
        """Return the bandwidth in 1e9 bytes per second; whole bursts are counted."""
        clock_ps = self.dram.timing.clock_ps
        return self.dram.organisation.burst_bytes / (self.burst_cycles(access, level) * clock_ps) * 1000.0

    def time_ns(
        self, runs: float | NDArray[np.float64], access: Access, level: str = "command"
    ) -> float | NDArray[np.float64]:
        """Return the time of runs requested one after another: filling the pipeline, then burst by burst.

        Args:
            runs: Number of runs of ``access.run_bytes``; or [N] such numbers, one for each batch of requests.
                0 takes no time.
            access: The kind of runs.
            level: ``command`` or ``curve``.

        Returns:
            Nanoseconds, in the shape of ``runs``.
        """
        bursts = np.asarray(runs, dtype=np.float64) * access.run_bursts(self.dram.organisation)
        timing = self.dram.timing
        cycles = bursts * self.burst_cycles(access, level) + (timing.rcd + timing.cl + timing.bl)
        spent = np.where(bursts > 0, cycles * timing.clock_ps / 1000.0, 0.0)
        return float(spent) if spent.ndim == 0 else spent

    def run(self, access: Access, requests: int, level: str = "command", seed: int = 0) -> DramReport:
        """Return a report of a given number of bursts of traffic.

        Args:
            access: The traffic.
            requests: Number of bursts.
            level: ``command`` or ``curve``.
            seed: Seed of the addresses of random runs; used by the command level only.

        Raises:
            ArgumentError: A value is out of range.
        """
        if level == "command":
            return self.serve(self.requests(access, requests, seed))
        check_integer("requests", requests)
        counts = self.cost(access, level).counts(
            requests, access.op, self._refresh_clocks, self.ranks if self.refresh else 0
        )
        return report(self.dram, level, self.ranks, counts, self.refreshed_share)

    def requests(self, access: Access, count: int, seed: int = 0) -> Requests:
        """Generate requests for the given traffic.

        Args:
            access: The traffic.
            count: Number of bursts.
            seed: Seed of the addresses of random runs.
        """
        check_integer("requests", count)
        return generate(access, self.dram.organisation, self.address_layout, count, seed)

    def refresh_nj(self, time_ns: float) -> float:
        """Return a rank's energy for refreshes in a time, in nJ; it scales with the banks per refresh."""
        if not self.refresh:
            return 0.0
        every_ns = self._refresh_clocks * self.dram.timing.clock_ps / 1000.0
        return time_ns / every_ns * self.dram.energy.refresh_nj * self.refreshed_share

    @property
    def _refresh_clocks(self) -> int:
        timing = self.dram.timing
        return timing.refi_sb if self.refresh_mode == "same_bank" else timing.refi

    @property
    def refreshed_share(self) -> float:
        """Share of a rank's banks that one refresh takes."""
        shape = self.dram.organisation
        return shape.refresh_set / shape.banks if self.refresh_mode == "same_bank" else 1.0

    def serve(self, requests: Requests) -> DramReport:
        """Return a command-level report of given requests, for example of a recorded trace.

        Raises:
            ArgumentError: A burst is outside the ranks.
        """
        return report(
            self.dram, "command", self.ranks, self.commands(requests, log=False).counts, self.refreshed_share
        )

    def commands(self, requests: Requests, log: bool = True) -> CommandRun:
        """Run given requests at the command level, with a log of every command that was issued.

        Args:
            requests: The bursts to read and write, in this order.
            log: Whether to keep the commands, about 170 bytes per request.

        Raises:
            ArgumentError: A burst is outside the ranks.
        """
        refresh = self.refresh_mode if self.refresh else "none"
        controller = Controller(self.queue, refresh, self.scheduler, self.close_after)
        return serve(self.dram, self.address_layout, requests, controller, log)


def check_level(level: str) -> None:
    """Refuse a level of simulation that does not exist.

    Raises:
        ArgumentError: The level is unknown.
    """
    if level == "closed":
        raise ArgumentError(
            "level: the closed form is no level of simulation but an explanation of what binds "
            "(Memory.limits, and a line of onehop simulate dram); take command or curve."
        )
    check_choice("level", level, LEVELS)


@lru_cache(maxsize=1024)
def _measured(memory: Memory, access: Access) -> BurstCost:
    counts = memory.commands(memory.requests(access, _LONG_RUN), log=False).counts
    return BurstCost.of(counts)


@lru_cache(maxsize=256)
def _curve(memory: Memory, op: str, span_bytes: int | None) -> Curve:
    """Return the curve from one burst to four rows, in powers of two; longer runs cost as streams do."""
    shape = memory.dram.organisation
    lengths = [1 << i for i in range((4 * shape.row_bursts).bit_length())]
    points = [
        _measured(memory, Access("random", length * shape.burst_bytes, op, span_bytes)) for length in lengths
    ]
    return Curve(tuple(lengths), tuple(points))
