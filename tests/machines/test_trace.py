"""The Chrome-trace writer."""

import json
from pathlib import Path

import pytest

from onehop.errors import ArgumentError
from onehop.machines import Trace


def test_spans_become_complete_events_in_microseconds() -> None:
    trace = Trace()
    trace.add("host/link", "send", 1000.0, 2500.0, bytes=7)
    event = trace.as_dict()["traceEvents"][-1]
    assert (event["ph"], event["ts"], event["dur"], event["args"]) == ("X", 1.0, 2.5, {"bytes": 7})


def test_lanes_of_a_group_share_a_process() -> None:
    trace = Trace()
    for lane in ("ranks/0", "ranks/1", "host"):
        trace.add(lane, "work", 0, 1)
    spans = [event for event in trace.as_dict()["traceEvents"] if event["ph"] == "X"]
    assert [event["pid"] for event in spans] == [1, 1, 2]
    assert len({event["tid"] for event in spans}) == 3


def test_groups_and_lines_are_named_once() -> None:
    trace = Trace()
    for lane in ("ranks/0", "ranks/1", "host", "ranks/0"):
        trace.add(lane, "work", 0, 1)
    named = [event for event in trace.as_dict()["traceEvents"] if event["ph"] == "M"]
    assert [(event["name"], event["args"]["name"], event["pid"]) for event in named] == [
        ("process_name", "ranks", 1),
        ("thread_name", "0", 1),
        ("thread_name", "1", 1),
        ("process_name", "host", 2),
        ("thread_name", "host", 2),
    ]


def test_shift_moves_every_span_and_leaves_the_original() -> None:
    trace = Trace()
    trace.add("a", "x", 5, 5)
    assert (trace.shift(100).end_ns, trace.end_ns) == (110, 10)


def test_written_file_is_json(tmp_path: Path) -> None:
    trace = Trace()
    trace.add("a", "x", 0, 1)
    trace.write(tmp_path / "deep" / "trace.json")
    assert json.loads((tmp_path / "deep" / "trace.json").read_text()) == trace.as_dict()


@pytest.mark.parametrize(("start", "duration"), [(-1.0, 1.0), (0.0, -1.0), (float("nan"), 1.0)])
def test_negative_times_are_refused(start: float, duration: float) -> None:
    with pytest.raises(ArgumentError, match="negative"):
        Trace().add("a", "x", start, duration)
