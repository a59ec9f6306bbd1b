"""Commands as a timeline: open rows by bank, data on the bus, refreshes."""

from onehop.machines.common.trace import Trace
from onehop.machines.dram.command import READS, WRITES, Command, CommandLog
from onehop.machines.dram.device import Dram

# Maximum number of commands that are drawn; later commands are left out.
MOST_COMMANDS = 20_000
# Commands that close rows.
_CLOSES = ("PRE", "PREA", "RDA", "WRA")


def timeline(log: CommandLog, dram: Dram) -> Trace:
    """Return a timeline of a run's first commands, with lanes for every bank and for data and refreshes."""
    timing, trace = dram.timing, Trace()
    ns = timing.clock_ps / 1000.0
    opened: dict[tuple[int, int, int], Command] = {}
    last = 0

    def close(bank: tuple[int, int, int], clock: int) -> None:
        begun = opened.pop(bank)
        lane = f"rank {bank[0]}/bank {bank[1]}.{bank[2]}"
        trace.add(lane, f"row {begun.row}", (begun.clock - 1) * ns, (clock - begun.clock) * ns)

    for number, found in enumerate(log):
        if number == MOST_COMMANDS:
            break
        last, bank = found.clock, (found.rank, found.bank_group, found.bank)
        if found.name == "ACT":
            opened[bank] = found
        elif found.name in (*READS, *WRITES):
            read = found.name in READS
            # A command of several clocks takes effect in its last clock.
            begin = found.clock + timing.command_clocks - 1 + (timing.cl if read else timing.cwl)
            trace.add(
                f"rank {found.rank}/data",
                "read" if read else "write",
                (begin - 1) * ns,
                timing.bl * ns,
                bank=f"{found.bank_group}.{found.bank}",
                row=found.row,
                column=found.column,
            )
        elif found.name in ("REF", "REFSB"):
            clocks = timing.rfc if found.name == "REF" else timing.rfc_sb
            trace.add(f"rank {found.rank}/refresh", found.name, (found.clock - 1) * ns, clocks * ns)
        if found.name in _CLOSES:
            for each in [each for each in opened if each == bank or _all(found, each)]:
                close(each, found.clock)
    for each in list(opened):
        close(each, last)
    return trace


def _all(found: Command, bank: tuple[int, int, int]) -> bool:
    """Return whether a command for all banks of a rank includes this bank."""
    return found.bank == -1 and found.rank == bank[0]
