"""The command level: every command of every bank, from event to event (csrc/machines/dram.cpp)."""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, fields, astuple

import numpy as np
from numpy.typing import NDArray

from onehop.errors import ArgumentError
from onehop.machines.dram.device import Dram, Timing
from onehop.machines.dram.layout import Layout
from onehop.machines.native import extension

COMMANDS = ("ACT", "PRE", "PREA", "RD", "WR", "REF")


@dataclass(frozen=True, slots=True)
class CommandCounts:
    """What the command level counts.

    Attributes:
        cycles: Clocks until the last data have passed.
        reads: Bursts read.
        writes: Bursts written.
        row_hits: Requests that found their row open.
        row_misses: Requests that found their bank closed.
        row_conflicts: Requests that found another row open.
        activations: ACT commands.
        refreshes: REF commands, over all ranks.
        forwarded: Reads that a waiting write to the same burst answered.
        coalesced: Writes that a waiting write to the same burst absorbed.
        read_latency: Clocks from arrival to the end of the data, summed over the reads.
        accepted_cycles: Clocks until the queue took the last request.
        accepted_served: Bursts begun until then.
    """

    cycles: int
    reads: int
    writes: int
    row_hits: int
    row_misses: int
    row_conflicts: int
    activations: int
    refreshes: int
    forwarded: int
    coalesced: int
    read_latency: int
    accepted_cycles: int
    accepted_served: int


@dataclass(frozen=True, slots=True)
class Command:
    """A command that went out.

    Attributes:
        clock: Its first clock; the first there is, is 1.
        name: ACT, PRE, PREA (all banks), RD, WR or REF.
        rank: Its rank.
        bank_group: Its bank group; -1 for all.
        bank: Its bank in the bank group; -1 for all.
        row: The row that is opened, read or written; -1 otherwise.
        column: The burst of the row; -1 where there is none.
    """

    clock: int
    name: str
    rank: int
    bank_group: int = -1
    bank: int = -1
    row: int = -1
    column: int = -1


@dataclass(frozen=True, slots=True)
class CommandLog:
    """The commands of a run, in order.

    Attributes:
        table: [N, 7]: clock, place in :data:`COMMANDS`, rank, bank group, bank, row, column.
    """

    table: NDArray[np.int64]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.table)

    def __iter__(self) -> Iterator[Command]:
        """Each of them."""
        for clock, name, *where in self.table.tolist():
            yield Command(clock, COMMANDS[name], *where)


def simulate_commands(
    dram: Dram,
    layout: Layout,
    bursts: NDArray[np.int64],
    writes: NDArray[np.uint8],
    *,
    queue: int,
    refresh: bool,
    scheduler: str,
    log: bool,
) -> tuple[CommandCounts, CommandLog | None]:
    """Serves requests in the order given; one arrives a clock where the queue has room.

    Args:
        dram: The device.
        layout: How bursts lie in the ranks; it says how many ranks there are.
        bursts: [N], numbers of bursts: byte addresses divided by the bytes of a burst.
        writes: [N], 1 for a write, 0 for a read.
        queue: Requests of a kind that wait.
        refresh: Whether all banks of every rank are refreshed every REFI.
        scheduler: ``fr_fcfs`` or ``fr_fcfs_rows``.
        log: Whether to put down every command.

    Raises:
        ArgumentError: The arrays do not fit together, or a burst lies outside the ranks.
    """
    if bursts.ndim != 1 or bursts.shape != writes.shape:
        raise ArgumentError(
            f"requests: expected numbers and operations of one length, got {bursts.shape} and {writes.shape}."
        )
    if bursts.size and (int(bursts.min()) < 0 or int(bursts.max()) >= layout.bursts):
        raise ArgumentError(
            f"requests: expected numbers of bursts from 0 to {layout.bursts - 1}, got {int(bursts.min())} to "
            f"{int(bursts.max())}; the ranks hold no more, so use more ranks, or take addresses modulo their size."
        )
    bursts = np.ascontiguousarray(bursts, dtype=np.int64)
    writes = np.ascontiguousarray(writes, dtype=np.uint8)
    timing = np.array([getattr(dram.timing, entry.name) for entry in fields(Timing)], dtype=np.int64)
    slices = np.array([astuple(entry) for entry in layout.slices], dtype=np.int64)
    widths = np.array(layout.widths, dtype=np.int64)
    shape = dram.organisation
    controller = np.array(
        [
            1 << layout.widths[0],
            shape.bank_groups,
            shape.banks_per_group,
            queue,
            refresh,
            scheduler == "fr_fcfs_rows",
        ],
        dtype=np.int64,
    )
    counts = np.zeros(len(fields(CommandCounts)), dtype=np.int64)
    kept = extension.DramCommandLog() if log else None
    extension.dram_simulate(
        timing.ctypes.data,
        slices.ctypes.data,
        len(slices),
        widths.ctypes.data,
        layout.xor_column,
        controller.ctypes.data,
        bursts.ctypes.data,
        writes.ctypes.data,
        len(bursts),
        counts.ctypes.data,
        kept,
    )
    return CommandCounts(*counts.tolist()), None if kept is None else _table(kept)


def _table(kept: extension.DramCommandLog) -> CommandLog:
    """A copy of the extension's log."""
    length = len(kept)
    if not length:
        return CommandLog(np.zeros((0, 7), dtype=np.int64))
    memory = (ctypes.c_int64 * (7 * length)).from_address(kept.address)
    return CommandLog(np.frombuffer(memory, dtype=np.int64).reshape(length, 7).copy())
