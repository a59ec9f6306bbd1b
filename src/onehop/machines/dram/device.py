"""A DRAM device: its organisation, its timing in clocks, its energy by command."""

from dataclasses import dataclass, field, fields, replace

from onehop.errors import ArgumentError

# The command level keeps a bit for each bank of a rank (csrc/machines/dram.hpp).
_MOST_BANKS = 64
# Far more than any device has; keeps sums of clocks within the bits that the command level packs into a word.
_MOST_CLOCKS = 1 << 20


def _check_integers(owner: object, what: str, least: dict[str, int]) -> None:
    """Refuses a field that is no integer or too small; ``least`` names fields whose least value is not 1."""
    for entry in fields(owner):  # type: ignore[arg-type]
        value = getattr(owner, entry.name)
        smallest = least.get(entry.name, 1)
        if type(value) is not int or value < smallest:
            raise ArgumentError(
                f"{what}.{entry.name}: expected an integer of at least {smallest}, got {value!r}."
            )


@dataclass(frozen=True, slots=True)
class Organisation:
    """One rank as its controller sees it.

    Attributes:
        bus_bits: Width of the data bus; 32 for a DDR5 sub-channel, 64 for DDR4.
        bank_groups: Bank groups of a rank, a power of two.
        banks_per_group: Banks of a bank group, a power of two.
        rows: Rows of a bank, a power of two.
        row_bursts: Bursts of a row, a power of two.
        burst_bytes: Bytes that one read or write moves.
    """

    bus_bits: int
    bank_groups: int
    banks_per_group: int
    rows: int
    row_bursts: int
    burst_bytes: int

    def __post_init__(self) -> None:
        """Checks every field."""
        _check_integers(self, "organisation", {})
        for name in ("bank_groups", "banks_per_group", "rows", "row_bursts", "burst_bytes"):
            value = getattr(self, name)
            if value & (value - 1):
                raise ArgumentError(f"organisation.{name}: expected a power of two, got {value}.")
        if self.bus_bits % 8:
            raise ArgumentError(f"organisation.bus_bits: expected a multiple of 8, got {self.bus_bits}.")
        if self.banks > _MOST_BANKS:
            raise ArgumentError(
                f"organisation: expected at most {_MOST_BANKS} banks a rank, got {self.banks}."
            )

    @property
    def banks(self) -> int:
        """Banks of a rank."""
        return self.bank_groups * self.banks_per_group

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, over all devices of the rank."""
        return self.row_bursts * self.burst_bytes

    @property
    def rank_bytes(self) -> int:
        """Bytes of a rank."""
        return self.banks * self.rows * self.row_bytes


@dataclass(frozen=True, slots=True)
class Timing:
    """Least distances between commands, in clocks; JEDEC's names without the t.

    A command that takes two clocks of the command bus (DDR5's ACT, RD and WR) acts in its second. So
    distances between a long and a short command are a clock more or less than the value here; :mod:`.rules`
    accounts for that.

    Attributes:
        clock_ps: A clock, in picoseconds.
        bl: Clocks of the data bus that a burst takes.
        cl: Read command to data.
        cwl: Write command to data.
        rcd: ACT to RD or WR of the bank.
        rp: PRE to ACT of the bank.
        ras: ACT to PRE of the bank.
        rc: ACT to ACT of the bank.
        ccd_s: RD to RD, or WR to WR, of the rank.
        ccd_l: RD to RD of the bank group.
        ccd_l_wr: WR to WR of the bank group.
        rrd_s: ACT to ACT of the rank.
        rrd_l: ACT to ACT of the bank group.
        faw: ACT to the fourth ACT after it, of the rank.
        rtp: RD to PRE of the bank.
        wr: End of written data to PRE of the bank.
        wtr_s: End of written data to RD of the rank.
        wtr_l: End of written data to RD of the bank group.
        rtw: Idle clocks of the bus between read data and written data.
        ppd: PRE to PRE of the rank.
        cs: Idle clocks of the bus between the data of two ranks.
        rfc: REF to the next command of the rank.
        refi: Time between refreshes.
        command_clocks: Clocks of the command bus that ACT, RD and WR take; PRE and REF take 1.
    """

    clock_ps: int
    bl: int
    cl: int
    cwl: int
    rcd: int
    rp: int
    ras: int
    rc: int
    ccd_s: int
    ccd_l: int
    ccd_l_wr: int
    rrd_s: int
    rrd_l: int
    faw: int
    rtp: int
    wr: int
    wtr_s: int
    wtr_l: int
    rtw: int
    ppd: int
    cs: int
    rfc: int
    refi: int
    command_clocks: int

    def __post_init__(self) -> None:
        """Checks every field, and the relations between them that a schedule relies on."""
        _check_integers(self, "timing", {"rtw": 0, "cs": 0, "wtr_s": 0, "wtr_l": 0})
        for entry in fields(self):
            if getattr(self, entry.name) > _MOST_CLOCKS:
                raise ArgumentError(
                    f"timing.{entry.name}: expected at most {_MOST_CLOCKS}, got {getattr(self, entry.name)}."
                )
        if self.command_clocks > 2:
            raise ArgumentError(f"timing.command_clocks: expected 1 or 2, got {self.command_clocks}.")
        if self.refi <= self.rfc + self.rp:
            raise ArgumentError(
                f"timing.refi: expected more than rfc + rp ({self.rfc + self.rp}), or the rank does "
                f"nothing but refresh; got {self.refi}."
            )
        if self.rc < self.ras:
            raise ArgumentError(f"timing.rc: expected at least ras ({self.ras}), got {self.rc}.")


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of a rank by command: the array and its own interface only (no bus, no buffer chip).

    Attributes:
        activate_nj: An ACT and the PRE that ends it.
        read_nj: A burst read.
        write_nj: A burst written.
        refresh_nj: An all-bank REF.
        standby_mw: Power of the rank with rows open, drawn all the time.
        source: Where the figures come from.
    """

    activate_nj: float
    read_nj: float
    write_nj: float
    refresh_nj: float
    standby_mw: float
    source: str

    def __post_init__(self) -> None:
        """Checks every field."""
        for name in ("activate_nj", "read_nj", "write_nj", "refresh_nj", "standby_mw"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise ArgumentError(f"energy.{name}: expected a number of at least 0, got {value!r}.")
        if not isinstance(self.source, str) or not self.source:
            raise ArgumentError("energy.source: expected a sentence that says where the figures come from.")


@dataclass(frozen=True, slots=True)
class Dram:
    """A DRAM device, as the three levels of :class:`onehop.machines.dram.Memory` need it.

    Attributes:
        name: Its name in reports.
        organisation: Banks, rows, bursts.
        timing: Distances between commands.
        energy: Energy by command.
    """

    name: str
    organisation: Organisation = field(repr=False)
    timing: Timing = field(repr=False)
    energy: Energy = field(repr=False)

    def __post_init__(self) -> None:
        """Checks the name, and that a burst fits the bus."""
        if not isinstance(self.name, str) or not self.name.strip():
            raise ArgumentError(f"name: expected a name, got {self.name!r}.")
        carried = self.organisation.bus_bits // 8 * 2 * self.timing.bl
        if carried != self.organisation.burst_bytes:
            raise ArgumentError(
                f"{self.name}: a bus of {self.organisation.bus_bits} bits moves {carried} bytes in "
                f"{self.timing.bl} clocks, at two transfers a clock, but a burst has "
                f"{self.organisation.burst_bytes}; fix timing.bl, organisation.bus_bits or "
                "organisation.burst_bytes."
            )

    @property
    def peak_gbps(self) -> float:
        """Bandwidth of the data bus if it is never idle, in 1e9 bytes a second."""
        return self.organisation.burst_bytes / (self.timing.bl * self.timing.clock_ps) * 1000.0

    def with_timing(self, **clocks: int) -> "Dram":
        """The same device with other timings, for example ``preset("DDR5_4800AN").with_timing(faw=32)``.

        Raises:
            ArgumentError: An unknown timing, or a value out of range.
        """
        known = {entry.name for entry in fields(Timing)}
        unknown = sorted(set(clocks) - known)
        if unknown:
            raise ArgumentError(
                f"timing: no {', '.join(unknown)}; expected some of {', '.join(sorted(known))}."
            )
        return replace(self, timing=replace(self.timing, **clocks))
