"""Limits of endless traffic: the clocks per burst that each limit would allow, from the timings alone.

The limits explain a result; they are not a level of simulation. They say which rule limits the traffic, and
by how much the other rules are less strict. Times and row counts come from the command level.

The limits are the data bus (BL), row activations (FAW / 4, RRD_S, RC over all banks), the command bus, and
the distance between bursts of one bank group (CCD_L) divided by the number of bank groups that the queue has
work for. A refresh takes L out of every REFI clocks, from the last data before it to the first data after it.

The number of bank groups that the queue has work for follows from the number of runs that the queue holds: k
= queue / run + 1 (the last run left the queue when its row was opened), and at least two. Runs at random
addresses fall onto bank groups like balls into boxes; runs longer than a row visit the bank groups in the
layout's order.
"""

import math
from dataclasses import dataclass

import numpy as np

from onehop.machines.dram.device import Dram, Organisation, Timing
from onehop.machines.dram.layout import Layout
from onehop.machines.dram.requests import Access

# Number of sampled start addresses at which a run's rows are counted. It is enough for an average over runs
# that are not aligned to rows.
_PLACES = 64
# Limits that differ by less than this factor are named in the order of the fields; the formula is no more
# precise.
_AS_GOOD_AS_EQUAL = 1.01


@dataclass(frozen=True, slots=True)
class Limits:
    """Clocks per burst that each limit would allow if it were the only one.

    Attributes:
        bus: The data bus: BL.
        bank_groups: The distance between bursts of one bank group, and the cost of changing the rank on the
            bus.
        rows: Row activations.
        commands: The command buses.
        refresh_share: Share of the time without data because of refreshes.

    Examples:
        >>> from onehop.machines.dram import Access, Memory, preset
        >>> limits = Memory(preset("DDR5_4800AN")).limits(Access("random", run_bytes=64))
        >>> limits.binds, limits.rows, limits.bus  # opening rows, not the data bus, limits random reads
        ('rows', 12.0, 8)
    """

    bus: float
    bank_groups: float
    rows: float
    commands: float
    refresh_share: float

    @property
    def binds(self) -> str:
        """Name of the strictest limit; among limits within 1 % of it, the first one."""
        clocks = self.clocks()
        strictest = max(clocks.values())
        return next(name for name, value in clocks.items() if value * _AS_GOOD_AS_EQUAL >= strictest)

    @property
    def cycles(self) -> float:
        """Clocks per burst if only the strictest limit and refreshes slowed traffic down."""
        return max(self.clocks().values()) / (1.0 - self.refresh_share)

    def clocks(self) -> dict[str, float]:
        """Return the clocks per burst by limit."""
        return {
            "bus": self.bus,
            "bank_groups": self.bank_groups,
            "rows": self.rows,
            "commands": self.commands,
        }


@dataclass(frozen=True, slots=True)
class _Shape:
    """Placement of a run in the banks.

    Attributes:
        per_row: Bursts per row opening.
        lanes: Bank groups, of one rank or several, that the run keeps busy at once.
        row_lanes: Bank groups that one row's worth of bursts keeps busy.
        long: Whether the run is longer than a row.
    """

    per_row: float
    lanes: int
    row_lanes: int
    long: bool


def limits(dram: Dram, access: Access, layout: Layout, ranks: int, queue: int, refresh: bool) -> Limits:
    """Return the limits of endless traffic with open pages and refreshes of all banks."""
    timing = dram.timing
    shape = _shape(dram.organisation, access, layout, queue)
    ccd = timing.ccd_l_wr if access.op == "write" else timing.ccd_l
    if shape.long:
        columns = _ordered(timing, ccd, shape, dram.organisation.row_bursts, queue)
    else:
        run = access.run_bursts(dram.organisation)
        columns = _scattered(dram, ccd, shape, ranks, max(2, queue // run + 1))
    rows = max(timing.faw / 4, timing.rrd_s, timing.rc / dram.organisation.banks) / (shape.per_row * ranks)
    return Limits(
        bus=timing.bl,
        bank_groups=columns,
        rows=rows,
        commands=_commands(timing, shape.per_row),
        refresh_share=lost_to_refresh(timing, access.op, ranks) / timing.refi if refresh else 0.0,
    )


def lost_to_refresh(timing: Timing, op: str, ranks: int) -> int:
    """Return the clocks without data per REFI: last data, PRE, REF of each rank in turn, ACT, first data."""
    before_precharge = timing.rtp if op == "read" else timing.cwl + timing.bl + timing.wr
    one_rank = before_precharge + timing.rank_rp + timing.rfc + timing.rcd - timing.bl
    return one_rank + (ranks - 1) * (timing.rank_rp + 1)


def _commands(timing: Timing, per_row: float) -> float:
    """Return the clocks of the busier command bus: RD or WR of each burst, and PRE and ACT of each row."""
    activates = 2 if timing.aad else timing.activate_clocks
    of_row = (activates + 1) / per_row
    of_burst = float(timing.command_clocks)
    return max(of_burst, of_row) if timing.command_buses == 2 else of_burst + of_row


def _ordered(timing: Timing, ccd: int, shape: _Shape, row_bursts: int, queue: int) -> float:
    """Return the clocks per burst when rows follow each other in the layout's order.

    Two rows transfer data in turns from the time at which the queue reaches the next row until the bursts of
    the first row have left the queue. During this time equally many bursts of the next row are served. While
    a row opens, only the row before it transfers data.
    """
    together = max(timing.bl, ccd / shape.lanes)
    alone = max(timing.bl, ccd / shape.row_lanes)
    shared = min(1.0, 2 * queue / row_bursts)
    return shared * together + (1 - shared) * alone + timing.rcd * (1 - together / alone) / row_bursts


def _scattered(dram: Dram, ccd: int, shape: _Shape, ranks: int, runs: int) -> float:
    """Return the clocks per burst of random runs: the mean over how many bank groups they fall onto."""
    timing, groups = dram.timing, dram.organisation.bank_groups * ranks
    boxes = max(1, groups // shape.lanes)
    mean = sum(
        chance * max(timing.bl, ccd / (shape.lanes * busy))
        for busy, chance in enumerate(_occupied(boxes, runs), start=1)
    )
    # If every run has a rank of its own, and none of them can fill the bus, the bus changes ranks at every
    # burst.
    if ccd / shape.lanes <= timing.bl + timing.cs:
        return mean
    alone = math.prod((ranks - i) / ranks for i in range(runs))
    return alone * max(timing.bl + timing.cs, ccd / (shape.lanes * runs)) + (1 - alone) * mean


def _occupied(boxes: int, balls: int) -> list[float]:
    """Return [min(boxes, balls)]: the probabilities that 1, 2, ... boxes hold a randomly placed ball."""
    chances = [1.0]
    for _ in range(balls - 1):
        grown = [0.0] * min(len(chances) + 1, boxes)
        for held, chance in enumerate(chances, start=1):
            grown[held - 1] += chance * held / boxes
            if held < boxes:
                grown[held] += chance * (boxes - held) / boxes
        chances = grown
    return chances


def _shape(organisation: Organisation, access: Access, layout: Layout, queue: int) -> _Shape:
    """Count a run's rows and bank groups under the layout."""
    window = queue + organisation.row_bursts
    # Four windows represent a long run.
    most = 4 * window
    run = most if access.pattern == "sequential" else access.run_bursts(organisation)
    seen = min(run, most)
    starts = (np.arange(_PLACES) * (layout.bursts // _PLACES) // seen) * seen
    rank, group, bank, row, _ = layout.map(starts[:, None] + np.arange(seen))
    groups = rank * organisation.bank_groups + group
    rows = (groups * organisation.banks_per_group + bank) * organisation.rows + row
    opened = np.mean([len(np.unique(line)) for line in rows])
    long = run > organisation.row_bursts
    kept_busy = window if long else min(run, queue)
    return _Shape(
        per_row=float(seen / opened),
        lanes=_least_distinct(groups[:, :kept_busy]),
        row_lanes=_least_distinct(groups[:, : organisation.row_bursts]),
        long=long,
    )


def _least_distinct(lines: np.ndarray) -> int:
    """Return the smallest number of distinct values in any row of a table."""
    return min(len(np.unique(line)) for line in lines)
