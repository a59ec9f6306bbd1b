"""A DRAM device: its organisation, its timing in clocks, and its energy per command."""

from dataclasses import dataclass, field, fields, replace

from onehop.errors import ArgumentError
from onehop.machines.common.checks import check
from onehop.machines.common.files import made

# The command level stores one bit for each bank of a rank (csrc/machines/dram.hpp).
_MOST_BANKS = 64
# Far more than any device has. The limit keeps sums of clocks within the bits that the command level packs
# into one word.
_MOST_CLOCKS = 1 << 20
_MAY_BE_ZERO = (
    "rtw", "cs", "wtr_s", "wtr_l", "rcd_wr", "act_clocks", "aad", "rfc_sb", "refi_sb", "refsb_act",
    "refsb_refsb", "rp_all", "faw_refsb",
)  # fmt: skip
_MOST_OF = {"command_clocks": 2, "act_clocks": 3, "command_buses": 2, "command_edges": 2, "faw_refsb": 1}
_ENERGIES = ("activate_nj", "read_nj", "write_nj", "refresh_nj", "standby_mw", "closed_mw")


@dataclass(frozen=True, slots=True)
class Organisation:
    """One rank as its memory controller sees it.

    Attributes:
        bus_bits: Width of the data bus; 32 for a DDR5 sub-channel, 64 for DDR4.
        bank_groups: Bank groups of a rank, a power of two.
        banks_per_group: Banks of a bank group, a power of two.
        rows: Rows of a bank, a power of two.
        row_bursts: Bursts of a row, a power of two.
        burst_bytes: Bytes that one read or write moves.
        transfers_per_clock: Transfers of the data bus per clock of the commands: 2, or 8 for LPDDR5, whose
            data have their own clock.
        refresh_set: Number of banks that a same-bank refresh takes: 1, or ``bank_groups`` as in DDR5, where
            it takes the same bank of every bank group.
    """

    bus_bits: int
    bank_groups: int
    banks_per_group: int
    rows: int
    row_bursts: int
    burst_bytes: int
    transfers_per_clock: int = 2
    refresh_set: int = 1

    def __post_init__(self) -> None:
        check(self, "organisation", ArgumentError)
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
        if self.refresh_set not in (1, self.bank_groups):
            raise ArgumentError(
                f"organisation.refresh_set: expected 1 or the {self.bank_groups} of bank_groups, got "
                f"{self.refresh_set}."
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
    """Minimum distances between commands, in clocks; the names are JEDEC's names without the t.

    A command that takes several clocks of the command bus (DDR5's ACT, RD and WR) takes effect in its last
    clock. So the distance between a long and a short command is longer or shorter than the value here;
    :mod:`.rules` accounts for this.

    A device file may omit fields that have a default.

    Attributes:
        clock_ps: Duration of a clock, in picoseconds.
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
        command_clocks: Clocks of the command bus that ACT, RD and WR take, 1 or 2; PRE and REF take 1.
        rcd_wr: ACT to WR of the bank; 0 means ``rcd``, which then holds for RD and WR.
        act_clocks: Clocks that ACT takes, 1 to 3; 0 means ``command_clocks``.
        command_buses: 1, or 2 if RD and WR have their own command bus, as in HBM.
        command_edges: 1; or 2 if a clock here is half a clock of the device and all commands except PRE begin
            in odd clocks, as in HBM3.
        aad: 0; or, if ACT is two commands as in LPDDR5, the number of clocks within which the second must
            follow. Other timings count from the first.
        rfc_sb: REF of a set of banks to the next ACT of one of them; 0 means that the device has no such
            refresh.
        refi_sb: Time from the refresh of one set of banks to the refresh of the next set.
        refsb_act: REF of a set of banks to ACT of another bank of the rank.
        refsb_refsb: REF of a set of banks to the next such REF of the rank.
        rp_all: PRE of all banks to ACT or REF; 0 means ``rp``.
        faw_refsb: 1 if a REF of one bank counts as an ACT in ``faw``, as in LPDDR5 and HBM; 0 if not.
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
    rcd_wr: int = 0
    act_clocks: int = 0
    command_buses: int = 1
    command_edges: int = 1
    aad: int = 0
    rfc_sb: int = 0
    refi_sb: int = 0
    refsb_act: int = 0
    refsb_refsb: int = 0
    rp_all: int = 0
    faw_refsb: int = 0

    def __post_init__(self) -> None:
        """Check every field, and the relations between fields that a schedule relies on."""
        most = {entry.name: _MOST_OF.get(entry.name, _MOST_CLOCKS) for entry in fields(self)}
        check(self, "timing", ArgumentError, least=dict.fromkeys(_MAY_BE_ZERO, 0), most=most)
        if self.aad >= min(self.rcd, self.write_rcd) and self.aad:
            raise ArgumentError(
                f"timing.aad: expected less than rcd and rcd_wr, for a row is open only after the "
                f"second half of its ACT; got {self.aad}."
            )
        if self.aad and (self.activate_clocks > 1 or self.command_buses > 1):
            raise ArgumentError(
                "timing.aad: expected 0 where ACT takes several clocks or has a bus of its own; an ACT of "
                f"two commands has one clock each, on the only bus; got {self.aad}."
            )
        if self.rfc_sb and self.refi_sb <= self.refsb_refsb:
            raise ArgumentError(
                f"timing.refi_sb: expected more than refsb_refsb ({self.refsb_refsb}) where rfc_sb is given, "
                f"or refreshes fall further and further behind; got {self.refi_sb}."
            )
        if self.refi <= self.rfc + self.rank_rp:
            raise ArgumentError(
                f"timing.refi: expected more than rfc + rp ({self.rfc + self.rank_rp}), or the rank does "
                f"nothing but refresh; got {self.refi}."
            )
        if self.rc < self.ras:
            raise ArgumentError(f"timing.rc: expected at least ras ({self.ras}), got {self.rc}.")

    @property
    def write_rcd(self) -> int:
        """Clocks from ACT to WR of the same bank."""
        return self.rcd_wr or self.rcd

    @property
    def activate_clocks(self) -> int:
        """Clocks of the command bus that ACT takes."""
        return self.act_clocks or self.command_clocks

    @property
    def rank_rp(self) -> int:
        """Clocks from PRE of all banks to ACT or REF."""
        return self.rp_all or self.rp

    def in_full(self) -> "Timing":
        """Return a copy in which fields of 0 are replaced by the values that 0 means."""
        return replace(self, rcd_wr=self.write_rcd, act_clocks=self.activate_clocks, rp_all=self.rank_rp)


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of a rank per command: the array and its own interface only (no bus, no buffer chip).

    Attributes:
        activate_nj: Energy of an ACT and of the PRE that closes the row.
        read_nj: Energy of a burst read.
        write_nj: Energy of a burst written.
        refresh_nj: Energy of an all-bank REF.
        standby_mw: Power of the rank with a row open in every bank.
        source: The source of the figures.
        closed_mw: Power of the rank with all rows closed; each bank with an open row adds an equal share of
            the difference to ``standby_mw``. 0 means ``standby_mw``.

    The energy of a command is what it adds to this power. An ACT and its PRE add to ``closed_mw`` with one
    open bank, or to ``standby_mw`` if ``closed_mw`` is 0. Bursts and REF add to ``standby_mw``.
    """

    activate_nj: float
    read_nj: float
    write_nj: float
    refresh_nj: float
    standby_mw: float
    source: str
    closed_mw: float = 0.0

    def __post_init__(self) -> None:
        check(self, "energy", ArgumentError, least=dict.fromkeys(_ENERGIES, 0))
        if self.closed_mw > self.standby_mw:
            raise ArgumentError(
                f"energy.closed_mw: expected at most standby_mw ({self.standby_mw}), which has open rows, "
                f"got {self.closed_mw}."
            )

    @property
    def idle_mw(self) -> float:
        """Power of the rank with all rows closed."""
        return self.closed_mw or self.standby_mw


@dataclass(frozen=True, slots=True)
class Dram:
    """A DRAM device with all that both levels of :class:`onehop.machines.dram.Memory` need.

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
        """Check the name, and that a burst fills the bus."""
        check(self, error=ArgumentError)
        transfers = self.organisation.transfers_per_clock
        carried = self.organisation.bus_bits // 8 * transfers * self.timing.bl
        if carried != self.organisation.burst_bytes:
            raise ArgumentError(
                f"{self.name}: a bus of {self.organisation.bus_bits} bits moves {carried} bytes in "
                f"{self.timing.bl} clocks, at {transfers} transfers a clock, but a burst has "
                f"{self.organisation.burst_bytes}; fix timing.bl, organisation.bus_bits or "
                "organisation.burst_bytes."
            )

    @property
    def peak_gbps(self) -> float:
        """Bandwidth of the data bus when it is never idle, in 1e9 bytes per second."""
        return self.organisation.burst_bytes / (self.timing.bl * self.timing.clock_ps) * 1000.0

    def with_timing(self, **clocks: int) -> "Dram":
        """Return a copy with other timings, for example ``preset("DDR5_4800AN").with_timing(faw=32)``.

        Raises:
            ArgumentError: A timing is unknown, or a value is out of range.
        """
        return replace(self, timing=made(Timing, clocks, "timing", ArgumentError, self.timing))
