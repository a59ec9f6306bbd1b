"""Rows with a published figure and ours, pictures of rows, and tables of rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from onehop.errors import ArgumentError
from onehop.reproduce.intervals import Interval, Unknown
from onehop.reproduce.verdicts import DIFFERS, UNDECIDED, verdict
from onehop.tables import Column, Table

Values = tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of a paper, or one of our figures that belongs with it.

    Attributes:
        figure: The figure's name: the quantity, and its graph, model or width.
        paper: The published value; None if none is published or it could not be read.
        ours: The value here; None if it cannot be computed, and then ``note`` gives the reason.
        low: Smallest value under the assumed constants; None if nothing is assumed or known.
        high: Largest value under the assumed constants.
        unit: Unit of all four; "x" for ratios.
        note: One sentence on the difference, or on what is missing.
        headline: Whether it is one of the work's headline figures.
        fitted: Whether the published value was used to make a graph or to fit a constant of ours.
        place: Value of the last decimal that is published; None means the last decimal of ``paper`` that is
            not zero, or 1.
        unknowns: What is not published and spans the interval, with sources.
        low_by: The setting of unknowns that makes the lower end.
        high_by: The setting of unknowns that makes the upper end.
        decides: One sentence on what would decide the row, if it is undecided.

    Raises:
        ArgumentError: The note is empty, the interval does not contain the value, the ends of a published
            figure's interval are not explained, or an undecided row does not say what would decide it.
    """

    figure: str
    unit: str
    note: str
    paper: float | None = None
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    headline: bool = False
    fitted: bool = False
    place: float | None = None
    unknowns: tuple[Unknown, ...] = ()
    low_by: str = ""
    high_by: str = ""
    decides: str = ""

    def __post_init__(self) -> None:
        """Check the note, the interval, and what explains it."""
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
            if self.paper is not None and not (self.low_by and self.high_by):
                raise ArgumentError(f"row: {self.figure}: expected what makes both ends of the interval.")
        if self.verdict == UNDECIDED and not self.decides:
            raise ArgumentError(f"row: {self.figure}: expected a sentence on what would decide it.")

    @property
    def ratio(self) -> float | None:
        """Our value divided by the paper's; None if one of them is missing."""
        return self.ours / self.paper if self.ours is not None and self.paper else None

    @property
    def verdict(self) -> str | None:
        """One of :data:`onehop.reproduce.verdicts.VERDICTS`; None if nothing is published.

        Of a ratio, in "x", the claim is who wins.
        """
        return verdict(
            self.paper,
            self.ours,
            self.low,
            self.high,
            winner=self.unit == "x",
            fitted=self.fitted,
            place=self.place,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the row, ready for JSON, with null for missing values."""
        names = (
            *("figure", "paper", "ours", "ratio", "low", "high", "unit", "note", "headline", "verdict"),
            *("low_by", "high_by", "decides"),
        )
        return {
            **{name: getattr(self, name) for name in names},
            "unknowns": [each.as_dict() for each in self.unknowns],
        }


def row(
    figure: str,
    unit: str,
    note: str,
    ours: float | Sequence[float] | Interval | None = None,
    paper: float | None = None,
    *,
    headline: bool = False,
    fitted: bool = False,
    place: float | None = None,
    otherwise: str = "",
    decides: str = "",
    unknowns: Sequence[Unknown] = (),
) -> Row:
    """Return a :class:`Row` whose interval is the range of several values.

    Args:
        figure: See :class:`Row`.
        unit: See :class:`Row`.
        note: See :class:`Row`.
        ours: The value here. If there are several values: ours, followed by the values under other
            assumptions; their range is the interval. An :class:`.Interval` has what makes its ends too,
            which a published figure needs. None if it cannot be computed.
        paper: See :class:`Row`.
        headline: See :class:`Row`.
        fitted: See :class:`Row`.
        place: See :class:`Row`.
        otherwise: A sentence that says which assumption would have to be wrong for the published value to be
            right. It is added to the note if the row differs.
        decides: See :class:`Row`; dropped if the row is not undecided.
        unknowns: See :class:`Row`; dropped if there is no interval, or nothing is published.
    """
    values: dict[str, Any] = {"ours": None}
    if isinstance(ours, Interval):
        names = ("ours", "low", "high", "low_by", "high_by")
        values = {name: getattr(ours, name) for name in names}
        values["unknowns"] = () if paper is None else tuple(unknowns)
    elif isinstance(ours, float | int):
        values = {"ours": ours}
    elif ours is not None:
        values = {"ours": ours[0], "low": min(ours), "high": max(ours)}
    entry = Row(
        figure=figure,
        unit=unit,
        note=note,
        paper=paper,
        headline=headline,
        fitted=fitted,
        place=place,
        decides=decides,
        **values,
    )
    if entry.verdict == UNDECIDED:
        return entry
    differs = otherwise and entry.verdict == DIFFERS
    return replace(entry, note=f"{note} {otherwise}" if differs else note, decides="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The bars of one colour.

    Attributes:
        label: The entry in the legend.
        values: A value for each group; None means no bar.
        low: Lower ends of the intervals; empty means no intervals.
        high: Upper ends of the intervals.
    """

    label: str
    values: Values
    low: Values = ()
    high: Values = ()


def plain(values: Mapping[str, Iterable[float | None]]) -> tuple[Series, ...]:
    """Return series of values, by label."""
    return tuple(Series(label=label, values=tuple(each)) for label, each in values.items())


def spans(values: Mapping[str, Sequence[Values]]) -> tuple[Series, ...]:
    """Return series of values with the lower and upper ends of their intervals, by label."""
    series = []
    for label, bars in values.items():
        middle, low, high = zip(*bars, strict=True) if bars else ((), (), ())
        series.append(Series(label=label, values=middle, low=low, high=high))
    return tuple(series)


def published(rows: Sequence[Row], here: str = "here") -> tuple[Series, ...]:
    """Return series of published values and of ours, labelled ``here``, with intervals; one group per row."""
    paper = plain({"published": [row.paper for row in rows]})
    return paper + spans({here: [(row.ours, row.low, row.high) for row in rows]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture of grouped bars.

    Attributes:
        name: Stem of the picture's file name.
        title: Quantity, graphs, width.
        machine: Machine, simulated or real, for the second line of the title.
        unit: Label of the vertical axis.
        groups: Labels along the horizontal axis.
        series: The bars; each has a value for each group.
        logarithmic: Whether the vertical axis is logarithmic.
        absent: Text that is shown for a group without any bar.

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
        """Check the numbers of values."""
        for series in self.series:
            for values in (series.values, series.low or series.values, series.high or series.values):
                if len(values) != len(self.groups):
                    raise ArgumentError(
                        f"chart {self.name}: expected {len(self.groups)} values of {series.label!r}, one for "
                        f"each group, got {len(values)}."
                    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """All figures of one work that could be computed.

    Attributes:
        work: The work's name on the command line.
        source: Authors, title, place and year; and which part of the work could be read.
        rows: The figures.
        charts: The pictures.
    """

    work: str
    source: str
    rows: tuple[Row, ...]
    charts: tuple[Chart, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """Return the reproduction, ready for JSON."""
        return {
            "work": self.work,
            "source": self.source,
            "rows": [row.as_dict() for row in self.rows],
            "charts": [chart.name for chart in self.charts],
        }


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the rows as a table, for the terminal and as Markdown for the documentation.

    Args:
        rows: Rows in the form of :meth:`onehop.reproduce.Row.as_dict`.
    """
    return Table(_COLUMNS, rows)


def headlines(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of rows of several works with their ``work``: the published value, ours, the verdict."""
    return Table(_HEADLINE_COLUMNS, rows)


def number(value: float | None) -> str:
    """Return a value with three significant digits, integers from 1000 on; empty for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _interval(row: Mapping[str, Any]) -> str | None:
    return None if row["low"] is None else f"{number(row['low'])} to {number(row['high'])}"


def _ends(row: Mapping[str, Any]) -> str | None:
    """Return what makes the ends of the interval; None for rows without it, also of earlier versions."""
    return f"low end: {row['low_by']}. High end: {row['high_by']}." if row.get("low_by") else None


def _why(row: Mapping[str, Any]) -> str:
    """Return the note, and what would decide the row."""
    return f"{row['note']} {row.get('decides', '')}".strip()


_COLUMNS = (
    Column("figure", "figure", left=True),
    Column("paper", "paper", number),
    Column("ours", "ours", number),
    Column("ratio", "ratio", "{:.2f}"),
    Column("interval", _interval),
    Column("unit", "unit", left=True),
    Column("difference", _why, left=True),
)
_HEADLINE_COLUMNS = (
    Column("work", "work", left=True),
    *_COLUMNS[:3],
    Column("interval", _interval),
    Column("unit", "unit", left=True),
    Column("verdict", "verdict", left=True),
    Column("ends of the interval", _ends, left=True),
    Column("why", _why, left=True),
)
