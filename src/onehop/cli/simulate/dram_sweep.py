"""Sweeps of ``onehop simulate dram``: a timing of the device, or a value of the controller or the traffic."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from rich.table import Table

from onehop.cli.console import Bar
from onehop.cli.simulate.shared import Points, sweep_table, whole
from onehop.machines.dram import Access, DramReport, Memory
from onehop.machines.dram.device import Timing

_TIMINGS = tuple(entry.name for entry in fields(Timing))
_OF_MEMORY = ("ranks", "queue", "close_after")
NAMES = ("run_bytes", "write_share", *_OF_MEMORY, *_TIMINGS)


@dataclass(frozen=True, slots=True)
class Point:
    """A value of a sweep.

    Attributes:
        name: One of :data:`NAMES`.
        value: The value.
        memory: The memory with it.
        access: The traffic with it.
    """

    name: str
    value: float
    memory: Memory
    access: Access


def points(memory: Memory, access: Access, swept: Points) -> list[Point]:
    """The memories and the traffic of a sweep; made first, so that a bad value is told before anything runs.

    Raises:
        ArgumentError: A value that has to be an integer is none, or is out of range.
    """
    return [_point(memory, access, name, value) for name, values in swept for value in values]


def run(wanted: list[Point], serve: Callable[[Memory, Access], DramReport], bar: Bar) -> list[dict[str, Any]]:
    """A line for each value."""
    lines = []
    for number, point in enumerate(wanted):
        bar.share(f"sweeping {point.name}", number / len(wanted))
        report = serve(point.memory, point.access)
        lines.append(
            {
                "name": point.name,
                "value": point.value,
                "cycles": report.cycles,
                "served": report.served,
                "time_ns": report.time_ns,
                "gbps": report.gbps,
                "percent_of_peak": report.percent_of_peak,
                "activations": report.activations,
                "energy_nj": report.energy_nj,
            }
        )
    return lines


def table(lines: list[dict[str, Any]]) -> Table:
    """The lines as they are printed."""
    return sweep_table(
        ("GB/s", "% of peak", "us", "uJ"),
        (
            (
                line["name"],
                line["value"],
                (
                    f"{line['gbps']:.2f}",
                    f"{line['percent_of_peak']:.1f}",
                    f"{line['time_ns'] / 1e3:,.1f}",
                    f"{line['energy_nj'] / 1e3:,.1f}",
                ),
            )
            for line in lines
        ),
    )


def _point(memory: Memory, access: Access, name: str, value: float) -> Point:
    if name == "write_share":
        return Point(name, value, memory, replace(access, write_share=value))
    count = whole(name, value)
    if name == "run_bytes":
        return Point(name, value, memory, replace(access, run_bytes=count))
    if name in _OF_MEMORY:
        changed: dict[str, Any] = {name: count}
        return Point(name, value, replace(memory, **changed), access)
    return Point(name, value, replace(memory, dram=memory.dram.with_timing(**{name: count})), access)
