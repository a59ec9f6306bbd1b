"""The first windows of a layer as spans for the Chrome trace, and as lines of text."""

from collections.abc import Iterable

from onehop.machines.common.trace import Trace
from onehop.machines.ndp.windows import Event

# The name of each event in a trace, and its letter in lines of text.
_EVENTS = {
    "A": ("adjacency", "A"),
    "X": ("features", "X"),
    "W": ("write-back", "W"),
    "bundle read": ("bundle read", "r"),
    "bundle write": ("bundle write", "b"),
    "Q": ("outputs", "Q"),
    "Z": ("finals", "Z"),
    "L": ("listing", "L"),
    "lists": ("node lists", "l"),
    "tile list": ("tile list", "t"),
    "instructions": ("instructions", "i"),
}


def trace(events: Iterable[Event], control_ns: float = 0.0) -> Trace:
    """Return the events as lanes of ranks (the DRAM-path) and channels (the Host-path).

    ``control_ns`` is the time before them: flush, start and status.
    """
    spans = Trace()
    if control_ns:
        spans.add("before windows", "control", 0.0, control_ns)
    for event in events:
        lane = f"Host-path/channel {event.where}" if event.on_channel else f"DRAM-path/rank {event.where}"
        duration = event.end_ns - event.start_ns
        spans.add(lane, _EVENTS[event.what][0], control_ns + event.start_ns, duration, window=event.window)
    return spans


def rows(events: Iterable[Event], columns: int, end_ns: float) -> list[str]:
    """Return lines of text, one per rank and channel, over ``columns`` time steps from 0 to ``end_ns``.

    Letters: A adjacency, X features, W write-back, L listing; r and b bundles read and written, Q outputs, Z
        finals, l node lists read, t the tile list written; "." idle. Each step shows the event that fills
        most of it.
    """
    events = list(events)
    lanes = sorted({(event.on_channel, event.where) for event in events})
    step = end_ns / columns
    lines = []
    for on_channel, where in lanes:
        own = [event for event in events if (event.on_channel, event.where) == (on_channel, where)]
        marks = "".join(_mark(own, i * step, (i + 1) * step) for i in range(columns))
        lines.append(f"{'channel' if on_channel else 'rank'} {where}".ljust(11) + marks)
    return lines


def _mark(events: list[Event], begin: float, end: float) -> str:
    shares: dict[str, float] = {}
    for event in events:
        overlap = min(end, event.end_ns) - max(begin, event.start_ns)
        if overlap > 0:
            shares[event.what] = shares.get(event.what, 0.0) + overlap
    if sum(shares.values()) < (end - begin) / 2:
        return "."
    return _EVENTS[max(shares, key=lambda what: shares[what])][1]
