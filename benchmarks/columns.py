"""Columns of benchmarks' tables: times, ratios with their quartiles, sizes."""

from collections.abc import Callable, Mapping
from typing import Any

from onehop.sizes import mebibytes
from onehop.tables import Column

Field = str | Callable[[Any], Any]


def at(*path: Any) -> Callable[[Any], Any]:
    """Returns a field inside a row; None where the path ends early."""

    def read(row: Any) -> Any:
        for key in path:
            row = row.get(key) if isinstance(row, Mapping) else None if row is None else row[key]
        return row

    return read


def words(title: str, field: Field, style: str = "{}") -> Column:
    """A column of words."""
    return Column(title, field, style, left=True, wraps=False)


def milliseconds(seconds: float) -> str:
    """Returns milliseconds with three significant digits."""
    value = 1e3 * seconds
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def ratio(value: float) -> str:
    """Returns a ratio with two digits after the point, one from 10 on, none from 100 on."""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}x"


def ms(title: str, field: Field) -> Column:
    """A column of times; the field has seconds."""
    return Column(
        f"{title}, ms",
        field,
        lambda seconds: f"{1e3 * seconds:#.3g}" if seconds < 1 else milliseconds(seconds),
    )


def times(title: str, field: Field) -> Column:
    """A column of ratios."""
    return Column(title, field, ratio)


def gain(title: str, field: Field, quartiles: Field | None = None) -> Column:
    """A column of ratios with their quartiles.

    Args:
        title: Its heading.
        field: The median; or, without ``quartiles``, what has ``median``, ``lower_quartile`` and so on.
        quartiles: The pair of quartiles.
    """

    def read(row: Any) -> Any:
        value = field(row) if callable(field) else row.get(field)
        if value is None:
            return None
        if quartiles is None:
            return value["median"], value["lower_quartile"], value["upper_quartile"]
        return value, *(quartiles(row) if callable(quartiles) else row[quartiles])

    return Column(title, read, lambda three: "{} ({} to {})".format(*map(ratio, three)))


def mib(title: str, field: Field) -> Column:
    """A column of sizes; the field has bytes."""
    return Column(f"{title}, MiB", field, mebibytes)


WRONG = Column("", at("wrong"), lambda is_wrong: "WRONG" if is_wrong else "")
"""A column that says where results differ by more than they may."""
