"""The base class of all plans: frozen dataclasses that check their fields, with JSON input and output."""

import json
import re
from collections.abc import Collection
from dataclasses import asdict, fields
from typing import Any, Self

from onehop.errors import ArgumentError

# Larger numbers of edges, columns or sources are meaningless, and sums with them would overflow 64 bits.
MOST_COUNT = 1 << 48

_OWN_CLASS = re.compile(r".+\.py:\w+")


def check_named(name: str, value: object, names: Collection[str], own: bool = False) -> None:
    """Refuse a field's value that is not one of the given names.

    Args:
        name: The field's name.
        value: The field's value.
        names: The allowed names.
        own: Whether the value may also be a class in a user's file, as ``FILE.py:CLASS``.

    Raises:
        ArgumentError: The value is not allowed.
    """
    if value in names or (own and isinstance(value, str) and _OWN_CLASS.fullmatch(value)):
        return
    also = ", or FILE.py:CLASS" if own else ""
    raise ArgumentError(f"plan: {name} must be one of {', '.join(names)}{also}, not {value!r}.")


def check_least(name: str, value: object, least: int) -> None:
    """Refuse a field's value that is not an integer of at least ``least``."""
    if type(value) is not int or value < least:
        raise ArgumentError(f"plan: {name} must be an integer of at least {least}, not {value!r}.")


def check_flag(name: str, value: object) -> None:
    """Refuse a field's value that is neither true nor false."""
    if not isinstance(value, bool):
        raise ArgumentError(f"plan: {name} must be true or false, not {value!r}.")


class Plan:
    """Every choice made before a run, as data; subclasses are frozen dataclasses."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, ready for JSON."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    def to_json(self) -> str:
        """Return the plan as a JSON object."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the plan that :meth:`to_json` wrote.

        Raises:
            ArgumentError: The text is not a JSON object, has an unknown field, or an invalid value.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"plan: not JSON ({error}).") from error
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Return the plan with these fields; omitted fields have their defaults.

        Raises:
            ArgumentError: ``values`` is not a dictionary, has an unknown field, or an invalid value.
        """
        if not isinstance(values, dict):
            raise ArgumentError(f"plan: expected a JSON object, got {type(values).__name__}.")
        known = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ArgumentError(
                f"plan: unknown field {', '.join(unknown)}; a {cls.__name__} has {', '.join(known)}."
            )
        return cls(**values)
