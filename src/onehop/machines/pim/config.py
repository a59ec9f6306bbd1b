"""The configuration of a near-bank machine: every constant has a unit, and presets.py names the sources."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from onehop.errors import ConfigurationError
from onehop.machines.common.checks import check
from onehop.machines.common.files import document_of, made, text_of, written
from onehop.machines.pim.parts import Arithmetic, Core, Functions, Host, Links, Power
from onehop.plans.pim import DTYPES
from onehop.storage import write_text


@dataclass(frozen=True, slots=True)
class PimConfig:
    """A near-bank machine.

    Attributes:
        name: Name of the machine.
        cores: Number of cores.
        ranks: Number of groups of cores that transfer together; groups are as equal in size as possible.
        core: Properties of each core.
        links: Properties of the links between host and cores.
        power: Power by consumer.
        host: Properties of the host, which combines.
        arithmetic: Instruction counts by dtype.
        functions: Instruction counts of comparisons, exponentials and divisions by floating-point dtype,
            which max, min and attention need. For a dtype that is missing here, the machine can only compute
            sums.
        estimate: Whether the figures are guesses instead of values from measurements.

    Raises:
        ConfigurationError: A value is out of range.

    Examples:
        >>> import dataclasses
        >>> from onehop.machines import pim
        >>> config = pim.preset("upmem_v1a")
        >>> doubled = dataclasses.replace(config, cores=2 * config.cores)
        >>> config.cores, pim.Machine(doubled).config.cores
        (1992, 3984)
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
        check(self, most=dict.fromkeys(("cores", "ranks"), _MOST_CORES))
        if not 1 <= self.ranks <= self.cores:
            raise ConfigurationError(
                f"ranks: expected 1 to {self.cores}, the number of cores, got {self.ranks}."
            )
        for part in _PARTS:
            check(getattr(self, part), part, least=_MAY_BE_ZERO)
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
            check(costs, f"arithmetic.{dtype}", least=_MAY_BE_ZERO)
        for dtype, values in self.functions.items():
            floats = [each for each in self.arithmetic if each.startswith("float")]
            if dtype not in floats:
                raise ConfigurationError(
                    f"functions: expected floating-point dtypes of arithmetic, which has "
                    f"{', '.join(floats) or 'none'}, got {dtype!r}."
                )
            check(values, f"functions.{dtype}")

    @property
    def rank_cores(self) -> tuple[int, ...]:
        """Number of cores in each rank; if they do not divide evenly, the first ranks have one core more."""
        least, more = divmod(self.cores, self.ranks)
        return (least + 1,) * more + (least,) * (self.ranks - more)

    @property
    def cycle_ns(self) -> float:
        """Length of a core's clock cycle."""
        return 1e3 / self.core.clock_mhz

    def peak_gops(self, dtype: str, multiplies: bool = True) -> float:
        """Return the peak of all cores in 10^9 operations per second, for arithmetic alone.

        Args:
            dtype: The numbers' dtype.
            multiplies: Whether to count a multiply by one and an add, as two operations; if not, only an add.
        """
        costs = self.arithmetic[dtype]
        operations = 2 if multiplies else 1
        instructions = costs.accumulate + (costs.multiply_one if multiplies else 0.0)
        return operations * self.cores * self.core.clock_mhz / 1e3 / instructions

    def with_(self, **changes: Any) -> "PimConfig":
        """Return the machine with other values, given by field name; this includes the fields of its parts.

        Raises:
            ConfigurationError: No field has this name, or the value is out of range.
        """
        changed: dict[str, Any] = {}
        for name, value in changes.items():
            if name in _TOP:
                changed[name] = value
                continue
            for part in _PARTS:
                current = changed.get(part, getattr(self, part))
                if name in {each.name for each in fields(current)}:
                    changed[part] = replace(current, **{name: value})
                    break
            else:
                raise ConfigurationError(
                    f"{name}: a machine has no such value; there are {', '.join(settable())}."
                )
        return replace(self, **changed)

    def to_toml(self) -> str:
        """Return the configuration as a TOML document."""
        return written(self)

    def save(self, path: str | Path) -> None:
        """Write the configuration to a TOML file.

        Raises:
            StorageError: The file cannot be written; an earlier file stays unchanged.
        """
        write_text("path", path, self.to_toml())

    @classmethod
    def from_toml(cls, text: str, base: "PimConfig | None" = None) -> "PimConfig":
        """Return the configuration that :meth:`to_toml` wrote; omitted values keep their defaults.

        Args:
            text: The document.
            base: The machine that gives omitted values; None means the defaults. If the document has
                arithmetic tables, they replace all of the base's arithmetic tables, and only functions of
                these dtypes are kept.

        Raises:
            ConfigurationError: The text is not TOML, a key is unknown, or a value does not fit.
        """
        document = document_of(text)
        if base is not None:
            document.pop("base", None)
            dtypes = document.get("arithmetic", base.functions)
            base = replace(base, functions={k: v for k, v in base.functions.items() if k in dtypes})
        return made(cls, document, base=base)

    @classmethod
    def load(cls, path: str | Path) -> "PimConfig":
        """Return the configuration of a TOML file.

        Raises:
            ConfigurationError: See :meth:`from_toml`.
            FileNotFoundError: There is no such file.
        """
        return cls.from_toml(text_of(path))


_PARTS: dict[str, type] = {"core": Core, "links": Links, "power": Power, "host": Host}
# Far more than any machine has; the data kept for each core must fit into memory.
_MOST_CORES = 1 << 20
_TOP = ("name", "cores", "ranks", "arithmetic", "functions", "estimate")
# Values that may be zero; zero means that the part does not exist or costs nothing.
_MAY_BE_ZERO = dict.fromkeys(
    (
        *("core_to_core_gbps", "call_us", "page_fault_ns", "stack_bytes", "multiply_one", "multiply_full"),
        *("row_instructions", "row_element_instructions", "element_instructions"),
        *("edge_instructions", "coo_edge_instructions", "core_w", "rank_w", "host_w", "host_idle_w"),
    ),
    0,
)


def settable() -> list[str]:
    """Return the names that :meth:`PimConfig.with_` accepts and whose values are single numbers."""
    names = ["cores", "ranks"]
    for part in (kind() for kind in _PARTS.values()):
        names += [each.name for each in fields(part) if type(getattr(part, each.name)) in (int, float)]
    return names


def _check_limits(links: Links) -> None:
    """Raise if a single core is faster than its rank."""
    for core, rank, gbps in (
        ("core_push_gbps", "rank_push_gbps", links.rank_push_gbps),
        ("core_pull_gbps", "rank_pull_gbps", links.rank_pull_gbps),
        ("core_push_gbps", "broadcast_gbps of one rank", links.broadcast_gbps[0][1]),
    ):
        if getattr(links, core) > gbps:
            raise ConfigurationError(
                f"links.{core}: expected at most {gbps}, {rank}, got {getattr(links, core)}."
            )
