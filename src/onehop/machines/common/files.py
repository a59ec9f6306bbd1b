"""Reading and writing machines as TOML files.

A machine is a dataclass. Its fields are plain values, sections (dataclasses) or dictionaries of sections by
name. The dataclasses check types and ranges themselves (checks.py).
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_origin

from onehop.errors import ConfigurationError, OnehopError

T = TypeVar("T")


def text_of(path: str | Path, error: type[OnehopError] = ConfigurationError) -> str:
    """Return the text of a file.

    Raises:
        OnehopError: The file is not text; the class is ``error``.
        OSError: The file cannot be read.
    """
    try:
        return Path(path).read_text()
    except UnicodeDecodeError as wrong:
        raise error(f"{path}: not text ({wrong}).") from wrong


def included(package: str, folder: str) -> list[str]:
    """Return the names of the machines in a folder of a package; each machine is one TOML file."""
    names = (entry.name for entry in (resources.files(package) / folder).iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def opened(source: str | Path, package: str, folder: str, what: str) -> tuple[str, Path | None]:
    """Return the text of an included machine (by name), or the text and the folder of a TOML file.

    Raises:
        ConfigurationError: There is no machine of this name and no such file, or the file is not text.
    """
    names = included(package, folder)
    if isinstance(source, str) and source in names:
        return (resources.files(package) / folder / f"{source}.toml").read_text(), None
    if not Path(source).is_file():
        raise ConfigurationError(
            f"{what}: expected one of {', '.join(names)}, or a TOML file, got {str(source)!r}."
        )
    return text_of(source), Path(source).parent


def document_of(
    text: str, where: str = "machine", error: type[OnehopError] = ConfigurationError
) -> dict[str, Any]:
    """Return the keys of a TOML text, which error messages call ``where``."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise error(f"{where}: not TOML ({wrong}).") from wrong


def made(
    kind: type[T],
    values: Mapping[str, Any],
    where: str = "machine",
    error: type[OnehopError] = ConfigurationError,
    base: T | None = None,
) -> T:
    """Create a dataclass from the values of a file; the dataclass itself checks types and ranges.

    Args:
        kind: The dataclass.
        values: The file's values; sections are dictionaries, curves are lists of lists.
        where: The name that error messages use for the file.
        error: The class of the errors that are raised.
        base: Gives the values that the file omits; None means the dataclass's defaults.

    Raises:
        OnehopError: A key is unknown, or a key without a default is missing; the class is ``error``.
    """
    entries = fields(cast(Any, kind))
    known = {entry.name: entry for entry in entries}
    needed = [each.name for each in entries if each.default is MISSING and each.default_factory is MISSING]
    unknown = sorted(set(values) - set(known))
    missing = [] if base is not None else [name for name in needed if name not in values]
    if unknown:
        raise error(f"{where}: unknown key {', '.join(unknown)}; expected {', '.join(known)}.")
    if missing:
        raise error(f"{where}: no {', '.join(missing)}; expected {', '.join(needed)}.")

    def section(name: str, part: Any, value: Any, old: Any = None) -> Any:
        if not isinstance(value, dict):
            raise error(f"{where}: expected a section [{name}], got {value!r}.")
        return made(part, value, f"{where}, [{name}]", error, old)

    own: dict[str, Any] = {}
    for name, value in values.items():
        part: Any = known[name].type
        if is_dataclass(part):
            own[name] = section(name, part, value, None if base is None else getattr(base, name))
        elif get_origin(part) is dict and isinstance(value, dict):
            own[name] = {key: section(f"{name}.{key}", get_args(part)[1], v) for key, v in value.items()}
        elif get_origin(part) is dict:
            raise error(f"{where}: expected sections [{name}.NAME], got {value!r}.")
        else:
            own[name] = _tuples(value)
    return kind(**own) if base is None else cast(T, replace(cast(Any, base), **own))


def written(machine: Any) -> str:
    """Return a machine as TOML that :func:`made` can read: plain values first, then sections."""
    plain, sections = [], []
    for entry in fields(machine):
        value = getattr(machine, entry.name)
        if is_dataclass(value):
            sections.append((entry.name, value))
        elif isinstance(value, dict):
            sections += [(f"{entry.name}.{key}", part) for key, part in value.items()]
        else:
            plain.append(_line(entry.name, value))
    for name, part in sections:
        plain += ["", f"[{name}]", *(_line(each.name, getattr(part, each.name)) for each in fields(part))]
    return "\n".join(plain) + "\n"


def _tuples(value: Any) -> Any:
    return tuple(_tuples(each) for each in value) if isinstance(value, list) else value


def _line(name: str, value: Any) -> str:
    return f"{name} = {_toml(value)}"


def _toml(value: Any) -> str:
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return repr(value)
