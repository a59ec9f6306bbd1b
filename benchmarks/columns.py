"""Columns of benchmarks' tables, declared as text: times, ratios with their quartiles, sizes."""

from collections.abc import Callable, Mapping
from typing import Any

from onehop.bench.timing import LEAST_FOR_QUARTILES
from onehop.sizes import mebibytes
from onehop.tables import Column


def of(text: str, *more: Column) -> list[Column]:
    """Returns the columns that a text declares, followed by ``more``.

    Args:
        text: Columns with semicolons between them, each as ``title | field | form``. The field is a path of
            keys with slashes between them; without one, the title is the field. The form is a key of
            :data:`FORMS`, ``gain KEY`` with the key of the quartiles, or a format such as ``{:.2f}``; without
            one, the column has words.
        *more: Columns whose fields are functions of the row.
    """
    return [
        *(_column(*map(str.strip, entry.split("|"))) for entry in text.split(";") if entry.strip()),
        *more,
    ]


def _column(title: str, field: str = "", form: str = "") -> Column:
    path = tuple(int(key) if key.isdecimal() else key for key in (field or title).split("/"))
    if form.startswith("gain "):
        return Column(title, _with_quartiles(path, form.split()[1]), FORMS["gain"])
    if not form:
        return Column(title, at(*path), left=True, wraps=False)
    return Column(title, at(*path), FORMS.get(form, form))


def at(*path: Any) -> Callable[[Any], Any]:
    """Returns a field inside a row; None where the path ends early."""

    def read(row: Any) -> Any:
        for key in path:
            row = row.get(key) if isinstance(row, Mapping) else None if row is None else row[key]
        return row

    return read


def _with_quartiles(path: tuple[Any, ...], quartiles: str) -> Callable[[Any], Any]:
    def read(row: Any) -> Any:
        median = at(*path)(row)
        low_high = at(*path[:-1], quartiles)(row)
        return None if median is None else (median, *(low_high or ()))

    return read


def milliseconds(seconds: float) -> str:
    """Returns milliseconds with three significant digits."""
    value = 1e3 * seconds
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def ratio(value: float) -> str:
    """Returns a ratio with two digits after the point, one from 10 on, none from 100 on."""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}x"


def _gain(value: Any) -> str:
    """Returns a ratio, with its quartiles where there are enough rounds, from numbers or a mapping."""
    if isinstance(value, Mapping):
        quartiles = value["lower_quartile"], value["upper_quartile"]
        value = value["median"], *(quartiles if value.get("rounds", 0) >= LEAST_FOR_QUARTILES else ())
    median, *quartiles = map(ratio, value)
    return f"{median} ({' to '.join(quartiles)})" if quartiles else median


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:#.3g}" if seconds < 1 else milliseconds(seconds)


FORMS: Mapping[str, Callable[[Any], str]] = {
    "ms": _ms,
    "x": ratio,
    "gain": _gain,
    "three": milliseconds,
    "MiB": mebibytes,
    "list": lambda entries: ", ".join(map(str, entries)),
    "wrong": lambda is_wrong: "WRONG" if is_wrong else "",
    "yes or no": lambda value: "yes" if value else "no",
}
"""Forms of values: seconds as milliseconds, a ratio, a ratio with its quartiles, bytes, a list, a verdict."""
