"""A near-bank machine's configuration: every constant with its unit; presets.py names the sources."""

import math
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

from onehop.errors import ConfigurationError
from onehop.machines.pim.parts import Arithmetic, Core, Functions, Host, Links, Power
from onehop.plans.pim import DTYPES
from onehop.storage import write_text


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
        host: The host, which combines.
        arithmetic: Instructions by dtype.
        functions: Instructions of comparisons, exponentials and divisions by floating-point dtype, which max,
            min and attention need. Of a dtype that is missing here a machine has sums alone.
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
    host: Host = field(default_factory=Host)
    arithmetic: dict[str, Arithmetic] = field(default_factory=dict)
    functions: dict[str, Functions] = field(default_factory=dict)
    estimate: bool = False

    def __post_init__(self) -> None:
        """Checks every value."""
        if not self.name or not isinstance(self.name, str):
            raise ConfigurationError(f"name: expected a text, got {self.name!r}.")
        for name in ("cores", "ranks"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= _MOST_CORES:
                raise ConfigurationError(
                    f"{name}: expected an integer from 1 to {_MOST_CORES}, got {value!r}."
                )
        if not isinstance(self.estimate, bool):
            raise ConfigurationError(f"estimate: expected true or false, got {self.estimate!r}.")
        if not 1 <= self.ranks <= self.cores:
            raise ConfigurationError(
                f"ranks: expected 1 to {self.cores}, the number of cores, got {self.ranks}."
            )
        for part in _PARTS:
            _check_values(part, getattr(self, part))
        _check_limits(self.links)
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
        for dtype, values in self.functions.items():
            known = [each for each in self.arithmetic if each.startswith("float")]
            if dtype not in known:
                raise ConfigurationError(
                    f"functions: expected floating-point dtypes of arithmetic, which has "
                    f"{', '.join(known) or 'none'}, got {dtype!r}."
                )
            _check_values(f"functions.{dtype}", values)

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
            for part in _PARTS:
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
        tables: dict[str, Any] = {part: getattr(self, part) for part in _PARTS}
        for part in _BY_DTYPE:
            tables.update({f"{part}.{dtype}": costs for dtype, costs in getattr(self, part).items()})
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
    def from_toml(cls, text: str, base: "PimConfig | None" = None) -> "PimConfig":
        """The configuration that :meth:`to_toml` wrote; omitted values keep their defaults.

        Args:
            text: The document.
            base: The machine whose values omitted ones keep, in place of the defaults. Tables of arithmetic
                replace all of its tables, and those of functions go with the dtypes that are left.

        Raises:
            ConfigurationError: Not TOML, an unknown key, or a value that does not fit.
        """
        document = document_of(text)
        if base is not None:
            document.pop("base", None)
        values = _checked_keys("machine", document, {each.name for each in fields(cls)})
        for part, kind in _PARTS.items():
            if part in values:
                values[part] = _table(part, values[part], kind, None if base is None else getattr(base, part))
        for part, kind in _BY_DTYPE.items():
            if part in values or base is None:
                tables = values.get(part, {})
                if not isinstance(tables, dict):
                    raise ConfigurationError(f"{part}: expected tables by dtype, got {tables!r}.")
                values[part] = {
                    dtype: _table(f"{part}.{dtype}", table, kind) for dtype, table in tables.items()
                }
        if base is not None:
            if "arithmetic" in values:
                kept = {k: v for k, v in base.functions.items() if k in values["arithmetic"]}
                values.setdefault("functions", kept)
            return replace(base, **values)
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


_PARTS: dict[str, type] = {"core": Core, "links": Links, "power": Power, "host": Host}
_BY_DTYPE: dict[str, type] = {"arithmetic": Arithmetic, "functions": Functions}
# Far more than any machine has; what is kept for each core must fit into memory.
_MOST_CORES = 1 << 20
_TOP = ("name", "cores", "ranks", *_BY_DTYPE, "estimate")
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
        "coo_edge_instructions",
        "element_instructions",
        "core_w",
        "rank_w",
        "host_w",
    }
)


def document_of(text: str) -> dict[str, Any]:
    """A machine file's content.

    Raises:
        ConfigurationError: Not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"machine: not TOML ({error}).") from error


def settable() -> list[str]:
    """The names that :meth:`PimConfig.with_` takes and that are single numbers."""
    names = ["cores", "ranks"]
    for part in (kind() for kind in _PARTS.values()):
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


def _check_limits(links: Links) -> None:
    """Raises where a single core would be faster than its rank."""
    for core, rank, gbps in (
        ("core_push_gbps", "rank_push_gbps", links.rank_push_gbps),
        ("core_pull_gbps", "rank_pull_gbps", links.rank_pull_gbps),
        ("core_push_gbps", "broadcast_gbps of one rank", links.broadcast_gbps[0][1]),
    ):
        if getattr(links, core) > gbps:
            raise ConfigurationError(
                f"links.{core}: expected at most {gbps}, {rank}, got {getattr(links, core)}."
            )


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


def _table(name: str, table: Any, kind: type, base: Any = None) -> Any:
    values = _checked_keys(name, table, {each.name for each in fields(cast(Any, kind))})
    values = {key: _tuples(value) for key, value in values.items()}
    try:
        return kind(**values) if base is None else replace(base, **values)
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
