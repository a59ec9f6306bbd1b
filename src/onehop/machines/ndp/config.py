"""The configuration of a near-rank machine, to and from TOML, and the machines included in onehop."""

import tomllib
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from onehop.errors import ConfigurationError
from onehop.machines.ndp.sections import Control, DramChoice, EnergyFigures, Host, Module, Topology

_SECTIONS: dict[str, type[Any]] = {
    "topology": Topology,
    "dram": DramChoice,
    "module": Module,
    "host": Host,
    "control": Control,
    "energy": EnergyFigures,
}


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

    @property
    def channel_gbps(self) -> float:
        """Bandwidth of the Host-path of a channel, in 1e9 bytes a second, which is bytes a nanosecond."""
        return self.host.channel_gbps or self.dram.device().peak_gbps

    @property
    def burst_bytes(self) -> int:
        """Bytes of a burst of the ranks' DRAM."""
        return self.dram.device().organisation.burst_bytes

    def change(self, **sections: dict[str, Any]) -> "NdpConfig":
        """The machine with other values, for example ``config.change(dram={"faw": "sheet"})``.

        Raises:
            ConfigurationError: An unknown section or key, or a value out of range.
        """
        changed: dict[str, Any] = {}
        for name, values in sections.items():
            _known(f"section {name}", [name], list(_SECTIONS))
            section = getattr(self, name)
            _known(name, values, [entry.name for entry in fields(section)])
            changed[name] = replace(section, **values)
        return replace(self, **changed)

    def to_toml(self) -> str:
        """The machine as TOML."""
        lines = [f"name = {_toml(self.name)}"]
        for section in _SECTIONS:
            lines += ["", f"[{section}]"]
            lines += [f"{key} = {_toml(value)}" for key, value in asdict(getattr(self, section)).items()]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str, folder: Path | None = None) -> "NdpConfig":
        """The machine of a TOML text; omitted keys have their defaults, except those of ``topology``.

        Args:
            text: The text.
            folder: Where a device file of ``dram.preset`` with a relative path lies; None is the current one.

        Raises:
            ConfigurationError: Not TOML, an unknown section or key, or a value out of range.
        """
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(f"machine: not TOML ({error}).") from error
        _known("machine", content, ["name", *_SECTIONS])
        if not isinstance(content.get("name"), str):
            raise ConfigurationError('machine: expected a name, as name = "mine".')
        sections = {}
        for name, kind in _SECTIONS.items():
            values = content.get(name, {})
            if not isinstance(values, dict):
                raise ConfigurationError(f"machine: expected [{name}] to be a section, got {values!r}.")
            _known(name, values, [entry.name for entry in fields(kind)])
            if name == "dram" and folder is not None and str(values.get("preset", "")).endswith(".toml"):
                values = {**values, "preset": str(folder / values["preset"])}
            try:
                sections[name] = kind(**values)
            except TypeError as error:
                raise ConfigurationError(
                    f"{name}: expected channels, dimms_per_channel and ranks_per_dimm, got "
                    f"{', '.join(values) or 'nothing'}."
                ) from error
        return cls(content["name"], **sections)


def presets() -> list[str]:
    """Names of the machines included in onehop."""
    folder = resources.files(__package__) / "presets"
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")
    )


def load(source: str | Path) -> NdpConfig:
    """The machine of this name, or of a TOML file.

    Raises:
        ConfigurationError: No preset of that name and no such file, or the file is wrong.
    """
    if isinstance(source, str) and source in presets():
        entry = resources.files(__package__) / "presets" / f"{source}.toml"
        return NdpConfig.from_toml(entry.read_text())
    path = Path(source)
    if not path.is_file():
        raise ConfigurationError(
            f"machine: expected one of {', '.join(presets())}, or a TOML file, got {str(source)!r}."
        )
    try:
        return NdpConfig.from_toml(path.read_text(), path.parent)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"machine: {path} is not text ({error}).") from error


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)


def _known(what: str, found: Any, known: list[str]) -> None:
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise ConfigurationError(f"{what}: unknown {', '.join(unknown)}; there are {', '.join(known)}.")
