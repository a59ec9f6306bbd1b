"""Spans and rows of text of a few events, by hand."""

from onehop.machines.ndp.timeline import rows, trace
from onehop.machines.ndp.windows import EVENTS, Event

FEW = [
    Event("A", 0, 0, 0.0, 2.0),
    Event("X", 0, 0, 2.0, 7.0),
    Event("Q", 1, 0, 4.0, 8.0),
    Event("W", 1, 3, 7.0, 8.0),
]


def test_spans_follow_what_comes_before_the_windows():
    found = [(span.lane, span.name, span.start_ns, span.duration_ns) for span in trace(FEW, 10.0).spans]
    assert found == [
        ("before windows", "control", 0.0, 10.0),
        ("DRAM-path/rank 0", "adjacency", 10.0, 2.0),
        ("DRAM-path/rank 0", "features", 12.0, 5.0),
        ("Host-path/channel 0", "outputs", 14.0, 4.0),
        ("DRAM-path/rank 3", "write-back", 17.0, 1.0),
    ]
    assert [span.name for span in trace(FEW).spans] == ["adjacency", "features", "outputs", "write-back"]
    assert trace(FEW).spans[0].start_ns == 0.0


def test_every_kind_of_event_has_its_path_and_letter():
    for what, letter, on_channel in zip(EVENTS, "AXWLrbQZlti", [False] * 4 + [True] * 7, strict=True):
        event = Event(what, 0, 2, 0.0, 1.0)
        assert event.on_channel == on_channel
        assert rows([event], 3, 1.0) == [("channel 2" if on_channel else "rank 2").ljust(11) + 3 * letter]
        lane = trace([event]).spans[0].lane
        assert lane == ("Host-path/channel 2" if on_channel else "DRAM-path/rank 2")


def test_a_step_shows_what_fills_most_of_it():
    # Ranks first; a step is 2 ns.
    assert rows(FEW, 4, 8.0) == [
        "rank 0     AXXX",
        "rank 3     ...W",
        "channel 0  ..QQ",
    ]
    # Steps of 4 ns: half A and half X, which A begins; three of four ns X; one of four is too little.
    assert rows(FEW, 2, 8.0) == ["rank 0     AX", "rank 3     ..", "channel 0  .Q"]
    # Two short events of a kind count together.
    parts = [Event("Z", 0, 0, 0.0, 1.0), Event("Q", 0, 0, 1.0, 2.5), Event("Z", 0, 0, 2.5, 3.5)]
    assert rows(parts, 1, 4.0) == ["channel 0  Z"]
