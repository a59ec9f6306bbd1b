"""``onehop simulate dram``: bandwidth, rows and energy of a kind of traffic."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from onehop.cli.arguments.simulate import Dram as Options, timings
from onehop.cli.console import progress
from onehop.cli.simulate import command_file
from onehop.cli.simulate.experiment import Experiment, graph_facts, load_graph
from onehop.cli.simulate.values import Values, changed, kinds_of
from onehop.errors import ArgumentError
from onehop.machines.common.trace import Trace
from onehop.machines.dram import (
    Access,
    Dram,
    DramReport,
    Limits,
    Memory,
    Requests,
    load,
    preset,
    read_trace,
    write_trace,
)
from onehop.machines.dram.requests import vector_reads
from onehop.machines.dram.timeline import timeline
from onehop.tables import Column, Table

_OF_TRAFFIC = tuple(entry.name for entry in fields(Access))
_OF_CONTROLLER = ("layout", "queue", "scheduler", "refresh", "refresh_mode", "close_after")
# Figures of a report that a line of a sweep shows.
_FIGURES = ("cycles", "served", "time_ns", "gbps", "percent_of_peak", "activations", "energy_nj")
_COLUMNS = (
    Column("GB/s", "gbps", "{:.2f}"),
    Column("% of peak", "percent_of_peak", "{:.1f}"),
    Column("us", lambda line: line["time_ns"] / 1e3, "{:,.1f}"),
    Column("uJ", lambda line: line["energy_nj"] / 1e3, "{:,.1f}"),
)
_LINES = (Column("", 0, left=True, wraps=False), Column("", 1))


@dataclass(frozen=True, slots=True)
class _Case:
    """Traffic, and the memory that serves it."""

    memory: Memory
    access: Access


def dram(options: Options) -> None:
    """Simulate the memory of ``onehop simulate dram``; see :class:`Options`."""
    drawn = _case_of(options)
    experiment = Experiment("dram", drawn, kinds_of(drawn), changed, options)
    for option, names_given in (("sweep", experiment.swept), ("set", experiment.values)):
        for name in names_given:
            if name in _OF_TRAFFIC and options.requests_given:
                raise ArgumentError(f"{option}: {name} is of drawn traffic, and these requests are given.")
    memory, access = experiment.case.memory, experiment.case.access
    count, seed = options.requests, options.seed
    command_file.check(options.commands, experiment.swept, memory, 0 if options.replay else count)
    with progress(what="reading requests") as bar:
        loaded = None if options.graph is None else load_graph(options.graph, options, bar)

        def given(at: Memory) -> Requests | None:
            if loaded is not None:
                return vector_reads(loaded.graph, options.width, at.dram, count)
            return None if options.replay is None else read_trace(options.replay, at)

        def serve(case: _Case) -> DramReport:
            told = given(case.memory)
            if told is None:
                return case.memory.run(case.access, count, options.level, seed)
            return case.memory.serve(told)

        def line(case: _Case, _: Values) -> dict[str, Any]:
            report = serve(case)
            return {name: getattr(report, name) for name in _FIGURES}

        recorded = given(memory)
        if options.export is not None:
            bar.describe("writing requests")
            written = recorded or memory.requests(access, count, seed)
            write_trace(options.export, written, memory, options.export_format)
        bar.describe("serving requests")
        report = serve(experiment.case)
        lines = experiment.sweep(line, bar)
        commands = None
        if options.commands is not None:
            served = recorded or memory.requests(access, count, seed)
            commands = command_file.write(options.commands, memory, served, bar)

    def drawn_timeline() -> Trace:
        log = memory.commands(recorded or memory.requests(access, count, seed)).log
        assert log is not None, "a run for a timeline records its log"
        return timeline(log, memory.dram)

    why_not = memory.why_no_limits(access) if recorded is None else "the formula knows no given requests"
    bounds = None if why_not else memory.limits(access)
    rows = [*_rows(report), ("what binds, by formula", why_not if bounds is None else _binding(bounds))]
    if commands is not None:
        rows.append(("commands", command_file.told(commands)))
    ranks = f"{memory.ranks} rank" + "s" * (memory.ranks > 1)
    title = f"{report.dram}, {_traffic(options, access)}, {memory.layout}, {ranks}"
    asked: dict[str, Any] = {
        **{name: getattr(access, name) for name in ("pattern", "run_bytes", "op", "write_share")},
        "requests": count if recorded is None else len(recorded),
        "seed": seed,
        "replay": None if options.replay is None else str(options.replay),
        "width": None if options.graph is None else options.width,
        **{name: getattr(memory, name) for name in _OF_CONTROLLER},
        "timing": asdict(memory.dram.timing),
    }
    content = {
        "graph": None if loaded is None else graph_facts(loaded),
        "asked": asked,
        **asdict(report),
        "limits": bounds and {**asdict(bounds), "binds": bounds.binds, "cycles": bounds.cycles},
        "no_limits_because": why_not or None,
        "commands": commands,
        **lines,
    }
    experiment.finish(
        [Table(_LINES, rows, title), *experiment.tables(content, _COLUMNS)], content, drawn_timeline
    )


def _case_of(options: Options) -> _Case:
    """Return the memory, and the traffic to generate."""
    own = {name: getattr(options, name) for name in ("ranks", *_OF_CONTROLLER)}
    memory = Memory(_device(options.preset_name, options.timing), **own)
    access = Access(options.pattern, options.run_bytes, options.op, write_share=options.write_share)
    return _Case(memory, access)


def _traffic(options: Options, access: Access) -> str:
    """Return the traffic in words."""
    if options.graph is not None:
        return f"vectors of {options.graph}, width {options.width}"
    if options.replay is not None:
        return str(options.replay)
    runs = f" of {access.run_bytes} B" if access.pattern == "random" else ""
    share = access.write_share
    kind = f"{access.op}s" if share is None else f"reads, {share:.0%} writes,"
    return f"{access.pattern} {kind}{runs}"


def _device(name: str, timing: str | None) -> Dram:
    """Return the preset's or file's device, with other timings if some were given."""
    device = load(name) if name.endswith(".toml") else preset(name)
    clocks = timings("timing", timing or "")
    return device.with_timing(**clocks) if clocks else device


def _binding(bounds: Limits) -> str:
    """Return the strictest limit, followed by all limits in clocks per burst."""
    clocks = {name.replace("_", " "): value for name, value in bounds.clocks().items()}
    each = ", ".join(f"{name} {value:.2f}" for name, value in clocks.items())
    refreshes = f"; refreshes take {bounds.refresh_share:.1%}" if bounds.refresh_share else ""
    return f"{bounds.binds.replace('_', ' ')} (clocks a burst: {each}{refreshes})"


def _rows(report: DramReport) -> list[tuple[str, str]]:
    """Return the report as lines."""
    rows = [
        ("level", report.level),
        ("bandwidth", f"{report.gbps:.2f} GB/s, {report.percent_of_peak:.1f} % of peak"),
        ("time", f"{report.time_ns / 1e3:,.1f} us, {report.cycles:,} clocks"),
        ("bursts served", f"{report.served:,}"),
        ("a burst", f"{report.cycles / max(1, report.served):.3f} clocks"),
        (
            "row hits, misses, conflicts",
            f"{report.row_hits:,}, {report.row_misses:,}, {report.row_conflicts:,}",
        ),
    ]
    if report.mean_read_latency_ns is not None:
        rows.append(("mean read latency", f"{report.mean_read_latency_ns:.0f} ns"))
    parts = ", ".join(f"{name} {energy / 1e3:,.1f}" for name, energy in report.energy.items() if energy)
    rows.append(("energy", f"{report.energy_nj / 1e3:,.1f} uJ ({parts})"))
    rows.append(("energies from", report.energy_source))
    return rows
