"""The command level: simulates every command of every bank, event by event (csrc/machines/dram.cpp)."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onehop.machines.dram.device import Dram
from onehop.machines.dram.layout import Layout
from onehop.machines.dram.report import CommandCounts
from onehop.machines.dram.requests import Requests
from onehop.machines.native import extension

COMMANDS = ("ACT", "PRE", "PREA", "RD", "WR", "REF", "REFSB", "ACT2", "RDA", "WRA")
READS, WRITES = ("RD", "RDA"), ("WR", "WRA")
REFRESHES = ("none", "all_bank", "same_bank")


class Command(NamedTuple):
    """One command that the controller issued.

    Attributes:
        clock: The first clock of the command; clocks count from 1.
        name: ACT, PRE, PREA (all banks), RD, WR, REF (all banks), REFSB (one bank, or the same bank of every
            bank group), ACT2 (the second half of an ACT of two commands), RDA or WRA (RD or WR that closes
            its row).
        rank: The command's rank.
        bank_group: The bank group; -1 for all.
        bank: The bank in the bank group; -1 for all.
        row: The row that is opened, read or written; -1 otherwise.
        column: The burst within the row; -1 if the command has none.
    """

    clock: int
    name: str
    rank: int
    bank_group: int = -1
    bank: int = -1
    row: int = -1
    column: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class CommandLog:
    """The commands of a run, in order.

    Attributes:
        table: int64 [N, 7]: clock, index in :data:`COMMANDS`, rank, bank group, bank, row, column.
    """

    table: NDArray[np.int64]

    def __len__(self) -> int:
        """Number of commands."""
        return len(self.table)

    def __iter__(self) -> Iterator[Command]:
        """Iterate over the commands."""
        for clock, name, rank, bank_group, bank, row, column in self.table.tolist():
            yield Command(clock, COMMANDS[name], rank, bank_group, bank, row, column)


@dataclass(frozen=True, slots=True)
class Accepted:
    """State when the last request is accepted; simulators that stop at this time report these counts.

    Attributes:
        cycles: Clocks up to then.
        served: Bursts begun up to then.
    """

    cycles: int
    served: int


@dataclass(frozen=True, slots=True)
class CommandRun:
    """Result of a command-level run.

    Attributes:
        counts: Commands and clocks of the whole run.
        accepted: The state when the last request was accepted.
        log: Every command; None if the log was not requested.
    """

    counts: CommandCounts
    accepted: Accepted
    log: CommandLog | None


@dataclass(frozen=True, slots=True)
class Scheduler:
    """The policy that chooses among waiting requests: the oldest whose next command is ready.

    Attributes:
        name: The policy's name.
        keeps_rows: Whether a row stays open while an older request still needs it.
    """

    name: str
    keeps_rows: bool


SCHEDULERS = {each.name: each for each in (Scheduler("fr_fcfs", False), Scheduler("fr_fcfs_rows", True))}


@dataclass(frozen=True, slots=True)
class Controller:
    """Settings of a memory controller.

    Attributes:
        queue: Maximum number of waiting requests of each kind (reads or writes).
        refresh: One of :data:`REFRESHES`.
        scheduler: One of :data:`SCHEDULERS`.
        close_after: Accesses after which a row is closed; 0 means that only another row of its bank closes
            it.
    """

    queue: int
    refresh: str
    scheduler: str
    close_after: int


def serve(dram: Dram, layout: Layout, requests: Requests, controller: Controller, log: bool) -> CommandRun:
    """Serve requests in the given order; one request arrives per clock while its queue has room.

    Raises:
        ArgumentError: A burst is outside the ranks; the layout determines how many ranks there are.
    """
    requests.check(layout)
    timing = np.array(astuple(dram.timing.in_full()), dtype=np.int64)
    slices = np.array([astuple(entry) for entry in layout.slices if entry.bits], dtype=np.int64)
    widths = np.array(layout.widths, dtype=np.int64)
    shape, ranks = dram.organisation, 1 << layout.widths[0]
    numbers = np.array(
        [
            ranks,
            shape.bank_groups,
            shape.banks_per_group,
            controller.queue,
            REFRESHES.index(controller.refresh),
            shape.refresh_set,
            controller.close_after,
            SCHEDULERS[controller.scheduler].keeps_rows,
        ],
        dtype=np.int64,
    )
    found = np.zeros(len(fields(CommandCounts)) + len(fields(Accepted)), dtype=np.int64)
    kept = extension.DramCommandLog() if log else None
    extension.dram_simulate(
        timing=timing.ctypes.data,
        slices=slices.ctypes.data,
        slice_count=len(slices),
        widths=widths.ctypes.data,
        xor_column=layout.xor_column,
        controller=numbers.ctypes.data,
        bursts=requests.bursts.ctypes.data,
        writes=requests.writes.ctypes.data,
        requests=len(requests),
        counts=found.ctypes.data,
        log=kept,
    )
    *counts, cycles, served = found.tolist()
    return CommandRun(
        CommandCounts(*counts), Accepted(cycles, served), None if kept is None else _copied(kept)
    )


def _copied(kept: extension.DramCommandLog) -> CommandLog:
    """Copies the extension's log into NumPy's memory."""
    table = np.empty((len(kept), 7), dtype=np.int64)
    kept.copy_to(table.ctypes.data)
    return CommandLog(table)
