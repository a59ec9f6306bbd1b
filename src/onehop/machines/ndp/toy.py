"""The five schedules of the paper's Figure 5 on a toy case: one channel, two ranks, two windows.

The host's order is the order of the figure, ``after``.
"""

from dataclasses import dataclass

import numpy as np

from onehop.machines.ndp.durations import WindowTimes
from onehop.machines.ndp.timeline import rows
from onehop.machines.ndp.windows import Event, run

WINDOWS, RANKS = 2, 2
# Times per window: reading a rank's adjacency; feature reads of a rank's own bundle, for whole vectors; both
# ranks' outputs, and the finals, over the channel; a rank's write-back; reading a bundle and writing a copy.
ADJACENCY, FEATURES, OUTPUTS, FINALS, WRITE_BACK, BUNDLE = 2.0, (6.0, 4.0), 4.0, 2.0, 1.0, 1.0
# Time of the instructions for one rank, which prior machines send.
INSTRUCTIONS = 1.0


@dataclass(frozen=True, slots=True)
class ToyCase:
    """One schedule of the figure.

    Attributes:
        name: The figure's letter and subject.
        total_ns: The end of the schedule.
        events: Events of every rank and the channel.
    """

    name: str
    total_ns: float
    events: list[Event]


def cases() -> list[ToyCase]:
    """Return the five schedules."""
    return [
        _baseline(),
        _prior(),
        _near_rank("(c) rank-pod, no bundle transfer", pod=1, copies=0),
        _near_rank("(d) system-pod, bundles written to each rank", pod=2, copies=2),
        _near_rank("(e) system-pod, bundles broadcast", pod=2, copies=1),
    ]


def times(pod: int, copies: int) -> WindowTimes:
    """Return the toy's durations; a rank in a two-rank pod has half vectors, so its bundle reads halve."""

    def each(*of_rank: float) -> np.ndarray:
        return np.tile(np.array(of_rank), (WINDOWS, 1))

    transfer = pod > 1
    return WindowTimes(
        pod=pod,
        transfer="host" if transfer else "none",
        lag=1,
        fill_ns=0.0,
        poll_ns=0.0,
        again_ns=0.0,
        pieces=np.ones(WINDOWS, dtype=np.int64),
        adjacency=each(ADJACENCY, ADJACENCY),
        reads=each(*FEATURES),
        edges=each(*FEATURES),
        read_ns=np.full(RANKS, 1.0 / pod),
        unit_ns=np.zeros(RANKS),
        bundle_out=each(BUNDLE, BUNDLE) if transfer else each(0.0, 0.0),
        bundle_in=each(copies * BUNDLE, copies * BUNDLE),
        outputs=each(OUTPUTS / pod),
        reduce=np.zeros(WINDOWS),
        finals=each(FINALS),
        write_back=each(WRITE_BACK, WRITE_BACK),
    )


def gantt(columns: int = 72) -> str:
    """Return all schedules as lines of text on one time scale."""
    found = cases()
    end = max(case.total_ns for case in found)
    lines = [
        "A adjacency  X features  W write-back  i instructions  r b bundle read, written  Q outputs  Z finals"
    ]
    for case in found:
        lines += ["", f"{case.name}: {case.total_ns:g} ns", *rows(case.events, columns, end)]
    return "\n".join(lines)


def _near_rank(name: str, pod: int, copies: int) -> ToyCase:
    schedule = run(times(pod, copies), 1, "after", record=WINDOWS)
    return ToyCase(name, schedule.total_ns, schedule.events)


def _baseline() -> ToyCase:
    """Schedule the host alone: one rank at a time on the bus reads adjacency and features; results follow."""
    reads = [
        [(what, rank, ns)] for rank in range(RANKS) for what, ns in (("A", ADJACENCY), ("X", FEATURES[rank]))
    ]
    writes = [[("W", rank, WRITE_BACK)] for rank in range(RANKS)]
    return _in_steps("(a) baseline: the host, one rank at a time", [*reads, *writes])


def _prior() -> ToyCase:
    """Schedule a prior machine: adjacency and instructions, reduction in the ranks, then results."""
    steps = [
        [("bundle read", 0, RANKS * ADJACENCY)],
        [("instructions", 0, RANKS * INSTRUCTIONS)],
        [("X", rank, ns) for rank, ns in enumerate(FEATURES)],
        [("Q", 0, OUTPUTS)],
        [("Z", 0, FINALS)],
    ]
    return _in_steps("(b) prior: rank-pod, strictly one after another", steps)


def _in_steps(name: str, steps: list[list[tuple[str, int, float]]]) -> ToyCase:
    """Run every window's steps one after another; a step's events (what, where, ns) begin together."""
    events, now = [], 0.0
    for window in range(WINDOWS):
        for step in steps:
            events += [Event(what, window, where, now, now + ns) for what, where, ns in step]
            now += max(ns for _, _, ns in step)
    return ToyCase(name, now, events)
