"""A near-bank machine's configuration: every constant with its unit; presets.py names the sources."""

import math
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

from onehop.errors import ConfigurationError
from onehop.plans.pim import DTYPES
from onehop.storage import write_text

# Points of a curve: (where, value), ascending.
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Instructions of one core for numbers of one type.

    A multiply by a number of ``bits`` significant bits takes
    ``multiply_one + (multiply_full - multiply_one) * (bits - 1) / (significant_bits - 1)``: the routine works
    bit by bit and exits early once the smaller operand has no bits left.

    Attributes:
        accumulate: For ``sum += value`` in a loop: loads, add, store, loop.
        multiply_one: Additional, for a multiply by one.
        multiply_full: Additional, for a multiply by a number that uses all its bits.
        significant_bits: The number of these bits.
    """

    accumulate: float
    multiply_one: float
    multiply_full: float
    significant_bits: int


@dataclass(frozen=True, slots=True)
class Core:
    """One core and its bank.

    Attributes:
        clock_mhz: Clock.
        threads: Hardware threads.
        reissue_cycles: A thread may issue again only after so many cycles; with at least as many busy
            threads, one instruction is issued every cycle.
        mram_bytes: Size of its bank.
        wram_bytes: Size of its working memory.
        iram_bytes: Size of its instruction memory.
        stack_bytes: Stack of each thread, in working memory.
        edge_instructions: For each edge, besides the arithmetic: reading index and value, starting a
            transfer.
        element_instructions: For each element of an edge, besides the arithmetic: addresses and the loop.
        row_instructions: For each row: bounds, starting the write.
        row_element_instructions: For each element of a row: clearing the sums.
        dma_read_cycles: Time of a transfer from the bank by its bytes; linear between the points.
        dma_write_cycles: The same, to the bank.
        dma_most_bytes: Largest transfer.
        alignment_bytes: Every transfer's address and size is a multiple of it.
        background_transfers: Whether a tasklet continues while its transfer runs; UPMEM's wait.
    """

    clock_mhz: float = 350.0
    threads: int = 24
    reissue_cycles: int = 11
    mram_bytes: int = 64 << 20
    wram_bytes: int = 64 << 10
    iram_bytes: int = 24 << 10
    stack_bytes: int = 1024
    edge_instructions: float = 35.2
    element_instructions: float = 8.44
    row_instructions: float = 30.0
    row_element_instructions: float = 1.0
    dma_read_cycles: Points = ((8, 81.0), (2048, 1101.0))
    dma_write_cycles: Points = ((8, 65.0), (2048, 1085.0))
    dma_most_bytes: int = 2048
    alignment_bytes: int = 8
    background_transfers: bool = False


@dataclass(frozen=True, slots=True)
class Links:
    """Transfers between the host and the cores, and the host's own rates.

    A transfer runs at the smaller of what all ranks together accept and what the host delivers.

    Attributes:
        broadcast_gbps: Rate of the host, counted at the receivers, when all cores of a rank get the same.
        push_gbps: Rate of the host when each core gets different data.
        pull_gbps: Rate at which the host receives, by kilobytes of each core's block.
        rank_broadcast_gbps: Rate of one rank, likewise counted at the receivers.
        rank_push_gbps: Rate at which one rank receives.
        rank_pull_gbps: Rate at which one rank sends.
        call_us: Latency of a transfer or a launch.
        copy_ns: Merging a row's slice of the first part, by its number of 4-byte values.
        add_ns: Merging one of a further part.
        host_dram_gbps: Bandwidth of the host's memory: no number of threads merges faster.
        host_line_bytes: Its cache line: the least that a narrow slice moves.
        page_bytes: The host's page, and
        page_fault_ns: what its first touch costs; result buffers that are kept save that.
        core_to_core_gbps: Rate between cores, without the host; 0 means that there is no such link. With one,
            clusters that share a feature part add up their partial results themselves.
    """

    broadcast_gbps: float = 43.73
    push_gbps: float = 8.9
    pull_gbps: Points = ((64, 5.33), (480, 5.33))
    rank_broadcast_gbps: float = 16.88
    rank_push_gbps: float = 6.68
    rank_pull_gbps: float = 4.74
    call_us: float = 30.0
    copy_ns: Points = ((1, 29.94), (512, 1123.48))
    add_ns: Points = ((1, 21.66), (512, 716.62))
    host_dram_gbps: float = 23.1
    host_line_bytes: int = 64
    page_bytes: int = 4096
    page_fault_ns: float = 250.0
    core_to_core_gbps: float = 0.0


@dataclass(frozen=True, slots=True)
class Power:
    """Power by consumer.

    Attributes:
        core_w: A core, while its kernel runs.
        rank_w: A rank besides its cores, all the time.
        host_w: The host, while it sends, receives or merges.
        host_idle_w: The host, while it waits for kernels.
    """

    core_w: float = 0.15
    rank_w: float = 2.01
    host_w: float = 70.0
    host_idle_w: float = 0.0


@dataclass(frozen=True, slots=True)
class PimConfig:
    """A near-bank machine.

    Attributes:
        name: Name of the machine.
        cores: Number of cores.
        ranks: Groups of cores that transfer together, as equal in size as possible.
        core: Each core.
        links: Between host and cores.
        power: Power by consumer.
        arithmetic: Instructions by dtype.
        estimate: Whether figures are guesses rather than taken from measurements.

    Raises:
        ConfigurationError: A value is out of range.
    """

    name: str
    cores: int
    ranks: int
    core: Core = field(default_factory=Core)
    links: Links = field(default_factory=Links)
    power: Power = field(default_factory=Power)
    arithmetic: dict[str, Arithmetic] = field(default_factory=dict)
    estimate: bool = False

    def __post_init__(self) -> None:
        """Checks every value."""
        if not self.name or not isinstance(self.name, str):
            raise ConfigurationError(f"name: expected a text, got {self.name!r}.")
        for name in ("cores", "ranks"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigurationError(f"{name}: expected an integer of at least 1, got {value!r}.")
        if not isinstance(self.estimate, bool):
            raise ConfigurationError(f"estimate: expected true or false, got {self.estimate!r}.")
        if not 1 <= self.ranks <= self.cores:
            raise ConfigurationError(
                f"ranks: expected 1 to {self.cores}, the number of cores, got {self.ranks}."
            )
        for part in ("core", "links", "power"):
            _check_values(part, getattr(self, part))
        if self.core.dma_most_bytes % self.core.alignment_bytes:
            raise ConfigurationError(
                f"core: dma_most_bytes must be a multiple of alignment_bytes, {self.core.alignment_bytes}."
            )
        if not self.arithmetic:
            raise ConfigurationError("arithmetic: expected at least one dtype, got none.")
        for dtype, costs in self.arithmetic.items():
            if dtype not in DTYPES:
                raise ConfigurationError(
                    f"arithmetic: unknown dtype {dtype!r}; there are {', '.join(DTYPES)}."
                )
            _check_values(f"arithmetic.{dtype}", costs)

    @property
    def rank_cores(self) -> tuple[int, ...]:
        """Cores of each rank: the first ones have one more where they do not divide evenly."""
        least, more = divmod(self.cores, self.ranks)
        return (least + 1,) * more + (least,) * (self.ranks - more)

    @property
    def cycle_ns(self) -> float:
        """Length of a core's clock cycle."""
        return 1e3 / self.core.clock_mhz

    def peak_gops(self, dtype: str, multiplies: bool = True) -> float:
        """10^9 operations a second of all cores, on arithmetic alone.

        Args:
            dtype: The numbers' dtype.
            multiplies: Count a multiply by one and an add, as two operations; else an add only.
        """
        costs = self.arithmetic[dtype]
        operations = 2 if multiplies else 1
        instructions = costs.accumulate + (costs.multiply_one if multiplies else 0.0)
        return operations * self.cores * self.core.clock_mhz / 1e3 / instructions

    def with_(self, **changes: Any) -> "PimConfig":
        """The machine with other values, by field name; fields of the parts by their own names.

        Raises:
            ConfigurationError: No field has such a name, or the value is out of range.
        """
        own: dict[str, Any] = {}
        for name, value in changes.items():
            if name in _TOP:
                own[name] = value
                continue
            for part in ("core", "links", "power"):
                current = own.get(part, getattr(self, part))
                if name in {each.name for each in fields(current)}:
                    own[part] = replace(current, **{name: value})
                    break
            else:
                raise ConfigurationError(
                    f"{name}: a machine has no such value; there are {', '.join(settable())}."
                )
        return replace(self, **own)

    def to_toml(self) -> str:
        """The configuration as a TOML document."""
        lines = [f"name = {_toml(self.name)}", f"cores = {self.cores}", f"ranks = {self.ranks}"]
        lines.append(f"estimate = {_toml(self.estimate)}")
        tables: dict[str, Any] = {"core": self.core, "links": self.links, "power": self.power}
        tables.update({f"arithmetic.{dtype}": costs for dtype, costs in self.arithmetic.items()})
        for name, table in tables.items():
            lines += ["", f"[{name}]"]
            lines += [f"{each.name} = {_toml(getattr(table, each.name))}" for each in fields(table)]
        return "\n".join(lines) + "\n"

    def save(self, path: str | Path) -> None:
        """Writes the TOML file.

        Raises:
            StorageError: The file cannot be written; an earlier one stays as it was.
        """
        write_text("path", path, self.to_toml())

    @classmethod
    def from_toml(cls, text: str) -> "PimConfig":
        """The configuration that :meth:`to_toml` wrote; omitted values keep their defaults.

        Raises:
            ConfigurationError: Not TOML, an unknown key, or a value that does not fit.
        """
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(f"machine: not TOML ({error}).") from error
        values = _checked_keys("machine", document, {each.name for each in fields(cls)})
        for part, kind in (("core", Core), ("links", Links), ("power", Power)):
            if part in values:
                values[part] = _table(part, values[part], kind)
        arithmetic = values.get("arithmetic", {})
        if not isinstance(arithmetic, dict):
            raise ConfigurationError(f"arithmetic: expected tables by dtype, got {arithmetic!r}.")
        values["arithmetic"] = {
            dtype: _table(f"arithmetic.{dtype}", costs, Arithmetic) for dtype, costs in arithmetic.items()
        }
        missing = [name for name in ("name", "cores", "ranks") if name not in values]
        if missing:
            raise ConfigurationError(f"machine: {', '.join(missing)} must be given.")
        return cls(**values)

    @classmethod
    def load(cls, path: str | Path) -> "PimConfig":
        """The configuration of a TOML file.

        Raises:
            ConfigurationError: See :meth:`from_toml`.
            FileNotFoundError: There is no such file.
        """
        return cls.from_toml(Path(path).read_text())


_TOP = ("name", "cores", "ranks", "arithmetic", "estimate")
# Values for which zero means that there is none, or that it costs nothing.
_MAY_BE_ZERO = frozenset(
    {
        "core_to_core_gbps",
        "host_idle_w",
        "multiply_one",
        "multiply_full",
        "call_us",
        "page_fault_ns",
        "stack_bytes",
        "row_instructions",
        "row_element_instructions",
        "edge_instructions",
        "element_instructions",
        "core_w",
        "rank_w",
        "host_w",
    }
)


def settable() -> list[str]:
    """The names that :meth:`PimConfig.with_` takes and that are single numbers."""
    names = ["cores", "ranks"]
    for part in (Core(), Links(), Power()):
        names += [each.name for each in fields(part) if type(getattr(part, each.name)) in (int, float)]
    return names


def _check_values(part: str, table: Any) -> None:
    for each in fields(table):
        value = getattr(table, each.name)
        if each.type is bool:
            if not isinstance(value, bool):
                raise ConfigurationError(f"{part}.{each.name}: expected true or false, got {value!r}.")
        elif isinstance(value, tuple):
            _check_points(f"{part}.{each.name}", value)
        elif (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or value < 0
        ):
            raise ConfigurationError(f"{part}.{each.name}: expected a number of at least 0, got {value!r}.")
        elif value == 0 and each.name not in _MAY_BE_ZERO:
            raise ConfigurationError(f"{part}.{each.name}: expected more than 0, got {value!r}.")


def _check_points(name: str, points: tuple[Any, ...]) -> None:
    if len(points) < 2:
        raise ConfigurationError(f"{name}: expected at least two entries, got {points!r}.")
    flat = [number for point in points for number in (point if isinstance(point, tuple) else (point,))]
    if any(isinstance(n, bool) or not isinstance(n, int | float) or not n > 0 for n in flat):
        raise ConfigurationError(f"{name}: expected numbers above 0, got {points!r}.")
    if isinstance(points[0], tuple):
        places = [point[0] for point in points]
        if any(len(point) != 2 for point in points) or sorted(set(places)) != places:
            raise ConfigurationError(f"{name}: expected pairs in ascending order, got {points!r}.")


def _checked_keys(name: str, table: Any, known: set[str]) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ConfigurationError(f"{name}: expected a table, got {table!r}.")
    unknown = sorted(set(table) - known)
    if unknown:
        raise ConfigurationError(
            f"{name}: unknown key {', '.join(unknown)}; there are {', '.join(sorted(known))}."
        )
    return dict(table)


def _table(name: str, table: Any, kind: type) -> Any:
    values = _checked_keys(name, table, {each.name for each in fields(cast(Any, kind))})
    try:
        return kind(**{key: _tuples(value) for key, value in values.items()})
    except TypeError as error:
        raise ConfigurationError(f"{name}: {error}.") from error


def _tuples(value: Any) -> Any:
    return tuple(_tuples(each) for each in value) if isinstance(value, list) else value


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return repr(value)
