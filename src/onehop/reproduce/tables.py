"""The table of a reproduction: for the terminal, and as Markdown for the pages."""

from collections.abc import Mapping, Sequence
from typing import Any

from onehop.tables import Column, Table


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows as a table.

    Args:
        rows: As :meth:`onehop.reproduce.Row.as_dict` gives them.
    """
    return Table(_COLUMNS, rows)


def number(value: float | None) -> str:
    """A value with three significant digits, thousands in full; empty for None."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _interval(row: Mapping[str, Any]) -> str | None:
    return None if row["low"] is None else f"{number(row['low'])} to {number(row['high'])}"


_COLUMNS = (
    Column("figure", "figure", left=True),
    Column("paper", "paper", number),
    Column("ours", "ours", number),
    Column("ratio", "ratio", "{:.2f}"),
    Column("interval", _interval),
    Column("unit", "unit", left=True),
    Column("difference", "note", left=True),
)
