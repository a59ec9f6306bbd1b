"""Values of plans and machines by name, for ``--set`` and ``--sweep``: the fields of nested dataclasses."""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from types import GenericAlias, NoneType, UnionType
from typing import Any, TypeVar, get_args

from onehop.errors import ArgumentError

# Values by name, and types by name.
Values = dict[str, Any]
Kinds = dict[str, Any]
T = TypeVar("T")

# Maximum number of values in a range that has a number of steps.
_MOST_STEPS = 10_000


def kinds_of(owner: Any) -> Kinds:
    """Return the name and type of every value of a dataclass, and of the dataclasses within it.

    Values in a dictionary are named as in a machine's file, for example ``arithmetic.int32.accumulate``. A
    field ``name`` is not a value, because it names the machine.
    """
    found: Kinds = {}
    for entry in fields(owner):
        value = getattr(owner, entry.name)
        if isinstance(value, dict):
            for key, part in value.items():
                found |= {f"{entry.name}.{key}.{name}": kind for name, kind in kinds_of(part).items()}
        elif is_dataclass(value):
            found |= kinds_of(value)
        elif entry.name != "name":
            found[entry.name] = entry.type
    return found


def changed(owner: T, values: Values, prefix: str = "") -> T:
    """Return a copy with the given values replaced, or the object itself if no name is one of its fields.

    All values change at once. Names are as in :func:`kinds_of`, after the prefix; other names are ignored.

    Raises:
        ArgumentError: A value is out of range.
        ConfigurationError: A value of a machine is out of range.
    """
    own: Values = {}
    for entry in fields(owner):  # type: ignore[arg-type]
        value, name = getattr(owner, entry.name), prefix + entry.name
        if isinstance(value, dict):
            parts = {key: changed(part, values, f"{name}.{key}.") for key, part in value.items()}
            if any(parts[key] is not part for key, part in value.items()):
                own[entry.name] = parts
        elif is_dataclass(value):
            part = changed(value, values, prefix)
            if part is not value:
                own[entry.name] = part
        elif name in values:
            own[entry.name] = values[name]
    return replace(owner, **own) if own else owner  # type: ignore[type-var]


def assignment(text: str, kinds: Kinds) -> tuple[str, Any]:
    """Return the name and the value of ``--set NAME=VALUE``; a curve is written as ``[[1, 16.9]]``.

    Raises:
        ArgumentError: The text is not of this form, the name is unknown, or the value has another type.
    """
    name, equals, value = text.partition("=")
    if not equals or name not in kinds:
        raise ArgumentError(f"set: expected NAME=VALUE with a NAME of {', '.join(kinds)}; got {text!r}.")
    return name, _read("set", name, kinds[name], value)


def variation(text: str, kinds: Kinds) -> tuple[str, list[Any]]:
    """Return the name and the values of a ``--sweep``; curves cannot be varied.

    ``NAME=A:B`` means A, 2A, 4A, ... and B; ``NAME=A:B:N`` means N equally spaced values from A to B.

    Raises:
        ArgumentError: The text is not of this form, the name is unknown, or a value has another type.
    """
    known = {name: kind for name, kind in kinds.items() if not isinstance(kind, GenericAlias)}
    name, equals, values = text.partition("=")
    if not equals or name not in known:
        raise ArgumentError(
            "sweep: expected NAME=A:B, NAME=A:B:N or NAME=A,B,... with a NAME of "
            f"{', '.join(known)}; got {text!r}."
        )
    is_number = not {int, float}.isdisjoint(_alternatives(known[name]))
    parts = _range(values) if is_number and ":" in values else values.split(",")
    return name, [_read("sweep", name, known[name], part) for part in parts]


def told(value: Any) -> str:
    """Return a value as text for tables and pictures."""
    if isinstance(value, str):
        return value
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _range(text: str) -> list[str]:
    with suppress(ValueError):
        match [float(each) for each in text.split(":")]:
            case [low, high] if 0 < low <= high < math.inf:
                doublings = math.ceil(math.log2(high / low) - 1e-9)
                return [*(str(low * 2**i) for i in range(doublings)), str(high)]
            case [low, high, steps] if -math.inf < low < high < math.inf and 2 <= steps <= _MOST_STEPS:
                between = int(steps) - 1
                if between == steps - 1:
                    return [*(str(low + (high - low) * i / between) for i in range(between)), str(high)]
    raise ArgumentError(
        "sweep: expected numbers A:B with 0 < A <= B, A:B:N with A < B and an integer N of 2 to "
        f"{_MOST_STEPS}, or A,B,..., got {text!r}."
    )


def _integer(text: str) -> int:
    with suppress(ValueError):
        return int(text)
    number = float(text)
    if not number.is_integer():
        raise ValueError(text)
    return int(number)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _curve(text: str) -> tuple[tuple[Any, ...], ...]:
    try:
        return tuple(tuple(point) for point in json.loads(text))
    except TypeError as error:
        raise ValueError(text) from error


# The name of each type and its reader; the first of a value's types whose reader succeeds is taken.
_READERS: dict[type, tuple[str, Callable[[str], Any]]] = {
    NoneType: ("none", {"none": None}.__getitem__),
    bool: ("true or false", {"true": True, "false": False}.__getitem__),
    int: ("integers", _integer),
    float: ("numbers", _number),
    str: ("words", str),
    tuple: ("pairs such as [[1, 16.9], [32, 43.7]]", _curve),
}


def _read(option: str, name: str, kind: Any, text: str) -> Any:
    types = [tuple if isinstance(each, GenericAlias) else each for each in _alternatives(kind)]
    readers = [reader for each, reader in _READERS.items() if each in types]
    for _, read in readers:
        with suppress(ValueError, KeyError):
            return read(text.strip())
    expected = " or ".join(what for what, _ in reversed(readers))
    raise ArgumentError(f"{option}: expected {expected} for {name}, got {text!r}.")
