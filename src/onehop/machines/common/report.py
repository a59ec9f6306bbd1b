"""The part of the report that all simulated machines share: phases, bytes, energy and output."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from onehop import pictures, sizes
from onehop.errors import ArgumentError
from onehop.machines.common.trace import Trace
from onehop.storage import write_text
from onehop.tables import Column, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Report of a run on a simulated machine.

    Attributes:
        machine: The name of the machine's configuration.
        phases_ns: Time of each phase, in order. They sum to the run's time: if phases overlap, each counts
            only the time that it adds.
        bytes: Bytes moved or held, by kind.
        energy_nj: Energy in nanojoules, by the part that consumes it.
        figures: Other results of this machine; must be serialisable as JSON.
        timeline: The spans of :meth:`trace`.
        labels: The text of figures in tables, by key; other keys are shown with spaces.

    Examples:
        >>> from onehop.machines import Report
        >>> phases = {"load": 30.0, "add": 20.0}
        >>> report = Report(machine="mine", phases_ns=phases, bytes={"read": 64}, energy_nj={"bus": 8.0})
        >>> report.total_ns  # print(report) shows all as tables
        50.0
    """

    machine: str
    phases_ns: Mapping[str, float]
    bytes: Mapping[str, int]
    energy_nj: Mapping[str, float]
    figures: Mapping[str, Any] = field(default_factory=dict)
    timeline: Trace = field(default_factory=Trace, repr=False)
    labels: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def total_ns(self) -> float:
        """Time of the whole run in nanoseconds."""
        return sum(self.phases_ns.values())

    @property
    def total_ms(self) -> float:
        """Time of the whole run in milliseconds."""
        return self.total_ns / 1e6

    @property
    def energy_mj(self) -> float:
        """Energy of the whole run in millijoules."""
        return sum(self.energy_nj.values()) / 1e6

    def summary(self) -> "Report":
        """Return a copy without the parts that grow with the machine, such as the timeline."""
        return replace(self, timeline=Trace())

    def as_dict(self) -> dict[str, Any]:
        """Return everything except the timeline, ready for JSON: times in ms, energy in mJ."""
        return {
            "machine": self.machine,
            "total_ms": self.total_ms,
            "phases_ms": {name: time / 1e6 for name, time in self.phases_ns.items()},
            "bytes": dict(self.bytes),
            "energy_mj": self.energy_mj,
            "energy_parts_mj": {name: energy / 1e6 for name, energy in self.energy_nj.items()},
            **self.figures,
        }

    def to_json(self, path: str | Path) -> None:
        """Writes :meth:`as_dict` to a file.

        Raises:
            StorageError: The file cannot be written; an earlier one is left unchanged.
        """
        write_text("path", path, json.dumps(self.as_dict(), indent=2) + "\n")

    def trace(self, path: str | Path) -> None:
        """Writes the timeline as Chrome-trace JSON, which ui.perfetto.dev opens.

        Raises:
            OSError: The file cannot be written.
        """
        self.timeline.write(path)

    def plot(self, path: str | Path) -> None:
        """Draws the phases as one stacked bar, to a PNG, PDF or SVG file.

        Raises:
            ArgumentError: The file name does not end in .png, .pdf or .svg.
            ConfigurationError: matplotlib is not installed.
            StorageError: The file cannot be written.
        """
        plot_phases({self.machine: self.phases_ns}, "Time of each phase", f"simulated: {self.machine}", path)

    def table(self) -> str:
        """Return the report as lines of plain text."""
        total = self.total_ns
        phases = [(name, time, time / total) for name, time in self.phases_ns.items() if time]
        columns = (*_columns("phase", _time, "time"), Column("share", 2, lambda part: f"{100 * part:.1f} %"))
        tables = [Table(columns, [*phases, ("total", total, None)])]
        if self.bytes:
            moved = [(_words(name), count) for name, count in self.bytes.items()]
            tables.append(Table(_columns("bytes", sizes.readable), moved))
        if self.energy_nj:
            energies = [(_words(name), nj) for name, nj in self.energy_nj.items()]
            energies.append(("total", sum(self.energy_nj.values())))
            tables.append(Table(_columns("energy", lambda nj: f"{nj / 1e6:.4g} mJ"), energies))
        simple = [
            (self.labels.get(key, _words(key)), value)
            for key, value in self.figures.items()
            if isinstance(value, int | float | str)
        ]
        if simple:
            tables.append(Table(_columns("figure", _plain), simple))
        return f"{self.machine}\n" + "\n\n".join(map(str, tables))

    def __str__(self) -> str:
        """Return :meth:`table`."""
        return self.table()


def plot_phases(bars: Mapping[str, Mapping[str, float]], title: str, where: str, path: str | Path) -> None:
    """Draw one stacked bar of phases in nanoseconds for each labelled run; ``where`` names the machine.

    Raises:
        ArgumentError: There are no bars, or the name ends in something other than .png, .pdf or .svg.
        ConfigurationError: matplotlib is not installed.
        StorageError: The file cannot be written.
    """
    if not bars:
        raise ArgumentError("reports: expected at least one to draw, got none.")
    figure = pictures.figure(8, 0.32 * len(bars) + 1.7)
    axes = figure.add_subplot()
    # The phases in the order in which they happen, even if the first bar lacks one of them.
    known = dict.fromkeys(name for phases in bars.values() for name in phases)
    names = [name for name in known if any(phases.get(name) for phases in bars.values())]
    ends = [0.0] * len(bars)
    for number, name in enumerate(names):
        times = [phases.get(name, 0.0) / 1e6 for phases in bars.values()]
        colour = pictures.PALETTE[number % len(pictures.PALETTE)]
        axes.barh(list(bars), times, left=ends, color=colour, label=name)
        ends = [end + time for end, time in zip(ends, times, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("time, ms")
    axes.margins(y=0.02)
    axes.set_xlim(0, 1.02 * max(ends) or 1)
    pictures.style(axes, "x")
    pictures.legend(figure, axes, columns=6)
    pictures.save(figure, title, where, path)


def times_table(runs: Mapping[str, Mapping[str, float]], phases: Sequence[str]) -> Table:
    """Return a table with one line per run: the milliseconds of each given phase, and their sum."""
    columns = (
        Column("ms", lambda run: run[0] or "(no layer)", left=True),
        *(Column(name, partial(_of_phase, name), "{:.4g}") for name in phases),
        Column("total", lambda run: sum(run[1].values()), "{:.4g}"),
    )
    return Table(columns, list(runs.items()))


def _of_phase(name: str, run: tuple[str, Mapping[str, float]]) -> float:
    return run[1].get(name, 0.0)


def _words(key: str) -> str:
    return key.replace("_", " ")


def _columns(what: str, shown: Callable[[Any], str], value: str = "") -> tuple[Column, Column]:
    return Column(what, 0, left=True), Column(value, 1, shown)


def _time(ns: float) -> str:
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= scale:
            return f"{ns / scale:.4g} {unit}"
    return f"{ns:.4g} ns"


def _plain(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
