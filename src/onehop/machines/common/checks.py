"""Type and range checks for the fields of a dataclass and for single integers."""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_origin

from onehop.errors import ArgumentError, ConfigurationError, OnehopError


def check_integer(name: str, value: object, least: int = 1) -> None:
    """Refuse a value that is not an integer of at least ``least``.

    Raises:
        ArgumentError: The value is not such an integer.
    """
    expected = _wrong_integer(value, least, None)
    if expected:
        raise ArgumentError(f"{name}: expected {expected}, got {value!r}.")


def check(
    owner: Any,
    where: str = "",
    error: type[OnehopError] = ConfigurationError,
    *,
    least: Mapping[str, float] | None = None,
    most: Mapping[str, int] | None = None,
    endless: bool = False,
) -> None:
    """Checks the type and range of every plain field of a dataclass.

    Args:
        owner: The dataclass.
        where: The section that error messages name; empty means none.
        error: The class of the errors that are raised.
        least: Least values by field; integers otherwise begin at 1, and other numbers are positive.
        most: Largest values of integers by field.
        endless: Whether numbers may be infinite.

    Raises:
        OnehopError: A value has another type or is out of range; the class is ``error``.
    """
    least, most = least or {}, most or {}
    for entry in fields(owner):
        value, expected = getattr(owner, entry.name), ""
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
        if entry.type is bool:
            expected = "" if isinstance(value, bool) else "true or false"
        elif entry.type is str:
            expected = "" if isinstance(value, str) and value.strip() else "a text"
        elif entry.type is int:
            expected = _wrong_integer(value, least.get(entry.name, 1), most.get(entry.name))
        elif entry.type is float and (not is_number or (math.isinf(value) and not endless)):
            expected = "a number"
        elif entry.type is float and entry.name in least:
            low = least[entry.name]
            expected = "" if value >= low else f"a number of at least {low}"
        elif entry.type is float:
            expected = "" if value > 0 else "a positive number"
        elif get_origin(entry.type) is tuple:
            expected = _wrong_points(value)
        if expected:
            name = f"{where}.{entry.name}" if where else entry.name
            raise error(f"{name}: expected {expected}, got {value!r}.")


def _wrong_points(points: Any) -> str:
    """Return what a curve should have been, or an empty text if it is pairs of ascending numbers above 0."""
    if not isinstance(points, tuple) or len(points) < 2:
        return "at least two entries"
    if any(not isinstance(point, tuple) or len(point) != 2 for point in points):
        return "pairs of numbers"
    numbers = [number for point in points for number in point]
    if any(isinstance(n, bool) or not isinstance(n, int | float) or not n > 0 for n in numbers):
        return "numbers above 0"
    places = [point[0] for point in points]
    return "" if sorted(set(places)) == places else "pairs in ascending order"


def _wrong_integer(value: object, least: float, most: int | None) -> str:
    """Return what a value should have been, or an empty text if it is an integer in the range."""
    if type(value) is int and least <= value and (most is None or value <= most):
        return ""
    return f"an integer of at least {least}" if most is None else f"an integer from {least} to {most}"
