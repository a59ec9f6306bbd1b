"""Timelines of simulated machines, in the trace format that Chrome and Perfetto open.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event
Format); only complete events ("ph": "X") and names of lanes ("ph": "M") are used.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onehop.errors import ArgumentError
from onehop.storage import write_text


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time.

    Attributes:
        lane: The line on which the span is drawn; lanes with the same text before a "/" form a group.
        name: The span's name.
        start_ns: Its start time.
        duration_ns: Its duration.
        args: Further details, shown when the span is selected; numbers or strings.
    """

    lane: str
    name: str
    start_ns: float
    duration_ns: float
    args: dict[str, Any] = field(default_factory=dict)


class Trace:
    """Spans on lanes, in the order in which they were added.

    Examples:
        >>> from onehop.machines import Trace
        >>> trace = Trace()
        >>> trace.add("core/0", "load", start_ns=0, duration_ns=30)
        >>> trace.add("core/0", "add", start_ns=30, duration_ns=20)
        >>> trace.end_ns
        50
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def add(self, lane: str, name: str, start_ns: float, duration_ns: float, **args: Any) -> None:
        """Adds a span.

        Args:
            lane: The line on which the span is drawn: "group/line", or "line".
            name: The span's name.
            start_ns: Its start time; zero or more.
            duration_ns: Its duration; zero or more.
            **args: Further details, numbers or strings.

        Raises:
            ArgumentError: A time is negative.
        """
        if not start_ns >= 0 or not duration_ns >= 0:
            raise ArgumentError(
                f"trace: {name} on {lane} starts at {start_ns} ns and lasts {duration_ns} ns; neither may be "
                "negative."
            )
        self.spans.append(Span(lane, name, start_ns, duration_ns, args))

    def shift(self, by_ns: float) -> "Trace":
        """Return a copy with all spans moved by ``by_ns``."""
        later = Trace()
        later.spans = [Span(s.lane, s.name, s.start_ns + by_ns, s.duration_ns, s.args) for s in self.spans]
        return later

    @property
    def end_ns(self) -> float:
        """End of the last span; 0 if there are no spans."""
        return max((span.start_ns + span.duration_ns for span in self.spans), default=0.0)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document."""
        groups: dict[str, int] = {}
        lanes: dict[str, tuple[int, int]] = {}
        events: list[dict[str, Any]] = []
        for span in self.spans:
            if span.lane not in lanes:
                group, slash, line = span.lane.partition("/")
                if group not in groups:
                    groups[group] = len(groups) + 1
                    events.append(_name("process_name", group, groups[group], 0))
                lanes[span.lane] = (groups[group], len(lanes) + 1)
                events.append(_name("thread_name", line if slash else group, *lanes[span.lane]))
            process, thread = lanes[span.lane]
            events.append(
                {
                    "ph": "X",
                    "name": span.name,
                    "pid": process,
                    "tid": thread,
                    # The format uses microseconds.
                    "ts": span.start_ns / 1e3,
                    "dur": span.duration_ns / 1e3,
                    "args": span.args,
                }
            )
        return {"displayTimeUnit": "ns", "traceEvents": events}

    def write(self, path: str | Path) -> None:
        """Writes the JSON file; ui.perfetto.dev opens it.

        Raises:
            StorageError: The file cannot be written; an earlier one is left unchanged.
        """
        write_text("path", path, json.dumps(self.as_dict()) + "\n")


def _name(kind: str, name: str, process: int, thread: int) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}
