"""User-defined devices, read from and written to TOML."""

import json
import tomllib
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from onehop.errors import FileFormatError
from onehop.machines.dram.device import Dram, Energy, Organisation, Timing

_SECTIONS: dict[str, type[Organisation] | type[Timing] | type[Energy]] = {
    "organisation": Organisation,
    "timing": Timing,
    "energy": Energy,
}


def to_toml(dram: Dram) -> str:
    """The device as TOML: its name, and the sections organisation, timing and energy."""
    lines = [f"name = {json.dumps(dram.name)}"]
    for section in _SECTIONS:
        lines += ["", f"[{section}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in asdict(getattr(dram, section)).items()]
    return "\n".join(lines) + "\n"


def from_toml(text: str, source: str = "device") -> Dram:
    """The device that TOML describes.

    Args:
        text: The output of :func:`to_toml`.
        source: The name that errors use for the text.

    Raises:
        FileFormatError: The text is not TOML, or a key is missing or unknown.
        ArgumentError: A value is out of range.
    """
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(f"{source}: not TOML ({error}).") from error
    _check_keys(source, read, ["name", *_SECTIONS], ["name", *_SECTIONS])
    parts: dict[str, Any] = {}
    for section, kind in _SECTIONS.items():
        values = read[section]
        if not isinstance(values, dict):
            raise FileFormatError(f"{source}: expected a section [{section}], got {values!r}.")
        known = [entry.name for entry in fields(kind)]
        needed = [entry.name for entry in fields(kind) if entry.default is MISSING]
        _check_keys(f"{source}, [{section}]", values, known, needed)
        parts[section] = kind(**values)
    return Dram(read["name"], **parts)


def load(path: str | Path) -> Dram:
    """The device that a TOML file describes.

    Raises:
        FileFormatError: The file is not TOML, or a key is missing or unknown.
        ArgumentError: A value is out of range.
        OSError: The file cannot be read.
    """
    try:
        return from_toml(Path(path).read_text(), str(path))
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path}: not text ({error}).") from error


def _check_keys(where: str, values: dict[str, Any], known: list[str], needed: list[str]) -> None:
    unknown, missing = sorted(set(values) - set(known)), [key for key in needed if key not in values]
    if unknown:
        raise FileFormatError(f"{where}: unknown key {', '.join(unknown)}; expected {', '.join(known)}.")
    if missing:
        raise FileFormatError(f"{where}: no {', '.join(missing)}; expected {', '.join(needed)}.")
