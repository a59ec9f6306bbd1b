"""``onehop simulate pim``: a graph, or a whole model, on a near-bank machine."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from onehop.bench import near_bank
from onehop.bench.results import write_json
from onehop.cli.console import output, progress
from onehop.cli.options import Json, Plot, Scale, Seed, Threads, Timeline, Width, set_threads
from onehop.cli.simulate.shared import (
    Source,
    Sweep,
    graph_facts,
    load_graph,
    no_timeline,
    sweep_points,
    sweep_table,
)
from onehop.errors import ArgumentError, MachineMemoryError
from onehop.graph import Graph
from onehop.machines.pim import (
    Machine,
    PimConfig,
    PimPlan,
    PimReport,
    host,
    load,
    preset,
    presets,
    prior_art,
    tune,
)
from onehop.machines.pim.combination import KINDS
from onehop.machines.pim.layout import suitable_grids
from onehop.machines.pim.numbers import TORCH_TYPES
from onehop.machines.pim.shapes import Shapes
from onehop.machines.pim.tuner import TuningResult
from onehop.machines.pim.vary import names as variable, varied
from onehop.machines.report import aligned, plot_phases
from onehop.machines.trace import Trace

_PLANS = "tuned, default, SPxDS such as 2x16, grande, sparsep, or a JSON file that PimPlan.to_json wrote"
_NAMED_PLANS = ("tuned", "default", "grande", "sparsep")
# Features are small whole numbers, so that sums of any type can be compared exactly.
_LARGEST_FEATURE = 8


def pim(
    graph: Source = "twin:arxiv-communities",
    scale: Scale = 1.0,
    seed: Seed = 0,
    width: Width = 256,
    dtype: Annotated[str, typer.Option(help=f"In the machine: {', '.join(TORCH_TYPES)}.")] = "int32",
    plan: Annotated[str, typer.Option(help=f"One of {_PLANS}.")] = "tuned",
    machine: Annotated[
        str, typer.Option(help=f"One of {', '.join(presets())}, or a TOML file.")
    ] = "upmem_v1a",
    published: Annotated[
        bool, typer.Option(help="Kernels and merge as PyGim published them: no improvements of ours.")
    ] = False,
    host_too: Annotated[
        bool, typer.Option("--host", help="Measure torch on this machine beside it.")
    ] = False,
    sweep: Sweep = None,
    model: Annotated[str | None, typer.Option(help=f"A whole model: {', '.join(KINDS)}.")] = None,
    layers: Annotated[
        int | None, typer.Option(help="Layers of the model; 2 if not given.", min=1, show_default=False)
    ] = None,
    threads: Threads = None,
    json: Json = None,
    trace: Timeline = None,
    plot: Plot = None,
) -> None:
    """A graph on a near-bank machine, such as UPMEM's: the true sums, and what they would have taken."""
    set_threads(threads)
    if dtype not in TORCH_TYPES:
        raise ArgumentError(f"dtype: expected one of {', '.join(TORCH_TYPES)}, got {dtype!r}.")
    if model is not None and model not in KINDS:
        raise ArgumentError(f"model: expected one of {', '.join(KINDS)}, got {model!r}.")
    if layers is not None and model is None:
        raise ArgumentError("layers: a run without a model is one aggregation; give --model too.")
    if sweep and model is not None:
        raise ArgumentError("sweep, model: give one of them.")
    no_timeline(sweep, trace)
    if host_too and (sweep or model is not None):
        raise ArgumentError("host: torch is measured beside one aggregation; leave --sweep and --model away.")
    points = [sweep_points(text, variable()) for text in sweep or []]
    config = load(machine) if Path(machine).exists() else preset(machine)
    chosen = _Chosen(plan, published, width, dtype, config)
    with progress(100, graph) as bar:
        found_graph = load_graph(graph, seed, scale, bar)
    loaded, name = found_graph.graph, found_graph.name
    facts = graph_facts(graph, name, loaded.num_dst, loaded.num_edges)
    console = output()
    if points:
        _run_sweep(config, loaded, facts, chosen, points, json, plot)
        return
    simulated = Machine(config)
    if model is not None:
        _run_model(simulated, loaded, facts, model, layers or 2, seed, chosen, json, trace, plot)
        return
    with progress(3, "finding a plan") as bar:
        found = chosen.on(simulated, loaded, simulated.shapes(loaded))
        bar.advance()
        bar.describe("aggregating")
        x = features(loaded.num_src, width, dtype, seed)
        out, report = simulated.aggregate(loaded, x, found.plan)
        bar.advance()
        bar.describe("comparing with float64")
        report = replace(report, output_max_abs_error=host.largest_error(loaded, x, None, "sum", out))
    console.print(f"{name}, width {width}, {dtype}", markup=False)
    console.print(report.table(), markup=False)
    content: dict[str, Any] = {**report.as_dict(), "graph": facts, "width": width}
    if found.tuning is not None:
        content["tuning"] = {"candidates": found.tuning.candidates, "seconds": found.tuning.seconds}
        console.print(
            f"tuned        {found.tuning.candidates} plans in {found.tuning.seconds:.2f} s", markup=False
        )
    if host_too:
        content["host_ms"] = host.measured_ns(loaded, x) / 1e6
        console.print(
            f"this host    {content['host_ms']:.4g} ms, torch, {torch.get_num_threads()} threads",
            markup=False,
        )
    _write(json, content)
    if trace is not None:
        report.trace(trace)
    if plot is not None:
        what = f"{name}, width {width}, {dtype}, plan {report.plan}: time of each phase"
        plot_phases({config.name: report.phases_ns}, what, f"simulated: {config.name}", plot)


@dataclass(frozen=True)
class _Found:
    """A plan, and how it was found."""

    plan: PimPlan
    tuning: TuningResult | None = None


class _Chosen:
    """The plan from the options; wrong options are reported before a graph is loaded."""

    def __init__(self, plan: str, published: bool, width: int, dtype: str, config: PimConfig) -> None:
        self.plan, self.width, self.dtype = plan, width, dtype
        self.base = prior_art.PUBLISHED if published else PimPlan()
        self._given: PimPlan | None = None
        if published and (plan == "default" or (plan not in _NAMED_PLANS and Path(plan).is_file())):
            raise ArgumentError(
                f"published: the plan {plan!r} says itself all that --published would; leave one of them "
                "away, or take a grid or tuned."
            )
        if plan in _NAMED_PLANS:
            return
        grid = re.fullmatch(r"(\d+)x(\d+)", plan)
        if grid:
            tasklets = min(self.base.tasklets, config.core.threads)
            self._given = replace(self.base, sp=int(grid[1]), ds=int(grid[2]), tasklets=tasklets)
        elif Path(plan).is_file():
            self._given = PimPlan.from_json(Path(plan).read_text())
        else:
            grids = ", ".join(f"{sp}x{ds}" for sp, ds in suitable_grids(config))
            raise ArgumentError(f"plan: expected {_PLANS}, got {plan!r}; grids of {config.name}: {grids}.")

    def on(self, machine: Machine, graph: Graph, shapes: Shapes) -> _Found:
        """The plan for a machine and a graph, whose shapes may be those that another machine counted."""
        if self._given is not None:
            return _Found(self._given)
        config = machine.config
        if self.plan == "tuned":
            found = tune(machine, shapes, self.width, self.dtype, base=self.base)
            return _Found(found.plan, found)
        if self.plan == "default":
            return _Found(machine.default_plan(graph, self.width, self.dtype))
        if self.plan == "grande":
            return _Found(prior_art.grande(config))
        kernel = machine.kernel(prior_art.PUBLISHED, self.dtype)
        best = prior_art.best_sparsep(config, shapes, self.width, kernel)
        # Where none fits, the one that is then refused says what it needs.
        return _Found(best or prior_art.sparsep(config, self.width, config.ranks))


def features(rows: int, width: int, dtype: str, seed: int = 0) -> Tensor:
    """[rows, width]: seeded whole numbers from -8 to 7."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randint(
        -_LARGEST_FEATURE,
        _LARGEST_FEATURE,
        (rows, width),
        generator=generator,
        dtype=torch.int8,
        device="cpu",
    )
    return whole.to(TORCH_TYPES[dtype])


def _write(path: Path | None, content: dict[str, Any]) -> None:
    if path is not None:
        write_json(path, "simulate pim", content)


def _run_model(
    machine: Machine,
    graph: Graph,
    facts: dict[str, Any],
    kind: str,
    layers: int,
    seed: int,
    chosen: _Chosen,
    json: Path | None,
    trace: Path | None,
    plot: Path | None,
) -> None:
    torch.manual_seed(seed)
    network = near_bank.Network(kind, chosen.width, chosen.width, chosen.width, layers).eval()
    x = features(graph.num_src, chosen.width, "float32", seed) / _LARGEST_FEATURE
    with progress(2, "finding a plan") as bar:
        plan = replace(chosen.on(machine, graph, machine.shapes(graph)).plan, dtype=chosen.dtype)
        bar.advance()
        bar.describe("running the model")
        ran = near_bank.run(machine, graph, network, x, plan)
    first = ran.reports[0]
    console = output()
    rows = [
        (f"layer {i + 1}", *(f"{r.phases_ns[p] / 1e6:.4g}" for p in first.phases_ns), f"{r.total_ms:.4g}")
        for i, r in enumerate(ran.reports)
    ]
    lines = aligned(("ms", *first.phases_ns, "total"), rows)
    for line in (
        f"{kind}, {layers} layers, {facts['name']}, width {chosen.width}, {chosen.dtype}, plan {first.plan}",
        *lines,
        f"combination on its host   {ran.host_ms:.4g} ms",
        f"whole model               {ran.total_ms:.4g} ms",
        f"error of the output       {ran.max_abs_error:.3g}, where the largest is {ran.max_abs_output:.3g}",
    ):
        console.print(line, markup=False)
    content = {
        **first.as_dict(),
        "total_ms": ran.total_ms,
        "phases_ms": {p: sum(r.phases_ns[p] for r in ran.reports) / 1e6 for p in first.phases_ns},
        "energy_mj": ran.energy_mj,
        "bytes": {key: sum(r.bytes[key] for r in ran.reports) for key in first.bytes},
        "output_max_abs_error": ran.max_abs_error,
        "model": kind,
        "host_ms": ran.host_ms,
        "layers": [report.as_dict() for report in ran.reports],
        "graph": facts,
        "width": chosen.width,
    }
    _write(json, content)
    if trace is not None:
        whole = Trace()
        for report in ran.reports:
            whole.spans += report.timeline.shift(whole.end_ns).spans
        whole.write(trace)
    if plot is not None:
        what = (
            f"{kind}, {facts['name']}, width {chosen.width}, {chosen.dtype}: aggregation, time of each phase"
        )
        bars = {f"layer {i + 1}": report.phases_ns for i, report in enumerate(ran.reports)}
        plot_phases(bars, what, f"simulated: {machine.config.name}", plot)


def _run_sweep(
    config: PimConfig,
    graph: Graph,
    facts: dict[str, Any],
    chosen: _Chosen,
    points: list[tuple[str, list[float]]],
    json: Path | None,
    plot: Path | None,
) -> None:
    reports: dict[str, PimReport] = {}
    entries, rows = [], []
    # Counted once: only where the machine has other clusters is there more to count.
    shapes = Machine(config).shapes(graph)
    # All machines first: a bad value is to be told before the first has run.
    machines = [
        (field, value, Machine(varied(config, field, value))) for field, values in points for value in values
    ]
    with progress(len(machines), "machines") as bar:
        for field, value, machine in machines:
            label = f"{field}={value:g}"
            bar.describe(label)
            try:
                found = chosen.on(machine, graph, shapes)
                report = machine.simulate(shapes, chosen.width, found.plan, chosen.dtype)
            except MachineMemoryError as error:
                rows.append((field, value, ("does not fit", "", "")))
                entries.append({"name": field, "value": value, "error": str(error)})
                continue
            finally:
                bar.advance()
            reports[label] = report
            entries.append({"name": field, "value": value, **report.as_dict()})
            grid = f"{report.plan.sp}x{report.plan.ds}"
            rows.append((field, value, (f"{report.total_ms:.4g}", f"{report.energy_mj:.4g}", grid)))
    console = output()
    what = f"{facts['name']}, width {chosen.width}, {chosen.dtype}"
    console.print(f"{what}, plan {chosen.plan}", markup=False)
    console.print(sweep_table(("ms", "mJ", "grid"), rows))
    _write(json, {"graph": facts, "width": chosen.width, "dtype": chosen.dtype, "sweep": entries})
    if plot is not None:
        what += ": time of each phase, one value changed at a time"
        bars = {label: report.phases_ns for label, report in reports.items()}
        plot_phases(bars, what, f"simulated: {config.name}", plot)
