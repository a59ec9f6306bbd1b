"""The rule of verdicts at its bounds, intervals that name their ends, and rows that explain themselves."""

from collections.abc import Mapping
from typing import Any

import pytest

from onehop import ArgumentError
from onehop.reproduce import Row
from onehop.reproduce.intervals import BASE, Setting, Unknown, decides, interval
from onehop.reproduce.tables import row
from onehop.reproduce.verdicts import ROUNDED, VERDICTS, WIDEST, last_place, verdict

JUST = 1e-9


@pytest.mark.parametrize(
    ("values", "options", "expected"),
    [
        # Nothing published, nothing here, and what was fitted.
        ((None, 3.0), {}, None),
        ((None, 3.0, 2.0, 4.0), {"fitted": True}, None),
        ((4.0, None), {}, "open"),
        ((4.0, None), {"fitted": True}, "open"),
        ((4.0, 4.0), {"fitted": True}, "fitted"),
        ((4.0, 4.0, 1.0, 9.0), {"fitted": True, "winner": True}, "fitted"),
        # A value without an interval: within 2 %, on both sides.
        ((100.0, 102.0), {}, "agrees"),
        ((100.0, 102.0 + JUST), {}, "differs"),
        ((100.0, 98.0), {}, "agrees"),
        ((100.0, 98.0 - JUST), {}, "differs"),
        # The width: a factor of exactly 2 is allowed.
        ((3.0, 3.0, 2.0, 4.0), {}, "agrees"),
        ((3.0, 3.0, 2.0, 4.0 + JUST), {}, "undecided"),
        ((9.0, 3.0, 2.0, 4.0 + JUST), {}, "undecided"),
        ((9.0, 3.0, 2.0, 4.0), {}, "differs"),
        ((3.0, 3.0, 0.0, 4.0), {}, "undecided"),
        ((-3.0, -3.0, -4.0, -2.0), {}, "undecided"),
        # A tie at either end, and within; without a winner there is no tie.
        ((1.4, 1.4, 1.0, 1.5), {"winner": True}, "undecided"),
        ((1.4, 1.4, 1.0 + JUST, 1.5), {"winner": True}, "agrees"),
        ((0.8, 0.8, 0.7, 1.0), {"winner": True}, "undecided"),
        ((0.8, 0.8, 0.7, 1.0 - JUST), {"winner": True}, "agrees"),
        ((4.38, 1.0, 0.9, 1.1), {"winner": True}, "undecided"),
        ((1.0, 1.0, 0.9, 1.1), {"winner": False}, "agrees"),
        # A published value may be rounded by half of its last decimal, on both sides.
        ((5.0, 3.0, 2.5, 4.5), {}, "agrees"),
        ((5.0, 3.0, 2.5, 4.5 - JUST), {}, "differs"),
        ((2.0, 3.0, 2.5, 4.5), {}, "agrees"),
        ((2.0, 3.0, 2.5 + JUST, 4.5), {}, "differs"),
        ((4.38, 4.0, 3.0, 4.3751), {}, "agrees"),
        ((4.38, 4.0, 3.0, 4.3749), {}, "differs"),
        # 4.00 is not 4.
        ((4.0, 3.0, 2.0, 3.995), {"place": 0.01}, "agrees"),
        ((4.0, 3.0, 2.0, 3.994), {"place": 0.01}, "differs"),
        ((4.0, 3.0, 2.0, 3.5), {}, "agrees"),
        # A small number is not rounded to whole numbers because Python writes it with an exponent.
        ((1e-05, 3e-05, 2e-05, 4e-05), {}, "differs"),
        ((1e-05, 1.2e-05, 1.1e-05, 2e-05), {}, "agrees"),
    ],
)
def test_the_rule_at_its_bounds(
    values: tuple[float | None, ...], options: dict[str, Any], expected: str | None
) -> None:
    assert verdict(*values, **options) == expected


def test_the_rules_numbers() -> None:
    assert (WIDEST, ROUNDED) == (2.0, 0.02)
    assert VERDICTS == ("agrees", "differs", "undecided", "open", "fitted")


@pytest.mark.parametrize(
    ("value", "place"), [(4.38, 0.01), (7.2, 0.1), (54.0, 1.0), (1e-05, 1e-05), (1.5e-07, 1e-08)]
)
def test_the_last_place_of_a_published_number(value: float, place: float) -> None:
    assert last_place(value) == pytest.approx(place)


@pytest.mark.parametrize("paper", [2.0, 2.5, 3.0, 3.99])
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_no_interval_agrees_before_and_after_a_factor_of_two(paper: float, factor: float) -> None:
    low, high = 2.01, 4.01
    ends = (low * factor, high * factor)
    before = verdict(paper, low, low, high, winner=True, place=0.01)
    after = verdict(paper, ends[0], *ends, winner=True, place=0.01)
    assert "agrees" not in {before} & {after}


CLOCK = Unknown("clock", "300 MHz", ("1,200 MHz",), "our choice", "the units' clock")
CACHE = Unknown("cache", "none", ("27.5 MiB",), "the processor's", "the host's model")
FAST, CACHED = frozenset({"1,200 MHz"}), frozenset({"27.5 MiB"})


@pytest.mark.parametrize(
    ("values", "low_by", "high_by"),
    [
        ({BASE: 3.0}, "the base", "the base"),
        ({BASE: 3.0, FAST: 4.0, CACHED: 2.0}, "27.5 MiB", "1,200 MHz"),
        # Both matter; what moves the end farther comes first.
        ({BASE: 3.0, FAST: 4.0, CACHED: 3.2, FAST | CACHED: 5.0}, "the base", "1,200 MHz; 27.5 MiB"),
        # What moves the end by less than a percent is not named.
        ({BASE: 3.0, FAST: 5.0, CACHED: 3.0, FAST | CACHED: 5.01}, "the base", "1,200 MHz"),
        # A label whose setting without it was not computed is judged alone.
        ({BASE: 3.0, CACHED: 2.9, FAST | CACHED: 5.0}, "27.5 MiB", "1,200 MHz; 27.5 MiB"),
        # Nothing matters, and the end has a name all the same.
        ({BASE: 3.0, FAST: 3.01}, "the base", "1,200 MHz"),
    ],
)
def test_an_interval_names_what_makes_its_ends(
    values: Mapping[Setting, float], low_by: str, high_by: str
) -> None:
    found = interval(values)
    assert (found.ours, found.low, found.high) == (3.0, min(values.values()), max(values.values()))
    assert (found.low_by, found.high_by) == (low_by, high_by)


def test_an_interval_needs_its_base() -> None:
    with pytest.raises(ArgumentError, match="expected a value at the base"):
        interval({FAST: 3.0})


def test_what_would_decide_a_row_is_what_settles_its_ends() -> None:
    found = interval({BASE: 3.0, FAST: 9.0, CACHED: 1.1})
    sentence = "To decide it, one needs the host's model and the units' clock."
    assert decides(found, (CLOCK, CACHE)) == sentence
    assert decides(interval({BASE: 3.0}), (CLOCK, CACHE)) == ""
    undecided = row("speed", "x", "On twins.", found, 3.0, decides=sentence, unknowns=(CLOCK, CACHE))
    assert (undecided.verdict, undecided.decides) == ("undecided", sentence)
    assert undecided.as_dict()["unknowns"][0] == {
        "name": "clock",
        "base": "300 MHz",
        "others": ["1,200 MHz"],
        "source": "our choice",
        "settled_by": "the units' clock",
    }
    narrow = interval({BASE: 3.0, FAST: 4.0})
    assert row("speed", "x", "On twins.", narrow, 3.0, decides=sentence).decides == ""


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"low": 2.0, "high": 4.0}, "what makes both ends"),
        ({"low": 2.0, "high": 4.0, "low_by": "a"}, "what makes both ends"),
        ({"low": 1.0, "high": 4.0, "low_by": "a", "high_by": "b"}, "what would decide it"),
    ],
)
def test_a_published_row_explains_itself(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Row(figure="speed", unit="x", note="On twins.", paper=3.0, ours=3.0, **fields)
    Row(figure="speed", unit="x", note="Not published.", ours=3.0, **fields)


def test_only_ratios_say_who_wins() -> None:
    ends = interval({BASE: 1.2, FAST: 0.9})
    assert row("speed", "x", "On twins.", ends, 1.2, decides="A clock.").verdict == "undecided"
    assert row("share", "%", "On twins.", ends, 1.2).verdict == "agrees"
