"""``onehop simulate pim``: a graph, or a whole model, on a near-bank machine."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onehop.bench import near_bank
from onehop.cli.arguments.simulate import PLANS, Pim as Options
from onehop.cli.choices import PIM_PLANS
from onehop.cli.console import progress, set_threads
from onehop.cli.simulate.experiment import Experiment, Loaded, graph_facts, load_graph
from onehop.cli.simulate.values import Values, changed, kinds_of, told
from onehop.errors import ArgumentError, MachineMemoryError
from onehop.graph import Graph
from onehop.machines.common.report import times_table
from onehop.machines.common.trace import Trace
from onehop.machines.pim import (
    Machine,
    PimConfig,
    PimPlan,
    PimReport,
    host,
    load,
    preset,
    prior_art,
    tune,
)
from onehop.machines.pim.numbers import TORCH_TYPES
from onehop.machines.pim.scheme import layout, suitable_grids
from onehop.machines.pim.shapes import Shapes
from onehop.machines.pim.tuner import TuningResult
from onehop.machines.pim.vary import TOGETHER, varied
from onehop.tables import Column

# Features are small integers, so that sums in any dtype can be compared exactly.
_LARGEST_FEATURE = 8
_COLUMNS = (
    Column("ms", lambda line: line.get("total_ms"), "{:.4g}", absent="does not fit"),
    Column("mJ", lambda line: line.get("energy_mj"), "{:.4g}"),
    Column("grid", lambda line: line.get("plan"), lambda plan: f"{plan['sp']}x{plan['ds']}"),
)


@dataclass(frozen=True, slots=True)
class _Case:
    """A machine, and plan fields that are fixed for every plan on it."""

    config: PimConfig
    fixed: Values = field(default_factory=dict)


def pim(options: Options) -> None:
    """Compute the sums of ``onehop simulate pim``; see :class:`Options`."""
    set_threads(options.threads)
    config = load(options.machine) if Path(options.machine).exists() else preset(options.machine)
    kinds = {**kinds_of(config), **dict.fromkeys(TOGETHER, float), **kinds_of(PimPlan())}
    experiment = Experiment("pim", _Case(config), kinds, _changed, options)
    chosen = _Chosen(options, experiment.case.config)
    with progress(what="loading the graph") as bar:
        loaded = load_graph(options.graph, options, bar)
    if experiment.swept:
        _vary(experiment, loaded, chosen)
    elif options.model is not None:
        _run_model(experiment, loaded, chosen, options.model, options.layers or 2)
    else:
        _run(experiment, loaded, chosen, options.host_too)


def _changed(case: _Case, values: Values) -> _Case:
    """Return the case with other values; values that change several others are applied first."""
    config = case.config
    for name in ("cores", *TOGETHER):
        if name in values:
            config = varied(config, name, values[name])
    of_plan = kinds_of(PimPlan())
    fixed = {**case.fixed, **{name: value for name, value in values.items() if name in of_plan}}
    replace(PimPlan(), **fixed)
    config = changed(config, values)
    # Refuses more tasklets than threads before anything runs.
    layout(config, PimPlan(ds=config.ranks, tasklets=fixed.get("tasklets", 1)), 1)
    return _Case(config, fixed)


class _Chosen:
    """The plan from the options; wrong options are reported before a graph is loaded."""

    def __init__(self, options: Options, config: PimConfig) -> None:
        plan, published = options.plan, options.published
        self.plan, self.width, self.dtype, self.seed = plan, options.width, options.dtype, options.seed
        self.what = f"width {self.width}, {self.dtype}"
        self.base = prior_art.PUBLISHED if published else PimPlan()
        self._given: PimPlan | None = None
        if plan in PIM_PLANS:
            return
        grid = re.fullmatch(r"(\d+)x(\d+)", plan)
        if grid:
            tasklets = min(self.base.tasklets, config.core.threads)
            self._given = replace(self.base, sp=int(grid[1]), ds=int(grid[2]), tasklets=tasklets)
        elif Path(plan).is_file():
            self._given = PimPlan.from_json(Path(plan).read_text())
        else:
            grids = ", ".join(f"{sp}x{ds}" for sp, ds in suitable_grids(config))
            raise ArgumentError(f"plan: expected {PLANS}, got {plan!r}; grids of {config.name}: {grids}.")

    def on(self, case: _Case, graph: Graph, shapes: Shapes) -> tuple[PimPlan, TuningResult | None]:
        """Return the plan for a case and a graph, and how it was tuned; shapes may be another machine's."""
        config, machine = case.config, Machine(case.config)
        if self._given is not None:
            plan = self._given
        elif self.plan == "tuned":
            found = tune(machine, shapes, self.width, self.dtype, base=self.base, fixed=case.fixed)
            return found.plan, found
        elif self.plan == "default":
            plan = machine.default_plan(graph, self.width, self.dtype)
        elif self.plan == "grande":
            plan = prior_art.grande(config)
        elif self.plan == "gnnear":
            plan = prior_art.gnnear(config)
        else:
            kernel = machine.kernel(prior_art.PUBLISHED, self.dtype)
            # If no plan fits, this plan is refused later with an error that says what it needs.
            if self.plan == "gnmp":
                fitting = prior_art.gnmp(config, shapes, self.width, kernel)
                plan = fitting or prior_art.published(config.ranks, 1)
            else:
                fitting = prior_art.best_sparsep(config, shapes, self.width, kernel)
                plan = fitting or prior_art.sparsep(config, self.width, config.ranks)
        return replace(plan, **case.fixed), None


def features(rows: int, width: int, dtype: str, seed: int = 0) -> Tensor:
    """Return [rows, width]: seeded random integers from -8 to 7."""
    generator = torch.Generator().manual_seed(seed)
    ends, kind = (-_LARGEST_FEATURE, _LARGEST_FEATURE), torch.int8
    whole = torch.randint(*ends, (rows, width), generator=generator, dtype=kind, device="cpu")
    return whole.to(TORCH_TYPES[dtype])


def _run(experiment: Experiment[_Case], loaded: Loaded[Graph], chosen: _Chosen, host_too: bool) -> None:
    graph, machine = loaded.graph, Machine(experiment.case.config)
    with progress(3, "finding a plan") as bar:
        plan, tuning = chosen.on(experiment.case, graph, machine.shapes(graph))
        bar.advance("aggregating")
        x = features(graph.num_src, chosen.width, chosen.dtype, chosen.seed)
        out, report = machine.aggregate(graph, x, plan)
        bar.advance("comparing with float64")
        report = replace(report, output_max_abs_error=host.largest_error(graph, x, None, "sum", out))
    what = f"{loaded.name}, {chosen.what}"
    shown = [what, report.table()]
    content: dict[str, Any] = {**report.as_dict(), "graph": graph_facts(loaded), "width": chosen.width}
    if tuning is not None:
        content["tuning"] = {"candidates": tuning.candidates, "seconds": tuning.seconds}
        shown.append(f"tuned        {tuning.candidates} plans in {tuning.seconds:.2f} s")
    if host_too:
        content["host_ms"] = host.measured_ns(graph, x) / 1e6
        shown.append(f"this host    {content['host_ms']:.4g} ms, torch, {torch.get_num_threads()} threads")
    title = f"{what}, plan {report.plan}: time of each phase"
    bars = {machine.config.name: report.phases_ns}
    experiment.finish(shown, content, lambda: report.timeline, lambda: (bars, title, machine.config.name))


def _run_model(
    experiment: Experiment[_Case], loaded: Loaded[Graph], chosen: _Chosen, kind: str, layers: int
) -> None:
    torch.manual_seed(chosen.seed)
    case, graph, width = experiment.case, loaded.graph, chosen.width
    machine = Machine(case.config)
    network = near_bank.Network(kind, width, width, width, layers).eval()
    x = features(graph.num_src, width, "float32", chosen.seed) / _LARGEST_FEATURE
    with progress(2, "finding a plan") as bar:
        found, _ = chosen.on(case, graph, machine.shapes(graph))
        plan = replace(found, dtype=case.fixed.get("dtype", chosen.dtype))
        bar.advance("running the model")
        ran = near_bank.run(machine, graph, network, x, plan)
    first = ran.reports[0]
    times = {
        f"layer {number}": {name: time / 1e6 for name, time in report.phases_ns.items()}
        for number, report in enumerate(ran.reports, start=1)
    }
    what = f"{loaded.name}, width {width}, {plan.dtype}"
    shown = (
        f"{kind}, {layers} layers, {what}, plan {first.plan}",
        str(times_table(times, list(first.phases_ns))),
        f"combination on its host   {ran.host_ms:.4g} ms",
        f"whole model               {ran.total_ms:.4g} ms",
        f"error of the output       {ran.max_abs_error:.3g}, where the largest is {ran.max_abs_output:.3g}",
    )
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
        "graph": graph_facts(loaded),
        "width": width,
    }
    bars = {f"layer {number}": report.phases_ns for number, report in enumerate(ran.reports, start=1)}
    title = f"{kind}, {what}: aggregation, time of each phase"
    experiment.finish(
        shown,
        content,
        lambda: _one_after_another(ran.reports),
        lambda: (bars, title, machine.config.name),
    )


def _one_after_another(reports: Sequence[PimReport]) -> Trace:
    whole = Trace()
    for report in reports:
        whole.spans += report.timeline.shift(whole.end_ns).spans
    return whole


def _vary(experiment: Experiment[_Case], loaded: Loaded[Graph], chosen: _Chosen) -> None:
    # Shapes are counted once; there is more to count only if the machine has other clusters.
    shapes = Machine(experiment.case.config).shapes(loaded.graph)

    def run(case: _Case, _: Values) -> dict[str, Any]:
        try:
            plan = chosen.on(case, loaded.graph, shapes)[0]
            report = Machine(case.config).simulate(shapes, chosen.width, plan, chosen.dtype)
        except MachineMemoryError as error:
            return {"error": str(error)}
        return report.as_dict()

    with progress(what="sweeping") as bar:
        lines = experiment.sweep(run, bar)
    content = {"graph": graph_facts(loaded), "width": chosen.width, "dtype": chosen.dtype, **lines}
    what = f"{loaded.name}, {chosen.what}"

    def picture() -> tuple[Mapping[str, Mapping[str, float]], str, str]:
        bars = {
            _label(line): {phase: ms * 1e6 for phase, ms in line["phases_ms"].items()}
            for each in lines.values()
            for line in each
            if "error" not in line
        }
        changes = "two values changed" if "grid" in lines else "one value changed at a time"
        return bars, f"{what}: time of each phase, {changes}", experiment.case.config.name

    experiment.finish(
        [f"{what}, plan {chosen.plan}", *experiment.tables(content, _COLUMNS)], content, picture=picture
    )


def _label(line: Mapping[str, Any]) -> str:
    values = line.get("values") or {line["name"]: line["value"]}
    return ", ".join(f"{name}={told(value)}" for name, value in values.items())
