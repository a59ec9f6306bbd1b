"""Files of commands, read back and checked line by line, without the simulator's rules, log or state."""

from dataclasses import dataclass

# The names that DRAMPower and Ramulator have for the same command.
_NAMES = {
    "ACT1": "ACT",
    "PREpb": "PRE",
    "PREab": "PREA",
    "REFab": "REFA",
    "REFpb": "REFB",
    "RDA": "RD",
    "WRA": "WR",
}


@dataclass
class Line:
    """A command of a file; its bank is that of the whole rank."""

    clock: int
    name: str
    rank: int
    group: int
    bank: int
    row: int
    column: int
    closes: bool = False


def lines_of(path, dram):
    """The commands of a file, and the clock of its last line; None where it has no END."""
    found, end = [], None
    text = path.read_text().splitlines()
    if path.suffix == ".trace":
        assert text[0].startswith("clock,command,Channel,Rank,BankGroup,Bank,Row,Column")
    for line in text[path.suffix == ".trace" :]:
        clock, name, *rest = line.split(",")
        assert end is None, "END is the last line"
        if name == "END":
            end = int(clock)
            continue
        if path.suffix == ".trace":
            channel, rank, group, bank, row, column, kind, source = map(int, rest)
            assert (channel, source) == (0, -1)
            assert kind == {"R": 0, "W": 1}[name[0]] if name[0] in "RW" and name[:2] != "RE" else kind == -1
            bank += max(group, 0) * dram.organisation.banks_per_group
        else:
            assert rest[5:] == ([""] if name[:2] in ("RD", "WR") else [])
            rank, group, bank, row, column = map(int, rest[:5])
            transfers = dram.organisation.transfers_per_clock * dram.timing.bl
            assert column % transfers == 0
            column //= transfers
        found.append(
            Line(int(clock), _NAMES.get(name, name), rank, group, bank, row, column, name in ("RDA", "WRA"))
        )
    return found, end


def wrong(lines, dram):
    """The first command that the device could not take, as a sentence; None if it can take all.

    JEDEC counts from a command's last clock. What a rule is about is looked for among all earlier commands.
    """
    timing, past, open_rows, bus = dram.timing.in_full(), [], {}, {}

    def last_clock(line):
        return line.clock + {
            "ACT": timing.act_clocks,
            "RD": timing.command_clocks,
            "WR": timing.command_clocks,
        }.get(line.name, 1)

    for line in lines:
        place, banks = (line.rank, line.bank), [(line.rank, bank) for bank in _banks(line, dram.organisation)]
        own_bus = timing.command_buses == 2 and line.name in ("RD", "WR")
        if line.clock < bus.get(own_bus, 0):
            return f"{line}: the command bus is busy"
        bus[own_bus] = last_clock(line)
        if line.name in ("RD", "WR") and open_rows.get(place) != line.row:
            return f"{line}: row {open_rows.get(place)} is open"
        if line.name in ("ACT", "REFA", "REFB", "REFSB") and any(bank in open_rows for bank in banks):
            return f"{line}: a row is open"
        acts = [other.clock for other in past if other.name == "ACT" and other.rank == line.rank]
        if line.name == "ACT" and len(acts) >= 4 and line.clock - acts[-4] < timing.faw:
            return f"{line}: five ACT within tFAW"
        for names, scope, clocks in _waits(line, timing):
            for other in reversed(past):
                if other.name in names and _same(scope, other, line, dram.organisation):
                    if last_clock(line) - last_clock(other) < clocks:
                        return f"{line}: less than {clocks} clocks after {other}"
                    break
        if line.name == "ACT":
            open_rows[place] = line.row
        elif line.closes or line.name in ("PRE", "PREA"):
            for bank in banks:
                open_rows.pop(bank, None)
        past.append(line)
    return None


def _banks(line, shape):
    """The banks of its rank that a command is for."""
    if line.name in ("PREA", "REFA"):
        return range(shape.banks)
    if line.name == "REFSB":
        return range(line.bank % shape.banks_per_group, shape.banks, shape.banks_per_group)
    return [line.bank]


def _same(scope, first, second, shape):
    """Whether two commands are for the same rank, bank group, or bank."""
    if scope == "group":
        return (first.rank, first.group) == (second.rank, second.group)
    shared = scope == "rank" or set(_banks(first, shape)) & set(_banks(second, shape))
    return first.rank == second.rank and bool(shared)


def _waits(line, timing):
    """What a command waits for: commands, where, and how long."""
    written = timing.cwl + timing.bl + timing.wr
    refreshes = (("PRE", "PREA"), "bank", timing.rp), (("ACT",), "bank", timing.rc)
    closes = (("ACT",), "bank", timing.ras), (("RD",), "bank", timing.rtp), (("WR",), "bank", written)
    return {
        "ACT": (
            (("PRE", "PREA"), "bank", timing.rp),
            (("ACT",), "bank", timing.rc),
            (("ACT",), "group", timing.rrd_l),
            (("ACT",), "rank", timing.rrd_s),
            (("REFA",), "rank", timing.rfc),
            (("REFB", "REFSB"), "bank", timing.rfc_sb),
        ),
        "ACT2": (),
        "RD": (
            (("ACT",), "bank", timing.rcd),
            (("RD",), "group", timing.ccd_l),
            (("RD",), "rank", timing.ccd_s),
        ),
        "WR": (
            (("ACT",), "bank", timing.rcd_wr),
            (("WR",), "group", timing.ccd_l_wr),
            (("WR",), "rank", timing.ccd_s),
        ),
        "PRE": closes,
        "PREA": closes,
        "REFA": refreshes,
        "REFB": refreshes,
        "REFSB": refreshes,
    }[line.name]
