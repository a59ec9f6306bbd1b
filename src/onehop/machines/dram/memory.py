"""One interface to the three levels: ranks behind a bus, and how long traffic to them takes."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from onehop.errors import ArgumentError
from onehop.machines.dram.access import Access
from onehop.machines.dram.closed_form import Estimate, estimate
from onehop.machines.dram.device import Dram
from onehop.machines.dram.layout import Layout, layout_for
from onehop.machines.dram.report import Counts, DramReport, report

LEVELS = ("command", "curve", "closed")


@dataclass(frozen=True, slots=True)
class Memory:
    """Ranks behind one data bus, with their controller.

    Attributes:
        dram: The device.
        ranks: Ranks behind the bus, a power of two; 1 for what a unit beside its rank sees.
        layout: How bursts lie in the ranks: a name or a list of fields (:class:`~.layout.Layout`).
        queue: Requests of a kind, reads or writes, that the controller chooses among.
        refresh: Whether the ranks are refreshed.
    """

    dram: Dram
    ranks: int = 1
    layout: str = "row_first"
    queue: int = 32
    refresh: bool = True

    def __post_init__(self) -> None:
        """Checks every field."""
        layout_for(self.layout, self.dram.organisation, self.ranks)
        if type(self.queue) is not int or not 1 <= self.queue <= 1024:
            raise ArgumentError(f"queue: expected an integer from 1 to 1024, got {self.queue!r}.")

    @property
    def address_layout(self) -> Layout:
        """The layout for these ranks."""
        return layout_for(self.layout, self.dram.organisation, self.ranks)

    def burst_cycles(self, access: Access, level: str = "closed") -> float:
        """Clocks a burst in traffic without an end, refresh included.

        Raises:
            ArgumentError: There is no such level.
        """
        return _burst_cycles(self, access, level)

    def gbps(self, access: Access, level: str = "closed") -> float:
        """Bandwidth in 1e9 bytes a second, whole bursts counted."""
        clock_ps = self.dram.timing.clock_ps
        return self.dram.organisation.burst_bytes / (self.burst_cycles(access, level) * clock_ps) * 1000.0

    def time_ns(
        self, runs: float | NDArray[np.float64], access: Access, level: str = "closed"
    ) -> float | NDArray[np.float64]:
        """How long runs take that are asked for one after another: filling the pipeline, then burst by burst.

        Args:
            runs: How many runs of ``access.run_bytes``, or [N] such numbers, one for each time asked for. 0
                takes no time.
            access: What kind of runs.
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
        """So many bursts of traffic, and what they come to.

        Args:
            access: The traffic.
            requests: Bursts.
            level: ``closed``, ``curve`` or ``command``.
            seed: Where random runs start.

        Raises:
            ArgumentError: A value that cannot be.
        """
        if type(requests) is not int or requests < 1:
            raise ArgumentError(f"requests: expected an integer of at least 1, got {requests!r}.")
        return report(self.dram, level, self.ranks, _counts(self, access, requests, level))


@lru_cache(maxsize=4096)
def _estimate(memory: Memory, access: Access) -> Estimate:
    return estimate(memory.dram, access, memory.address_layout, memory.ranks, memory.queue, memory.refresh)


def _burst_cycles(memory: Memory, access: Access, level: str) -> float:
    if level == "closed":
        return _estimate(memory, access).burst_cycles
    raise ArgumentError(f"level: expected one of {', '.join(LEVELS)}, got {level!r}.")


def _counts(memory: Memory, access: Access, requests: int, level: str) -> Counts:
    """Counts from a time a burst; misses are the first activations of each bank after a refresh."""
    found = _estimate(memory, access)
    cycles = round(requests * _burst_cycles(memory, access, level))
    activations = round(requests / found.bursts_per_activation)
    refreshes = cycles // memory.dram.timing.refi * memory.ranks if memory.refresh else 0
    misses = min(activations, (refreshes + memory.ranks) * memory.dram.organisation.banks)
    return Counts(
        cycles=cycles,
        reads=requests if access.op == "read" else 0,
        writes=requests if access.op == "write" else 0,
        row_hits=requests - activations,
        row_misses=misses,
        row_conflicts=activations - misses,
        activations=activations,
        refreshes=refreshes,
    )
