"""Rows with a published figure and ours, pictures of them, and the table of rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from onehop.errors import ArgumentError
from onehop.tables import Column, Table

Values = tuple[float | None, ...]
# How far a published figure may be from one value that it was rounded from.
_ROUNDED = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of a paper, or one of ours that belongs beside it.

    Attributes:
        figure: Name: the quantity, and the graph, model or width it is of.
        paper: The published value; None where none is published or could be read.
        ours: The value here; None where it cannot be had, for which ``note`` gives the reason.
        low: Least value under the assumed constants; None where nothing is assumed, or nothing is known.
        high: Largest value under the assumed constants.
        unit: Unit of all four; "x" for ratios.
        note: One sentence on the difference, or on what is missing.
        headline: Whether it is one of the few figures that the work is known for.

    Raises:
        ArgumentError: The note is empty, or the interval does not hold the value.
    """

    figure: str
    unit: str
    note: str
    paper: float | None = None
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    headline: bool = False

    def __post_init__(self) -> None:
        """Checks the note and the interval."""
        if not self.figure or not self.note:
            raise ArgumentError(f"row: expected a figure and a note, got {self.figure!r} and {self.note!r}.")
        if (self.low is None) != (self.high is None):
            raise ArgumentError(f"row: {self.figure}: expected both ends of the interval, or none.")
        if self.low is not None and self.high is not None:
            if self.low > self.high:
                raise ArgumentError(f"row: {self.figure}: the interval {self.low} to {self.high} is empty.")
            if self.ours is not None and not self.low <= self.ours <= self.high:
                raise ArgumentError(
                    f"row: {self.figure}: {self.ours} is outside the interval {self.low} to {self.high}."
                )

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's; None where one of them is missing."""
        return self.ours / self.paper if self.ours is not None and self.paper else None

    @property
    def verdict(self) -> str | None:
        """Return "agrees", "differs" or, without a value here, "open"; None where nothing is published.

        A value agrees whose interval holds one that rounds to the published value or, without an interval,
        which is within :data:`_ROUNDED` of it: papers state two or three digits.
        """
        if self.paper is None:
            return None
        if self.ours is None:
            return "open"
        if self.low is None or self.high is None:
            agrees = abs(self.ours - self.paper) <= _ROUNDED * abs(self.paper)
        else:
            unit = 1.0 if self.paper == int(self.paper) else 10.0 ** -len(repr(self.paper).partition(".")[2])
            agrees = self.low - unit / 2 <= self.paper <= self.high + unit / 2
        return "agrees" if agrees else "differs"

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null where there is no value."""
        names = ("figure", "paper", "ours", "ratio", "low", "high", "unit", "note", "headline", "verdict")
        return {name: getattr(self, name) for name in names}


def row(
    figure: str,
    unit: str,
    note: str,
    ours: float | Sequence[float] | None = None,
    paper: float | None = None,
    *,
    headline: bool = False,
    otherwise: str = "",
) -> Row:
    """A :class:`Row`, whose interval is the range of several values.

    Args:
        figure: As of a row.
        unit: As of a row.
        note: As of a row.
        ours: The value here. Several values: ours, then those under other assumptions, whose range is the
            interval. None where it cannot be had.
        paper: As of a row.
        headline: As of a row.
        otherwise: A sentence that says which assumption would have to be false for the published value. The
            note of a row that differs ends with it.
    """
    values: dict[str, float | None] = {"ours": None}
    if isinstance(ours, float | int):
        values = {"ours": ours}
    elif ours is not None:
        values = {"ours": ours[0], "low": min(ours), "high": max(ours)}
    entry = Row(figure=figure, unit=unit, note=note, paper=paper, headline=headline, **values)
    return replace(entry, note=f"{note} {otherwise}") if otherwise and entry.verdict == "differs" else entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The bars of one colour.

    Attributes:
        label: Entry of the legend.
        values: A value for each group; None means no bar.
        low: Lower ends of the intervals; empty for none.
        high: Upper ends.
    """

    label: str
    values: Values
    low: Values = ()
    high: Values = ()


def plain(values: Mapping[str, Iterable[float | None]]) -> tuple[Series, ...]:
    """Series of values, by label."""
    return tuple(Series(label=label, values=tuple(each)) for label, each in values.items())


def spans(values: Mapping[str, Sequence[Values]]) -> tuple[Series, ...]:
    """Series of values with the lower and the upper ends of their intervals, by label."""
    series = []
    for label, bars in values.items():
        middle, low, high = zip(*bars, strict=True) if bars else ((), (), ())
        series.append(Series(label=label, values=middle, low=low, high=high))
    return tuple(series)


def published(rows: Sequence[Row], here: str = "here") -> tuple[Series, ...]:
    """Published values beside ours, which are called ``here``, with their intervals; a group a row."""
    paper = plain({"published": [row.paper for row in rows]})
    return paper + spans({here: [(row.ours, row.low, row.high) for row in rows]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture of grouped bars.

    Attributes:
        name: Stem of the file's name.
        title: Quantity, graphs, width.
        machine: Machine, simulated or real, for the second line of the title.
        unit: Label of the vertical axis.
        groups: Labels along the horizontal axis.
        series: The bars; each has a value for each group.
        logarithmic: Whether the vertical axis is.
        absent: What a group without any bar says in their place.

    Raises:
        ArgumentError: A series has more or fewer values than there are groups.
    """

    name: str
    title: str
    machine: str
    unit: str
    groups: tuple[str, ...]
    series: tuple[Series, ...]
    logarithmic: bool = False
    absent: str = "none"

    def __post_init__(self) -> None:
        """Checks the numbers of values."""
        for series in self.series:
            for values in (series.values, series.low or series.values, series.high or series.values):
                if len(values) != len(self.groups):
                    raise ArgumentError(
                        f"chart {self.name}: expected {len(self.groups)} values of {series.label!r}, one for "
                        f"each group, got {len(values)}."
                    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """Everything that could be had of one work.

    Attributes:
        work: Its name on the command line.
        source: Authors, title, place, year; and which part of it could be read.
        rows: The figures.
        charts: The pictures.
    """

    work: str
    source: str
    rows: tuple[Row, ...]
    charts: tuple[Chart, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "work": self.work,
            "source": self.source,
            "rows": [row.as_dict() for row in self.rows],
            "charts": [chart.name for chart in self.charts],
        }


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows as a table, for the terminal and as Markdown for the pages.

    Args:
        rows: As :meth:`onehop.reproduce.Row.as_dict` gives them.
    """
    return Table(_COLUMNS, rows)


def headlines(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows of several works, each with its ``work``: the published value, ours, and the verdict."""
    return Table(_HEADLINE_COLUMNS, rows)


def number(value: float | None) -> str:
    """A value with three significant digits, thousands in full; empty for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


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
_HEADLINE_COLUMNS = (
    Column("work", "work", left=True),
    *_COLUMNS[:3],
    Column("interval", _interval),
    Column("unit", "unit", left=True),
    Column("verdict", "verdict", left=True),
    Column("why", "note", left=True),
)
