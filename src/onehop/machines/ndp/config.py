"""The configuration of a near-rank machine, frozen and checked; TOML input and output; included machines.

If the paper gives no value, the default is an assumption and is marked as one; every value is a parameter.
"GraNDe" is Yun et al., "GraNDe: Efficient near-data processing architecture for graph neural networks", IEEE
Transactions on Computers, 2023.
"""

from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from onehop.errors import ArgumentError, ConfigurationError, FileFormatError
from onehop.machines.common import files
from onehop.machines.common.checks import check
from onehop.machines.dram import Dram, Memory, load as load_device, preset as dram_preset
from onehop.machines.dram.memory import check_level

MOST_RANKS = 255
# tFAW in Micron's DDR5 data sheet for 1 KiB pages, as in gem5's interface file: 32 clocks at every speed
# grade.
SHEET_FAW_CLOCKS = 32
FAW_WORDS = ("preset", "sheet")


@dataclass(frozen=True, slots=True)
class Topology:
    """The ranks, and the assignment of nodes to them.

    Attributes:
        channels: Memory channels; a channel is the bus of one controller, for DDR5 a 32-bit sub-channel.
        dimms_per_channel: DIMMs per channel.
        ranks_per_dimm: Ranks per DIMM; each rank has a module in the DIMM's buffer chip.
        node_block: Nodes are assigned to the ranks round-robin in blocks of this size; 0 means that each rank
            has one contiguous part. The paper does not specify it; with 1, windows of consecutive targets
            load all ranks evenly.
    """

    channels: int
    dimms_per_channel: int
    ranks_per_dimm: int
    node_block: int = 1

    def __post_init__(self) -> None:
        check(self, "topology", least={"node_block": 0})
        if self.ranks > MOST_RANKS:
            raise ConfigurationError(
                f"topology: expected at most {MOST_RANKS} ranks in all, got {self.ranks}."
            )
        if self.ranks_per_channel & (self.ranks_per_channel - 1):
            raise ConfigurationError(
                "topology: expected a power of two of ranks a channel, since address layouts give it whole "
                f"bits, got {self.ranks_per_channel}; change dimms_per_channel or ranks_per_dimm."
            )

    @property
    def ranks_per_channel(self) -> int:
        """Number of ranks behind one bus."""
        return self.dimms_per_channel * self.ranks_per_dimm

    @property
    def ranks(self) -> int:
        """Number of ranks of the machine."""
        return self.channels * self.ranks_per_channel


@dataclass(frozen=True, slots=True)
class DramChoice:
    """The ranks' DRAM.

    Attributes:
        preset: A device of :func:`onehop.machines.dram.preset`, or a TOML file that
            :func:`onehop.machines.dram.load` reads, with a path relative to the machine's file.
        faw: tFAW: ``preset`` takes the device's value; ``sheet`` takes 32 clocks, as in Micron's DDR5 data
            sheet; a number is in clocks. The sources disagree, and at DDR5-4800 the choice changes random
            reads of 64 bytes from 61 % to 91 % of the peak.
        layout: Address layout inside a rank. The default keeps four bursts in a row of a bank and then moves
            on to the next bank group. So slices of 128 bytes and more are read, and consecutive slices are
            written, at the bus's rate. The paper does not specify it.
        refresh_mode: ``all_bank`` or ``same_bank``.
        close_after: Accesses after which a row is closed; 0 means that only another row of its bank closes
            it.
        level: The level that gives times of traffic: ``command`` makes a command-level run for each kind of
            traffic, which takes a few hundredths of a second once; ``curve`` interpolates between runs of
            other lengths.
    """

    preset: str = "DDR5_4800AN"
    faw: str | int = "preset"
    layout: str = "column:2, bank_group, bank, column, rank, row"
    refresh_mode: str = "all_bank"
    close_after: int = 0
    level: str = "command"

    def __post_init__(self) -> None:
        try:
            check_level(self.level)
        except ArgumentError as error:
            raise ConfigurationError(f"dram.{error}") from error
        is_clocks = type(self.faw) is int and self.faw >= 1
        if not is_clocks and self.faw not in FAW_WORDS:
            raise ConfigurationError(
                f"dram.faw: expected {', '.join(FAW_WORDS)} or a number of clocks, got {self.faw!r}."
            )
        device = self.device()
        try:
            Memory(device, 1, self.layout, refresh_mode=self.refresh_mode, close_after=self.close_after)
        except ArgumentError as error:
            raise ConfigurationError(f"dram: {error}") from error

    def device(self) -> Dram:
        """Return the device with the chosen tFAW.

        Raises:
            ConfigurationError: The preset is unknown, the file is wrong, or the data sheet has no tFAW for
                the device.
        """
        try:
            device = _named_device(self.preset)
            if self.faw == "preset":
                return device
            if self.faw == "sheet" and not device.name.startswith("DDR5"):
                raise ConfigurationError(
                    f"dram.faw: the sheet's figure is DDR5's, and the preset is {self.preset}; give clocks."
                )
            return device.with_timing(faw=SHEET_FAW_CLOCKS if isinstance(self.faw, str) else self.faw)
        except (ArgumentError, FileFormatError) as error:
            raise ConfigurationError(f"dram: {error}") from error


def _named_device(name: str) -> Dram:
    """Return the device that a preset or a file describes."""
    if not isinstance(name, str):
        raise ArgumentError(f"preset: expected a name or a TOML file, got {name!r}.")
    if not name.endswith(".toml"):
        return dram_preset(name)
    try:
        return _loaded_device(name, Path(name).stat().st_mtime_ns)
    except OSError as error:
        raise ArgumentError(f"preset: cannot read the device file {name} ({error.strerror}).") from error


@lru_cache(maxsize=32)
def _loaded_device(path: str, changed_ns: int) -> Dram:
    """Return the device of a file; ``changed_ns`` is the time of the file's last change."""
    return load_device(path)


@dataclass(frozen=True, slots=True)
class Module:
    """The near-data unit of a rank.

    Attributes:
        buffer_kib: Size of each of the four equal buffers, in KiB. The paper gives only the number of
            buffers; 128 KiB hold the outputs of 128 targets of 1 KiB each, the largest tile that the paper
            shows.
        output_buffers: Buffers for outputs; the others hold bundles of other ranks. The paper does not say
            how those are used without bundle transfer: 4 here lets the host lag by two more windows.
        lanes: Number of 32-bit multiply-accumulate units.
        clock_mhz: Clock of the lanes. 300 MHz would keep up with DDR5-4800 bursts if each burst were used
            once. A tile uses a read several times, so the default is four times that. The paper gives neither
            value.
        adjacency_entry_bytes: Bytes per edge of the adjacency: column and value.
        row_pointer_bytes: Bytes of a pointer to a target's part of the adjacency; each rank has one pointer
            per target. 0 means that pointers cost nothing. An assumption: the sizes in the paper imply about
            one byte.
        flags_in_dram: Whether re-tiling's flags, one bit per node, are kept in DRAM as in the paper. If not,
            they cause no traffic.
    """

    buffer_kib: float = 128.0
    output_buffers: int = 2
    lanes: int = 16
    clock_mhz: float = 1200.0
    adjacency_entry_bytes: int = 8
    row_pointer_bytes: int = 4
    flags_in_dram: bool = True

    def __post_init__(self) -> None:
        least, most = {"output_buffers": 2, "row_pointer_bytes": 0}, {"output_buffers": 4}
        check(self, "module", least=least, most=most, endless=True)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of one buffer."""
        return int(self.buffer_kib * 1024)


@dataclass(frozen=True, slots=True)
class Host:
    """The processor.

    Attributes:
        channel_gbps: Bandwidth of a channel to the buffers, in 1e9 bytes per second. 0 means the bandwidth of
            streams over the bus, with refresh and turnarounds, because buffers are accessed like ordinary
            memory; the host alone attains it too.
        reduce_gbps: Rate at which the host adds up or concatenates outputs, in 1e9 bytes per second over all
            cores. An assumption: 20 cores at 10 GB/s.
        combine_gflops: Rate of dense products, in 1e9 operations per second over all cores. An assumption: 70
            % of the peak of the paper's Xeon Gold 6138, 20 cores with 64 operations per clock at 1.9 GHz.
        merge_nodes_per_us: Nodes of re-tiling's lists that the host merges per microsecond. The default is a
            lower bound: one core of the paper's Xeon at 1.9 GHz that mispredicts a branch for every node,
            which costs 20 clocks.
        llc_mib: Cache of the baseline for feature vectors, in MiB; 0 means none, because the paper says that
            data are rarely reused.
        llc_ways: Associativity of this cache. An assumption.
        instruction_bytes: Bytes of instructions per edge that the host sends to prior machines over the data
            bus. Not published.
    """

    channel_gbps: float = 0.0
    reduce_gbps: float = 200.0
    combine_gflops: float = 1702.4
    merge_nodes_per_us: float = 95.0
    llc_mib: float = 0.0
    llc_ways: int = 16
    instruction_bytes: int = 8

    def __post_init__(self) -> None:
        least = {"instruction_bytes": 0, "channel_gbps": 0, "llc_mib": 0}
        check(self, "host", least=least, endless=True)


@dataclass(frozen=True, slots=True)
class Control:
    """Costs of starting, polling and flushing, all assumed; the magnitudes are usual for such accesses.

    Attributes:
        start_ns: Time to set the start bits of all modules, once per layer.
        poll_ns: Time from when a module is ready until the host knows it; applies each time that the host
            waits for modules.
        access_ns: Fixed time of each separate transfer to or from a module's buffers, in addition to the time
            of its bytes; the buffers are not cached.
        flush_mib: Upper bound of dirty data in the host's caches when a layer starts; the host writes them
            back first.
    """

    start_ns: float = 1000.0
    poll_ns: float = 100.0
    access_ns: float = 50.0
    flush_mib: float = 27.5

    def __post_init__(self) -> None:
        check(self, "control", least=dict.fromkeys(_names(self), 0), endless=True)


@dataclass(frozen=True, slots=True)
class EnergyFigures:
    """Energy in addition to the DRAM's own (:class:`onehop.machines.dram.Energy`).

    Attributes:
        channel_pj_per_bit: Energy per bit over the channel: RecNMP's off-chip figure, ISCA 2020.
        local_pj_per_bit: Energy per bit between a rank and its module. An assumption: lines are shorter and
            unterminated.
        add_pj: Energy of a 32-bit addition, RecNMP's figure.
        multiply_pj: Energy of a 32-bit multiplication, RecNMP's figure.
        buffer_pj_per_byte: Energy per byte in or out of a buffer. An assumption, of the magnitude that CACTI
            gives.
    """

    channel_pj_per_bit: float = 22.0
    local_pj_per_bit: float = 8.0
    add_pj: float = 7.9
    multiply_pj: float = 25.2
    buffer_pj_per_byte: float = 1.0

    def __post_init__(self) -> None:
        check(self, "energy", least=dict.fromkeys(_names(self), 0), endless=True)


def _names(section: Any) -> list[str]:
    return [entry.name for entry in fields(section)]


@dataclass(frozen=True, slots=True)
class NdpConfig:
    """The configuration of a machine. Sections and keys of the TOML file have the names of the fields.

    Attributes:
        name: The machine's name in reports.
        topology: Channels, DIMMs, ranks.
        dram: The ranks' DRAM.
        module: The near-data units.
        host: The processor.
        control: Costs of control.
        energy: Energy figures.

    Examples:
        >>> from onehop.machines import ndp
        >>> config = ndp.load("grande_16")
        >>> config.topology.channels, config.topology.ranks
        (4, 16)
        >>> ndp.Machine(config).change(topology={"channels": 8}).config.topology.ranks
        32
    """

    name: str
    topology: Topology
    dram: DramChoice = field(default_factory=DramChoice)
    module: Module = field(default_factory=Module)
    host: Host = field(default_factory=Host)
    control: Control = field(default_factory=Control)
    energy: EnergyFigures = field(default_factory=EnergyFigures)

    def __post_init__(self) -> None:
        """Check the name; sections check themselves."""
        check(self)

    @property
    def burst_bytes(self) -> int:
        """Bytes of a burst of the ranks' DRAM."""
        return self.dram.device().organisation.burst_bytes

    def change(self, **sections: dict[str, Any]) -> "NdpConfig":
        """Return a copy with other values, for example ``config.change(dram={"faw": "sheet"})``.

        Raises:
            ConfigurationError: A section or key is unknown, or a value is out of range.
        """
        return files.made(NdpConfig, sections, base=self)

    def to_toml(self) -> str:
        """Return the machine as TOML."""
        return files.written(self)

    @classmethod
    def from_toml(cls, text: str, folder: Path | None = None) -> "NdpConfig":
        """Return the machine of a TOML text; omitted keys have defaults, except the keys of ``topology``.

        Args:
            text: The text.
            folder: The folder for a relative path in ``dram.preset``; None means the current folder.

        Raises:
            ConfigurationError: The text is not TOML, a section or key is unknown, or a value is out of range.
        """
        values = files.document_of(text)
        dram = values.get("dram")
        if folder is not None and isinstance(dram, dict) and str(dram.get("preset", "")).endswith(".toml"):
            dram["preset"] = str(folder / dram["preset"])
        return files.made(cls, values)


def presets() -> list[str]:
    """Names of the machines included in onehop.

    Examples:
        >>> from onehop.machines import ndp
        >>> ndp.presets()
        ['gnnear', 'grande_16', 'grande_32']
    """
    return files.included(__package__, "presets")


def load(source: str | Path) -> NdpConfig:
    """Return the machine of this name, or of a TOML file.

    Raises:
        ConfigurationError: There is no preset of this name and no such file, or the file is wrong.

    Examples:
        >>> from onehop.machines import ndp
        >>> ndp.load("grande_32").topology.ranks
        32
    """
    return NdpConfig.from_toml(*files.opened(source, __package__, "presets", "machine"))
