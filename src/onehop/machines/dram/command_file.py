"""Commands as text, in the forms of DRAMPower's command traces and of Ramulator 2.1's command recorder.

The file name's ending chooses the form. Both forms have one line per command, in order of time. Clocks are
the device's clocks and count from 1, as in :class:`.Command`.

``.csv``, DRAMPower: ``35,RD,0,3,13,77,32,`` is clock, command, rank, bank group, bank, row, column. DRAMPower
numbers the banks over the whole rank, and counts columns in transfers of the data bus. Its ACT covers both
halves of an ACT that takes two commands. The eighth field of reads and writes, their data, is empty, because
data are not simulated. The last line, ``END``, has the clock at which the last data end. There is no header,
because DRAMPower reads none.

``.trace``, Ramulator 2.1, ``CmdTraceRecorder``: ``35,RD,0,0,3,1,77,2,0,-1`` is clock, command, channel, rank,
bank group, bank, row, burst of the row, type (0 read, 1 write) and source; -1 means no value. The first line
names the fields.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from onehop.errors import ArgumentError
from onehop.machines.dram.command import COMMANDS, READS, WRITES, CommandRun
from onehop.machines.dram.device import Dram
from onehop.machines.dram.memory import Memory
from onehop.storage import write_whole

# Maximum number of requests in a run whose commands are written; their log takes about 3 GB of memory.
_MOST_REQUESTS = 10_000_000
# Characters that the commands of one request take: PRE, ACT and RD of a random burst, late in a run.
_CHARACTERS = 85
# Number of commands that are formatted at a time.
_CHUNK = 1 << 16
Table = NDArray[np.int64]


class _Form:
    """A text form of commands; subclasses state how the forms differ.

    Attributes:
        program: The program that uses this form.
        head: Text before the commands.
        last: Text after the commands; may contain the ``cycles`` of the run.
        ends: The line ending for each command; the key "" has the ending for all other commands.
    """

    program: str
    head = last = ""
    ends: ClassVar[Mapping[str, str]]

    def names(self, dram: Dram) -> dict[str, str]:
        """Return a device's command names that differ from ours; an empty name means no line."""
        raise NotImplementedError

    def places(self, table: Table, dram: Dram) -> tuple[NDArray[np.int64], ...]:
        """Return the fields after the command's name, each [N]; ``table`` is [N, 7] as in a log."""
        raise NotImplementedError

    def refuse(self, memory: Memory) -> str:
        """Return why the form cannot express a memory's commands; empty if it can."""
        raise NotImplementedError


class _DramPower(_Form):
    program, last = "DRAMPower", "{cycles},END,0,0,0,0,0\n"
    ends: ClassVar[Mapping[str, str]] = {"": "", **dict.fromkeys((*READS, *WRITES), ",")}

    def names(self, dram: Dram) -> dict[str, str]:
        one_bank = dram.organisation.refresh_set == 1
        return {"REF": "REFA", "REFSB": "REFB" if one_bank else "REFSB", "ACT2": ""}

    def places(self, table: Table, dram: Dram) -> tuple[NDArray[np.int64], ...]:
        rank, group, bank, row, column = np.maximum(table[:, 2:], 0).T
        transfers = dram.timing.bl * dram.organisation.transfers_per_clock
        return rank, group, group * dram.organisation.banks_per_group + bank, row, column * transfers

    def refuse(self, memory: Memory) -> str:
        if memory.dram.timing.command_buses == 1:
            return ""
        return (
            "DRAMPower knows devices with one command bus (DDR4, DDR5, LPDDR4, LPDDR5), and "
            f"{memory.dram.name} has two; write Ramulator's form, to a file that ends in .trace"
        )


class _Ramulator(_Form):
    program = "Ramulator 2.1"
    head = "clock,command,Channel,Rank,BankGroup,Bank,Row,Column,type,source\n"
    ends: ClassVar[Mapping[str, str]] = {
        "": ",-1,-1",
        **dict.fromkeys(READS, ",0,-1"),
        **dict.fromkeys(WRITES, ",1,-1"),
    }

    def names(self, dram: Dram) -> dict[str, str]:
        act = "ACT1" if dram.timing.aad else "ACT"
        return {"ACT": act, "PRE": "PREpb", "PREA": "PREab", "REF": "REFab", "REFSB": "REFpb"}

    def places(self, table: Table, dram: Dram) -> tuple[NDArray[np.int64], ...]:
        return (np.zeros(len(table), dtype=np.int64), *table[:, 2:].T)

    def refuse(self, memory: Memory) -> str:
        same_bank = memory.refresh and memory.refresh_mode == "same_bank"
        if not same_bank or memory.dram.organisation.refresh_set == 1:
            return ""
        return (
            "Ramulator 2.1 has no refresh of the same bank of every bank group, which "
            f"{memory.dram.name} sends; refresh all banks at once, or write DRAMPower's form, to a file that "
            "ends in .csv"
        )


_FORMS: dict[str, _Form] = {".csv": _DramPower(), ".trace": _Ramulator()}


def check_commands(path: str | Path, memory: Memory, requests: int) -> None:
    """Refuse, before a run, commands that :func:`write_commands` could not write after it.

    Args:
        path: The file.
        memory: The memory that serves the requests.
        requests: Bursts that it serves.

    Raises:
        ArgumentError: The file's ending is unknown, its form cannot express the memory's commands, or there
            are too many requests.
    """
    why = _form(path).refuse(memory)
    if why:
        raise ArgumentError(f"commands: {why}.")
    if requests > _MOST_REQUESTS:
        raise ArgumentError(
            f"commands: expected at most {_MOST_REQUESTS:,} requests, got {requests:,}, whose commands would "
            f"fill up to {requests * _CHARACTERS / 1e9:.1f} GB; take fewer requests."
        )


def write_commands(
    path: str | Path, run: CommandRun, memory: Memory, tell: Callable[[float], None] = lambda _done: None
) -> dict[str, int]:
    """Writes every command of a run to a file, in DRAMPower's form (``.csv``) or Ramulator's (``.trace``).

    Args:
        path: The file.
        run: The run, with its log.
        memory: The memory that ran.
        tell: Called with the share of the commands that is written so far, 0 to 1.

    Returns:
        The number of lines for each command, by the command's name in the file.

    Raises:
        ArgumentError: The file's ending is unknown, its form cannot express the memory's commands, or the run
            has no log.
        StorageError: The file cannot be written; an earlier one is left unchanged.
    """
    check_commands(path, memory, 0)
    if run.log is None:
        raise ArgumentError("run: expected a run with its log, got none; pass log=True to Memory.commands.")
    form, dram, table = _form(path), memory.dram, run.log.table
    theirs = form.names(dram)
    names = [theirs.get(name, name) for name in COMMANDS]
    ends = [form.ends.get(name, form.ends[""]) for name in COMMANDS]
    table = table[np.array([name != "" for name in names])[table[:, 1]]]

    def write(file: BinaryIO) -> None:
        file.write(form.head.encode())
        for begin in range(0, len(table), _CHUNK):
            part = table[begin : begin + _CHUNK]
            fields = np.stack(form.places(part, dram), axis=1).tolist()
            lines = [
                f"{clock},{names[kind]},{','.join(map(str, place))}{ends[kind]}\n"
                for (clock, kind), place in zip(part[:, :2].tolist(), fields, strict=True)
            ]
            file.write("".join(lines).encode())
            tell(min(1.0, (begin + _CHUNK) / len(table)))
        file.write(form.last.format(cycles=run.counts.cycles).encode())

    write_whole("commands", path, write)
    counted = np.bincount(table[:, 1], minlength=len(COMMANDS)).tolist()
    return {name: count for name, count in zip(names, counted, strict=True) if count}


def program_of(path: str | Path) -> str:
    """Return the program whose form the ending of a file name chooses.

    Raises:
        ArgumentError: The ending is unknown.
    """
    return _form(path).program


def _form(path: str | Path) -> _Form:
    ending = Path(path).suffix
    if ending not in _FORMS:
        known = " or ".join(f"{name} ({form.program})" for name, form in _FORMS.items())
        raise ArgumentError(f"commands: expected the name of a file that ends in {known}, got {path}.")
    return _FORMS[ending]
