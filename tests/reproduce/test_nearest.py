"""The nearest configuration: its search, errors, tornado, tables and picture."""

from pathlib import Path

import pytest

from onehop import ArgumentError
from onehop.reproduce import FITTED, WORKS, fit
from onehop.reproduce.intervals import BASE, Setting, Unknown
from onehop.reproduce.nearest import Target, nearest
from onehop.reproduce.pictures import draw_fit

CLOCK = Unknown("clock", "300 MHz", ("600 MHz", "1,200 MHz"), "our choice", "the clock")
CACHE = Unknown("cache", "none", ("27.5 MiB",), "the processor's", "the host's model")
TARGETS = (Target("speed", 4.0, "speeds"), Target("share", 50.0, "shares"))
FACTORS = {"600 MHz": (1.5, 1.0), "1,200 MHz": (2.0, 1.1), "27.5 MiB": (0.8, 0.5)}


def values(setting: Setting) -> tuple[float, ...]:
    speed, share = 2.2, 100.0
    for label in setting:
        speed, share = speed * FACTORS[label][0], share * FACTORS[label][1]
    return speed, share


def test_the_nearest_is_found_and_each_unknown_moved_from_it() -> None:
    asked: list[Setting] = []

    def counting(setting: Setting) -> tuple[float, ...]:
        asked.append(setting)
        return values(setting)

    found = nearest("work", "a machine", TARGETS, (CLOCK, CACHE), counting, [BASE], "A remark.")
    assert found.setting == {"1,200 MHz", "27.5 MiB"}
    assert found.values == pytest.approx((3.52, 55.0))
    assert found.errors == pytest.approx((0.12, 0.1))
    assert found.largest_error == pytest.approx(0.12)
    assert len(asked) == len(set(asked)) == found.tried
    # The unknown that moves a figure most is first; a move keeps all other unknowns.
    assert [(move.unknown.name, move.label) for move in found.moves] == [
        ("cache", "none"),
        ("clock", "300 MHz"),
        ("clock", "600 MHz"),
    ]
    assert found.changes(found.moves[0]) == pytest.approx((0.25, 1.0))
    assert found.moves[2].values == pytest.approx(values(frozenset({"600 MHz", "27.5 MiB"})))
    assert found.alone["speeds"][1] == pytest.approx(0.1)
    assert found.alone["shares"] == (frozenset({"27.5 MiB"}), 0.0)
    for text in (
        "meets 2 published figures within 12 %",
        "shares within 0 % (27.5 MiB)",
        "The largest unknown is cache: moved alone from 27.5 MiB to none, it changes share by +100 %",
        "settled by the host's model. A remark.",
    ):
        assert text in found.summary


def test_more_searches_leave_a_local_minimum() -> None:
    # From the base every single move is worse; only both together are right.
    def trapped(setting: Setting) -> tuple[float, ...]:
        return ({0: 3.0, 1: 9.0, 2: 4.0}[len(setting)],)

    target, unknowns = [Target("speed", 4.0, "speeds")], (CACHE, Unknown("x", "0", ("1",), "s", "t"))
    starts = [BASE, frozenset({"1"})]
    assert nearest("work", "m", target, unknowns, trapped, starts).largest_error == 0.25
    assert nearest("work", "m", target, unknowns, trapped, starts, searches=2).largest_error == 0.0


def test_tables_json_and_picture(tmp_path: Path) -> None:
    found = nearest("work", "a machine", TARGETS, (CLOCK, CACHE), values, [BASE])
    constants, figures, tornado = found.tables()
    assert constants.cells() == [
        ["clock", "1,200 MHz", "our choice"],
        ["cache", "27.5 MiB", "the processor's"],
    ]
    assert figures.cells() == [["1", "speed", "4", "3.52", "12%"], ["2", "share", "50", "55", "10%"]]
    assert tornado.cells()[0] == ["cache", "27.5 MiB", "none", "+25", "+100", "120%"]
    content = found.as_dict()
    assert content["largest_error"] == pytest.approx(0.12)
    assert content["tornado"][0]["changes"] == pytest.approx([0.25, 1.0])
    assert content["tornado"][0]["largest_error"] == pytest.approx(1.2)
    assert content["constants"][1]["value"] == "27.5 MiB"
    assert content["alone"]["shares"] == {"largest_error": 0.0, "setting": ["27.5 MiB"]}
    draw_fit(found, tmp_path / "fit.png")
    assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")


def test_a_fit_needs_targets_and_starts() -> None:
    for targets, starts in (((), [BASE]), (TARGETS, [])):
        with pytest.raises(ArgumentError, match="expected targets and starts"):
            nearest("work", "m", targets, (CLOCK,), values, starts)


@pytest.mark.parametrize("work", sorted(set(WORKS) - set(FITTED)))
def test_works_without_a_simulator_are_refused(work: str) -> None:
    with pytest.raises(ArgumentError, match=f"work: {work} has no simulator"):
        fit(work)
