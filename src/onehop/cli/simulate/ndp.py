"""``onehop simulate ndp``: aggregation on a near-rank machine."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from onehop.bench.ndp_models import output_errors
from onehop.cli.arguments.simulate import Ndp as Options
from onehop.cli.console import Bar, output, progress, set_threads
from onehop.cli.simulate import command_file, ndp_sample, ndp_sweep
from onehop.cli.simulate.experiment import Experiment, Loaded, graph_facts, load_graph
from onehop.graph import Graph
from onehop.graph.self_loops import with_self_loops
from onehop.machines.common.trace import Trace
from onehop.machines.ndp import (
    DESIGNS,
    LayerOutcome,
    Machine,
    Sample,
    layer_report,
    named_priors,
    run_model,
    toy,
    whole_report,
)
from onehop.machines.ndp.layer import LayerRun
from onehop.machines.ndp.outcome import gain
from onehop.machines.ndp.prior import PriorRun
from onehop.machines.ndp.window_reads import sampled_reads
from onehop.plans.ndp import NdpPlan
from onehop.tables import Column, Table


def ndp(options: Options) -> None:
    """Simulate the machine of ``onehop simulate ndp``; see :class:`Options`."""
    if options.gantt:
        output().print(toy.gantt(), markup=False)
        return
    set_threads(options.threads)
    by_rows = options.sample is not None and ndp_sample.by_rows(options)
    plan = NdpPlan(
        "adaptive" if options.compared else options.mapping,
        options.tile,
        options.retile or ("index" if by_rows else "rows"),
        options.batch,
        options.broadcast,
        options.host_order,
    )
    experiment = ndp_sweep.experiment(_machine(options.machine, options.faw), plan, options)
    command_file.check(options.commands, experiment.swept, experiment.case.machine.memory.rank)
    if options.sample is None:
        _whole(options, experiment)
    else:
        _sampled(options, experiment, options.sample)


def _sampled(options: Options, experiment: Experiment[ndp_sweep.Case], runs: int) -> None:
    """Estimate the times from random runs of windows."""
    case = experiment.case
    with progress(what="loading the graph") as bar:
        loaded = ndp_sample.load(options, options.self_loops, bar)
        sample, widths = Sample(runs, options.seed), _widths(options, loaded)
        estimates = ndp_sample.run(case.machine, loaded, widths, case.plan, sample, bar)
    experiment.finish(ndp_sample.shown(case.machine, estimates), estimates)


def _whole(options: Options, experiment: Experiment[ndp_sweep.Case]) -> None:
    """Simulate all targets."""
    hardware, plan = experiment.case.machine, experiment.case.plan
    with progress(what="loading the graph") as bar:
        loaded = load_graph(options.graph, options, bar)
        if options.self_loops:
            loaded = replace(loaded, graph=with_self_loops(loaded.graph))
        structure, widths = loaded.graph, _widths(options, loaded)
        bar.describe("timing all mappings")
        found = hardware.layers(structure, widths, plan)
        content: dict[str, Any] = whole_report(found)
        content |= experiment.sweep(ndp_sweep.line(structure, widths), bar)
        if options.model:
            bar.describe("timing the model")
            columns = _columns(options, loaded)
            ran = run_model(hardware, structure, options.model, columns, plan)
            content["model"] = {"widths": columns, **ran.as_dict()}
        if options.priors:
            bar.describe("timing prior machines")
            content["priors"] = _priors(hardware, structure, widths, plan, sum(one.time_ns for one in found))
        errors = _errors(hardware, structure, plan, found, options.check, bar)
        if options.commands is not None:
            content["commands"] = _commands(options.commands, found[0].run, bar)
    content["output_max_abs_error"] = max(errors.values())
    content["output_errors"] = {"check": options.check, **errors}
    content["graph"] = graph_facts(loaded)
    content["machine"] = hardware.config.to_toml()
    if options.compared:
        _compare(content, found, options.mapping)
    title = f"{options.graph}, width {', '.join(map(str, widths))}: time of each phase, by mapping"
    experiment.finish(
        _shown(experiment, structure, found, content),
        content,
        lambda: _timeline(found),
        lambda: (_bars(found), title, hardware.name),
    )


def _columns(options: Options, loaded: Loaded[Any]) -> list[int]:
    """Return the numbers of columns before each layer, and after the last one."""
    inner = [options.width] * (options.layers - 1)
    return [loaded.num_features or options.width, *inner, loaded.num_classes or options.width]


def _widths(options: Options, loaded: Loaded[Any]) -> list[int]:
    """Return the number of columns that each layer aggregates."""
    return [options.width] if options.layers == 1 else _columns(options, loaded)[:-1]


def _machine(source: str, faw: str) -> Machine:
    hardware = Machine(source)
    if not faw:
        return hardware
    return Machine(hardware.config.change(dram={"faw": int(faw) if faw.isdecimal() else faw}))


def _priors(
    hardware: Machine, graph: Graph, widths: list[int], plan: NdpPlan, time_ns: float
) -> list[dict[str, Any]]:
    """Return prior machines by name, with the gain over each."""
    return [
        {
            "name": one.name,
            "serial_ms": one.serial_ns / 1e6,
            "overlapped_ms": one.overlapped_ns / 1e6,
            "speedup_over_serial": gain(one.serial_ns, time_ns),
            "speedup_over_overlapped": gain(one.overlapped_ns, time_ns),
            "mappings": one.mappings,
            "left_out": DESIGNS[one.name].left_out,
            "source": DESIGNS[one.name].source,
        }
        for one in named_priors(hardware.config, graph, widths, plan.tile)
    ]


def _commands(path: Path, run: LayerRun, bar: Bar) -> dict[str, Any]:
    """Write a rank's commands in a sample of windows of the first layer; return the entry for the JSON."""
    sample = sampled_reads(run)
    written = command_file.write(path, run.memory.rank, sample.requests, bar)
    return {"layer": 1, "rank": sample.rank, "windows": sample.windows, **written}


def _errors(
    hardware: Machine, graph: Graph, plan: NdpPlan, found: list[LayerOutcome], check: str, bar: Bar
) -> dict[str, float]:
    """Return the largest errors by mapping; a full check uses all targets for the chosen mappings."""
    chosen = {one.width: one.run.mapping for one in found}
    errors: dict[str, float] = {}
    for width, mapping in chosen.items():
        names = next(one for one in found if one.width == width).candidates
        others = [name for name in names if name != mapping]
        full, sampled = ([mapping], others) if check == "full" else ([], [mapping, *others])
        by_mapping = output_errors(hardware, graph, plan, width, full, sampled, bar.share)
        for name, error in by_mapping.items():
            errors[name] = max(errors.get(name, 0.0), error)
    return errors


def _compare(content: dict[str, Any], found: list[LayerOutcome], mapping: str) -> None:
    """Replace the machine's own figures by those of the host, or of the best prior machine."""
    is_host = mapping == "baseline"
    runs = [one.baseline if is_host else one.best_prior for one in found]
    times = [(one.baseline.time_ns if is_host else one.best_prior.serial_ns) / 1e6 for one in found]
    total = sum(times)
    content["bytes"] = {what: sum(run.bytes[what] for run in runs) for what in runs[0].bytes}
    content["energy_mj"] = sum(sum(run.energy_nj.values()) for run in runs) / 1e6
    edges = sum(one.run.workload.num_edges for one in found)
    content["read_reduction_percent"] = 100.0 * (1.0 - sum(run.reads for run in runs) / max(edges, 1))
    content["time_ms"] = total
    # These figures belong to the machine's own schedule, which the host and prior machines do not have.
    content["host_order"] = content["bound_ms"] = content["hidden_share"] = None
    content["speedup_over_baseline"] = gain(sum(one.baseline.time_ns for one in found), total * 1e6)
    content["speedup_over_prior"] = gain(sum(one.best_prior.serial_ns for one in found), total * 1e6)
    for layer, one, time in zip(content["layers"], found, times, strict=True):
        layer["time_ms"] = time
        layer["host_order"] = layer["bound_ms"] = layer["hidden_share"] = None
        layer["mapping"] = "baseline" if mapping == "baseline" else f"prior ({one.best_prior.mapping})"


def _shown(
    experiment: Experiment[ndp_sweep.Case], graph: Graph, found: list[LayerOutcome], content: dict[str, Any]
) -> Iterator[RenderableType]:
    yield experiment.case.machine.describe()
    yield f"{graph.num_dst:,} nodes, {graph.num_edges:,} edges"
    names = list(dict.fromkeys(name for one in found for name in one.candidates))
    columns = (
        Column("layer", lambda row: row[0]),
        Column("width", lambda row: row[1].width),
        *(Column(name, partial(_candidate, name), "{:.3f}", absent="-") for name in names),
        Column("baseline", lambda row: row[1].baseline.time_ns / 1e6, "{:.3f}"),
        Column("prior", lambda row: _prior(row[1].best_prior)),
        Column("chosen", lambda row: f"{row[1].run.mapping}, {row[1].run.host_order}", style="bold"),
        Column("bound", lambda row: row[1].run.bound_ns / 1e6, "{:.3f}"),
    )
    yield Table(columns, list(enumerate(found, start=1)), "Milliseconds of every mapping")
    yield from experiment.tables(content, ndp_sweep.columns(content))
    if "model" in content:
        whole = content["model"]
        yield (
            f"{whole['model']} of widths {', '.join(map(str, whole['widths']))}: {whole['time_ms']:.3f} ms, "
            f"the host's part {sum(whole['combine_ms']):.3f} ms, "
            f"{100 * whole['combine_hidden_share']:.0f} % of it hidden. With aggregation, then the host's "
            f"part, it {compared_with(whole['serial_speedup_over_baseline'], 'the host alone')}; overlapped, "
            f"it {compared_with(whole['overlapped_speedup_over_baseline'], 'the host alone')}"
        )
    for prior in content.get("priors", []):
        yield (
            f"{prior['name']} takes {prior['serial_ms']:.3f} ms, and {prior['overlapped_ms']:.3f} ms with "
            f"its steps overlapped; this machine {compared_with(prior['speedup_over_serial'], 'the first')}, "
            f"and {compared_with(prior['speedup_over_overlapped'], 'the second')}. Not modelled: "
            f"{prior['left_out']}"
        )
    if "commands" in content:
        written = content["commands"]
        windows = ", ".join(map(str, written["windows"]))
        yield (
            f"commands of a sample, the feature reads of rank {written['rank']} in windows {windows} of "
            f"layer 1, one after another: {command_file.told(written)}"
        )
    yield layer_report(found[0]).table()
    over_host = compared_with(content["speedup_over_baseline"], "the host alone")
    over_prior = compared_with(content["speedup_over_prior"], "the best prior machine")
    yield (
        f"\n{content['time_ms']:.3f} ms. It {over_host}, and {over_prior}. Tiles save "
        f"{content['read_reduction_percent']:.2f} % of the feature reads. Energy: "
        f"{content['energy_mj']:.1f} mJ. Largest error of a result: {content['output_max_abs_error']:.2g}"
    )
    area, power = content["silicon"]["area_mm2"], content["silicon"]["power_w"]
    yield (
        f"The unit of one rank takes {area.low:.2g} to {area.high:.2g} mm2, and {power.low:.2g} to "
        f"{power.high:.2g} W at work: bounds from published figures of its parts, in 14 to 45 nm"
    )


def compared_with(speedup: float, whom: str) -> str:
    """Return a speed-up in words, of which neither side needs to be the faster one.

    Examples:
        >>> compared_with(1.25, "the host alone"), compared_with(0.625, "the host alone")
        ('is 1.25 times as fast as the host alone', 'takes 1.6 times as long as the host alone')
    """
    if speedup < 1:
        return f"takes {1 / speedup:.3g} times as long as {whom}"
    return f"is {speedup:.3g} times as fast as {whom}"


def _candidate(name: str, row: tuple[int, LayerOutcome]) -> float | None:
    return row[1].candidates_ms().get(name)


def _prior(prior: PriorRun) -> str:
    return f"{prior.serial_ns / 1e6:.3f} ({prior.mapping})"


def _timeline(found: list[LayerOutcome]) -> Trace:
    """Return the layers' timelines, one after another."""
    whole, start = Trace(), 0.0
    for one in found:
        whole.spans.extend(layer_report(one).timeline.shift(start).spans)
        start += one.time_ns
    return whole


def _bars(found: list[LayerOutcome]) -> dict[str, dict[str, float]]:
    """Return the phases of each layer and mapping, by the label of their bar."""
    return {
        f"layer {number}, {name}": dict(candidate.phases_ns)
        for number, one in enumerate(found, start=1)
        for name, candidate in one.candidates.items()
    }
