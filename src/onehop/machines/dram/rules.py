"""The timing rules as a table, and a check of commands against them.

The command level implements the same rules independently (csrc/machines/dram_device.hpp), so a log that
passes this check has been verified twice.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from onehop.machines.dram.command import READS, WRITES, Command
from onehop.machines.dram.device import Dram, Timing

# The scopes of a rule: what its two commands have in common.
SCOPES = ("bus", "rank", "other_rank", "bank_group", "bank")
_COLUMN = (*READS, *WRITES)
_ROW = ("ACT", "ACT2", "PRE", "PREA", "REF", "REFSB")
_ALL = (*_COLUMN, *_ROW)


@dataclass(frozen=True, slots=True)
class Rule:
    """The minimum distance between two commands.

    Attributes:
        name: The timing or timings from which the rule comes.
        scope: One of :data:`SCOPES`.
        before: The earlier commands that the rule counts from.
        after: The commands that must wait.
        clocks: The distance in clocks, from first clock to first clock.
        window: How many commands back the rule counts from: 4 for FAW, else 1.
        lags: For each of ``before``, how many clocks later it takes effect than the shortest of them.
    """

    name: str
    scope: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    clocks: int
    window: int = 1
    lags: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Violation:
    """A command that breaks a rule.

    Attributes:
        place: Its index among the commands.
        command: The command.
        reason: A sentence that says which rule it breaks.
    """

    place: int
    command: Command
    reason: str


def rules(timing: Timing) -> tuple[Rule, ...]:
    """Return every rule of a device.

    JEDEC counts from the last clock of a command. By first clocks, the distance from a two-clock command to a
    one-clock command is one clock longer, and the reverse one clock shorter.
    """
    t = timing.in_full()
    read_data, written = t.cl + t.bl, t.cwl + t.bl
    counted = ("ACT", "REFSB") if t.faw_refsb else ("ACT",)
    nominal: tuple[Rule, ...] = (
        Rule("BL", "bus", READS, READS, t.bl),
        Rule("BL", "bus", WRITES, WRITES, t.bl),
        Rule("CCD_S", "rank", READS, READS, t.ccd_s),
        Rule("CCD_S", "rank", WRITES, WRITES, t.ccd_s),
        Rule("CCD_L", "bank_group", READS, READS, t.ccd_l),
        Rule("CCD_L_WR", "bank_group", WRITES, WRITES, t.ccd_l_wr),
        Rule("CL + BL + RTW - CWL", "rank", READS, WRITES, read_data + t.rtw - t.cwl),
        Rule("CWL + BL + WTR_S", "rank", WRITES, READS, written + t.wtr_s),
        Rule("CWL + BL + WTR_L", "bank_group", WRITES, READS, written + t.wtr_l),
        Rule("BL + CS", "other_rank", READS, _COLUMN, t.bl + t.cs),
        Rule("CWL + BL + CS - CL", "other_rank", WRITES, READS, written + t.cs - t.cl),
        Rule("RCD", "bank", ("ACT",), READS, t.rcd),
        Rule("RCD", "bank", ("ACT",), WRITES, t.rcd_wr),
        Rule("RC", "bank", ("ACT",), ("ACT",), t.rc),
        Rule("RRD_S", "rank", ("ACT",), ("ACT",), t.rrd_s),
        Rule("RRD_L", "bank_group", ("ACT",), ("ACT",), t.rrd_l),
        Rule("FAW", "rank", counted, counted, t.faw, window=4),
        Rule("RAS", "bank", ("ACT",), ("PRE",), t.ras),
        Rule("RAS", "rank", ("ACT",), ("PREA",), t.ras),
        Rule("RTP", "bank", ("RD",), ("PRE",), t.rtp),
        Rule("RTP", "rank", ("RD",), ("PREA",), t.rtp),
        Rule("CWL + BL + WR", "bank", ("WR",), ("PRE",), written + t.wr),
        Rule("CWL + BL + WR", "rank", ("WR",), ("PREA",), written + t.wr),
        Rule("RP", "bank", ("PRE",), ("ACT",), t.rp),
        Rule("RP_ALL", "rank", ("PREA",), ("ACT",), t.rp_all),
        Rule("PPD", "rank", ("PRE", "PREA"), ("PRE", "PREA"), t.ppd),
        Rule("RC", "rank", ("ACT",), ("REF",), t.rc),
        Rule("RP", "rank", ("PRE",), ("REF",), t.rp),
        Rule("RP_ALL", "rank", ("PREA",), ("REF",), t.rp_all),
        Rule("RFC", "rank", ("REF",), ("ACT",), t.rfc),
        Rule("RFC", "rank", ("REF",), ("PREA", "REF"), t.rfc),
    )
    nominal += (
        Rule("RTP + RP", "bank", ("RDA",), ("ACT", "REFSB"), t.rtp + t.rp),
        Rule("RTP + RP", "rank", ("RDA",), ("REF",), t.rtp + t.rp),
        # The rule holds for WR too: an RDA may close its row before the write has recovered.
        Rule("CWL + BL + WR + RP", "bank", WRITES, ("ACT", "REFSB"), written + t.wr + t.rp),
        Rule("CWL + BL + WR + RP", "rank", WRITES, ("REF",), written + t.wr + t.rp),
    )
    if t.rfc_sb:
        nominal += (
            Rule("RC", "bank", ("ACT",), ("REFSB",), t.rc),
            Rule("RRD_S", "rank", ("ACT",), ("REFSB",), t.rrd_s),
            Rule("RRD_L", "bank_group", ("ACT",), ("REFSB",), t.rrd_l),
            Rule("RP", "bank", ("PRE",), ("REFSB",), t.rp),
            Rule("RP_ALL", "rank", ("PREA",), ("REFSB",), t.rp_all),
            Rule("RFC", "rank", ("REF",), ("REFSB",), t.rfc),
            Rule("RFC_SB", "bank", ("REFSB",), ("ACT", "REFSB"), t.rfc_sb),
            Rule("RFC_SB", "rank", ("REFSB",), ("PREA", "REF"), t.rfc_sb),
            Rule("REFSB_ACT", "rank", ("REFSB",), ("ACT",), t.refsb_act),
            Rule("REFSB_REFSB", "rank", ("REFSB",), ("REFSB",), t.refsb_refsb),
        )
    return (*_buses(t), *(adjusted for rule in nominal for adjusted in _by_first_clock(rule, t)))


def _clocks_of(t: Timing, name: str) -> int:
    """Return how many clocks of the command bus a command takes."""
    return t.act_clocks if name == "ACT" else t.command_clocks if name in _COLUMN else 1


def _buses(t: Timing) -> tuple[Rule, ...]:
    """Return the rules of the command buses."""
    groups = ((_COLUMN, _COLUMN), (_ROW, _ROW)) if t.command_buses == 2 else ((_ALL, _ALL),)
    return tuple(
        Rule("command bus", "bus", before, after, clocks)
        for of_bus, after in groups
        for clocks in sorted({_clocks_of(t, name) for name in of_bus}, reverse=True)
        if (before := tuple(name for name in of_bus if _clocks_of(t, name) == clocks))
    )


def _by_first_clock(rule: Rule, t: Timing) -> list[Rule]:
    """Return the rule between first clocks: one rule for each length of the commands that must wait."""
    acts = [_clocks_of(t, name) for name in rule.before]
    lengths = sorted({_clocks_of(t, name) for name in rule.after}, reverse=True)
    return [
        replace(
            rule,
            after=tuple(name for name in rule.after if _clocks_of(t, name) == clocks),
            clocks=rule.clocks + min(acts) - clocks,
            lags=tuple(last - min(acts) for last in acts),
        )
        for clocks in lengths
    ]


def check(commands: Iterable[Command], dram: Dram) -> list[Violation]:
    """Return every command that comes too early, or that the state of its bank forbids.

    Args:
        commands: Commands in order; all banks are closed before the first.
        dram: The device.
    """
    found: list[Violation] = []
    clocks = _Clocks(rules(dram.timing))
    rows: dict[tuple[int, int, int], int] = {}
    for place, command in enumerate(commands):
        reasons = [_forbidden(command, rows), *clocks.too_early(command)]
        found += [Violation(place, command, reason) for reason in reasons if reason]
        clocks.remember(command)
        _apply(command, rows)
    return found


class _Clocks:
    """The clocks at which each command was last issued to each place."""

    def __init__(self, table: tuple[Rule, ...]) -> None:
        self._by_after = {name: [rule for rule in table if name in rule.after] for name in _ALL}
        self._past: dict[tuple[str, str, tuple[int, ...]], deque[int]] = {}
        self._ranks: set[int] = set()
        self._banks: set[tuple[int, ...]] = set()

    def too_early(self, command: Command) -> list[str]:
        """Return the rules that a command breaks, as sentences."""
        broken = []
        for rule in self._by_after[command.name]:
            for place in self._places(rule.scope, command):
                # For each earlier command: when it took effect, its first clock and its name.
                lags = rule.lags or (0,) * len(rule.before)
                past = sorted(
                    (clock + lag, clock, name)
                    for name, lag in zip(rule.before, lags, strict=True)
                    for clock in self._past.get((rule.scope, name, place), ())
                )
                if len(past) < rule.window:
                    continue
                acted, clock, name = past[-rule.window]
                if command.clock < acted + rule.clocks:
                    broken.append(
                        f"{rule.name}: {command.name} at clock {command.clock} is less than "
                        f"{acted - clock + rule.clocks} clocks after {name} at {clock}"
                    )
        return broken

    def remember(self, command: Command) -> None:
        """Records a command."""
        self._ranks.add(command.rank)
        self._banks.add(_place("bank", command))
        for scope in SCOPES:
            key = (scope, command.name, _place(scope, command))
            self._past.setdefault(key, deque(maxlen=4)).append(command.clock)

    def _places(self, scope: str, command: Command) -> list[tuple[int, ...]]:
        if scope == "other_rank":
            return [(rank,) for rank in self._ranks if rank != command.rank]
        if scope == "bank_group" and command.bank_group < 0:
            return list({place[:2] for place in self._banks if place[0] == command.rank})
        if scope != "bank":
            return [_place(scope, command)]
        # A same-bank refresh acts on one bank; without a bank group, it acts on that bank of every group.
        if command.bank_group < 0:
            return [place for place in self._banks if place[0] == command.rank and place[2] == command.bank]
        return [_place(scope, command), (command.rank, -1, command.bank)]


def _place(scope: str, command: Command) -> tuple[int, ...]:
    if scope == "bus":
        return ()
    if scope in ("rank", "other_rank"):
        return (command.rank,)
    return command[2:4] if scope == "bank_group" else command[2:5]


def _forbidden(command: Command, rows: dict[tuple[int, int, int], int]) -> str | None:
    """Return the reason why the state of the banks forbids a command, or None."""
    bank = (command.rank, command.bank_group, command.bank)
    row = rows.get(bank)
    if command.name in _COLUMN and row != command.row:
        return f"{command.name} of row {command.row} where {'none' if row is None else row} is open"
    if command.name == "ACT" and row is not None:
        return f"ACT where row {row} is open"
    if command.name == "REFSB" and any(
        rank == command.rank and other == command.bank and command.bank_group in (-1, group)
        for rank, group, other in rows
    ):
        return "REFSB where a row is open"
    if command.name == "REF" and any(rank == command.rank for rank, _, _ in rows):
        return "REF where a row is open"
    return None


def _apply(command: Command, rows: dict[tuple[int, int, int], int]) -> None:
    """Updates the state of the banks after a command."""
    bank = (command.rank, command.bank_group, command.bank)
    if command.name == "ACT":
        rows[bank] = command.row
    elif command.name in ("PRE", "RDA", "WRA"):
        rows.pop(bank, None)
    elif command.name == "PREA":
        for other in [other for other in rows if other[0] == command.rank]:
            del rows[other]
