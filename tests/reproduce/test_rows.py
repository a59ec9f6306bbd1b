"""Rows and charts: what they must have, and how they look as text."""

from typing import Any

import pytest

from onehop import ArgumentError
from onehop.reproduce import WORKS, Chart, Row, Series, reproduce, tables
from onehop.reproduce.intervals import Interval
from onehop.reproduce.tables import number, table

KEYS = [
    *("figure", "paper", "ours", "ratio", "low", "high", "unit", "note", "headline", "verdict"),
    *("low_by", "high_by", "decides", "unknowns"),
]
ENDS = {"low_by": "a slow clock", "high_by": "a fast clock"}


def row(**fields: Any) -> Row:
    return Row(**{"figure": "speed", "unit": "x", "note": "On twins.", **fields})


def test_a_row_has_its_keys_and_null_where_there_is_none() -> None:
    found = row(paper=4.0, ours=3.0, low=2.0, high=4.0, **ENDS).as_dict()
    assert list(found) == KEYS
    assert found["ratio"] == 0.75
    empty = tables.row("speed", "x", "Needs a GPU.").as_dict()
    assert {name for name, value in empty.items() if value is None} == {
        "paper",
        "ours",
        "ratio",
        "low",
        "high",
        "verdict",
    }
    assert row(ours=3.0).ratio is None
    assert row(paper=3.0).ratio is None
    assert row(paper=0.0, ours=1.0).ratio is None


def test_several_values_are_ours_and_an_interval() -> None:
    found = tables.row("speed", "x", "On twins.", [3.0, 5.0, 2.0])
    assert (found.ours, found.low, found.high, found.paper) == (3.0, 2.0, 5.0, None)
    one = tables.row("speed", "x", "On twins.", 3.0)
    assert (one.ours, one.low, one.high, one.paper) == (3.0, None, None, None)


def test_a_row_that_differs_says_what_would_have_to_be_otherwise() -> None:
    told = {"otherwise": "The clock would have to be another.", "paper": 5.0}
    narrow, wide = (Interval(3.0, 3.0, high, "a slow clock", "a fast clock") for high in (4.0, 6.0))
    assert tables.row("speed", "x", "On twins.", narrow, **told).note == f"On twins. {told['otherwise']}"
    assert tables.row("speed", "x", "On twins.", wide, **told).note == "On twins."
    assert tables.row("speed", "x", "Needs a GPU.", **told).note == "Needs a GPU."


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"note": ""}, "expected a figure and a note"),
        ({"figure": ""}, "expected a figure and a note"),
        ({"low": 1.0}, "both ends"),
        ({"low": 2.0, "high": 1.0}, "2.0 to 1.0 is empty"),
        ({"ours": 3.0, "low": 1.0, "high": 2.0}, "3.0 is outside the interval"),
        ({"ours": float("nan"), "low": 1.0, "high": 2.0}, "outside the interval"),
    ],
)
def test_bad_rows(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        row(**fields)


def test_a_series_has_a_value_for_each_group() -> None:
    chart = {"name": "c", "title": "t", "machine": "m", "unit": "ms", "groups": ("a", "b")}
    Chart(**chart, series=(Series(label="s", values=(1.0, None)),))
    for series in (
        Series(label="s", values=(1.0,)),
        Series(label="s", values=(1.0, 2.0), low=(1.0,), high=(2.0, 2.0)),
    ):
        with pytest.raises(ArgumentError, match="expected 2 values of 's'"):
            Chart(**chart, series=(series,))


def test_tables() -> None:
    line = row(paper=27.0, ours=1234.5, low=0.98765, high=2000.0, decides="A clock would.", **ENDS).as_dict()
    shown = table([line, row().as_dict()])
    assert shown.cells()[0] == [
        "speed",
        "27",
        "1,234",
        "45.72",
        "0.988 to 2,000",
        "x",
        "On twins. A clock would.",
    ]
    text = shown.markdown().splitlines()
    assert text[0] == "| figure | paper | ours | ratio | interval | unit | difference |"
    assert len({each.count("|") for each in text}) == 1
    assert text[3] == "| speed |  |  |  |  | x | On twins. |"
    assert number(0.0001234) == "0.000123"


def test_unknown_works_are_named() -> None:
    with pytest.raises(ArgumentError, match=f"work: expected one of {', '.join(WORKS)}, got 'pigym'"):
        reproduce("pigym")


def test_headlines_name_what_makes_the_ends() -> None:
    line = row(paper=3.0, ours=2.5, low=2.0, high=4.0, **ENDS).as_dict()
    shown = tables.headlines([{"work": "w", **line}, {"work": "w", **row(paper=3.0).as_dict()}])
    ends = "low end: a slow clock. High end: a fast clock."
    assert shown.cells()[0] == ["w", "speed", "3", "2.5", "2 to 4", "x", "agrees", ends, "On twins."]
    assert shown.cells()[1][7] == ""
    # Files of earlier versions do not say it.
    earlier = {key: value for key, value in line.items() if key not in ("low_by", "high_by", "decides")}
    assert tables.headlines([{"work": "w", **earlier}]).cells()[0][7:] == ["", "On twins."]
