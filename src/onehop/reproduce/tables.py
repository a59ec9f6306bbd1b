"""Rows as text: for the terminal, and as Markdown for the pages."""

from collections.abc import Iterable, Mapping
from typing import Any

_HEADINGS = ("figure", "paper", "ours", "ratio", "interval", "unit", "difference")


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of a row's line.

    Args:
        row: As :meth:`onehop.reproduce.Row.as_dict` gives it.
    """
    interval = "" if row["low"] is None else f"{number(row['low'])} to {number(row['high'])}"
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    return (
        row["figure"],
        number(row["paper"]),
        number(row["ours"]),
        ratio,
        interval,
        row["unit"],
        row["note"],
    )


def markdown(rows: Iterable[Mapping[str, Any]]) -> str:
    """A Markdown table of rows."""
    rule = ("---", *["---:"] * 4, "---", "---")
    lines = [_HEADINGS, rule, *(cells(row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def headings() -> tuple[str, ...]:
    """The columns' names."""
    return _HEADINGS


def number(value: float | None) -> str:
    """A value with three significant digits, thousands in full; empty for None."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
