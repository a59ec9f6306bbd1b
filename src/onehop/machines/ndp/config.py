"""The configuration of a near-rank machine, to and from TOML, and the machines included in onehop."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onehop.machines.common import files
from onehop.machines.common.checks import check
from onehop.machines.ndp.sections import Control, DramChoice, EnergyFigures, Host, Module, Topology


@dataclass(frozen=True, slots=True)
class NdpConfig:
    """A machine. Sections and keys of the TOML file are the fields of the same names.

    Attributes:
        name: Its name in reports.
        topology: Channels, DIMMs, ranks.
        dram: The ranks' DRAM.
        module: The units.
        host: The processor.
        control: Costs of control.
        energy: Energy figures.
    """

    name: str
    topology: Topology
    dram: DramChoice = field(default_factory=DramChoice)
    module: Module = field(default_factory=Module)
    host: Host = field(default_factory=Host)
    control: Control = field(default_factory=Control)
    energy: EnergyFigures = field(default_factory=EnergyFigures)

    def __post_init__(self) -> None:
        """Checks the name; sections check themselves."""
        check(self)

    @property
    def burst_bytes(self) -> int:
        """Bytes of a burst of the ranks' DRAM."""
        return self.dram.device().organisation.burst_bytes

    def change(self, **sections: dict[str, Any]) -> "NdpConfig":
        """The machine with other values, for example ``config.change(dram={"faw": "sheet"})``.

        Raises:
            ConfigurationError: An unknown section or key, or a value out of range.
        """
        return files.made(NdpConfig, sections, base=self)

    def to_toml(self) -> str:
        """The machine as TOML."""
        return files.written(self)

    @classmethod
    def from_toml(cls, text: str, folder: Path | None = None) -> "NdpConfig":
        """The machine of a TOML text; omitted keys have their defaults, except those of ``topology``.

        Args:
            text: The text.
            folder: Where a device file of ``dram.preset`` with a relative path lies; None is the current one.

        Raises:
            ConfigurationError: Not TOML, an unknown section or key, or a value out of range.
        """
        values = files.document_of(text)
        dram = values.get("dram")
        if folder is not None and isinstance(dram, dict) and str(dram.get("preset", "")).endswith(".toml"):
            dram["preset"] = str(folder / dram["preset"])
        return files.made(cls, values)


def presets() -> list[str]:
    """Names of the machines included in onehop."""
    return files.included(__package__, "presets")


def load(source: str | Path) -> NdpConfig:
    """The machine of this name, or of a TOML file.

    Raises:
        ConfigurationError: No preset of that name and no such file, or the file is wrong.
    """
    return NdpConfig.from_toml(*files.opened(source, __package__, "presets", "machine"))
