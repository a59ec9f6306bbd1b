"""Values of the plan and of the machine that ``onehop simulate ndp`` sets and varies."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

from onehop.cli.arguments.experiment import OfGraphs
from onehop.cli.simulate.experiment import Experiment, one_by_one
from onehop.cli.simulate.values import Values, changed, kinds_of
from onehop.graph import Graph
from onehop.machines.ndp import LayerOutcome, Machine
from onehop.machines.ndp.outcome import gain
from onehop.plans.ndp import NdpPlan
from onehop.tables import Column


@dataclass(frozen=True, slots=True)
class Case:
    """A plan on a machine."""

    machine: Machine
    plan: NdpPlan


def experiment(machine: Machine, plan: NdpPlan, options: OfGraphs) -> Experiment[Case]:
    """Return the cases of ``--set`` and ``--sweep``."""
    kinds = {**kinds_of(machine.config), **kinds_of(plan)}
    return Experiment("ndp", Case(machine, plan), kinds, _changed, options, _points)


def line(graph: Graph, widths: list[int]) -> Callable[[Case, Values], dict[str, Any]]:
    """Return the function that runs a case of a sweep and returns its figures."""

    def run(case: Case, point: Values) -> dict[str, Any]:
        figures = _figures(case.machine.layers(graph, widths, case.plan, record=0))
        if point.keys() != _TILED:
            return figures
        plan = case.plan
        return {
            "value": plan.tile,
            "retile": plan.retile,
            "tile": plan.tile,
            "broadcast": plan.broadcast,
            "read_reduction_percent": case.machine.workload(graph, plan).read_reduction_percent(plan.tile),
            **figures,
        }

    return run


def columns(content: Mapping[str, Any]) -> list[Column]:
    """Return the columns of the JSON's lines: the milliseconds of every mapping, and of the chosen ones."""
    lines = content.get("grid") or content.get("sweep", [])
    mappings = dict.fromkeys(name for line in lines for name in line["candidates_ms"])
    tiles = (
        Column("tiles", lambda line: line.get("retile")),
        Column("broadcast", lambda line: line.get("broadcast"), {True: "on", False: "off"}.__getitem__),
        Column("reads saved", lambda line: line.get("read_reduction_percent"), "{:.2f} %"),
    )
    return [
        *(() if "grid" in content else tiles),
        *(Column(name, partial(_candidate, name), "{:.3f}", absent="-") for name in mappings),
        Column("chosen", "time_ms", "{:.3f}"),
        Column("over the host", "speedup_over_baseline", "{:.2f}x"),
        Column("over prior", "speedup_over_prior", "{:.2f}x"),
    ]


def _candidate(name: str, line: Mapping[str, Any]) -> float | None:
    found: float | None = line["candidates_ms"].get(name)
    return found


# A tile is tried with all mappings, re-tiled and in index order, with and without broadcasting.
_TILED = {"tile", "retile", "broadcast", "mapping"}


def _points(name: str, values: list[Any]) -> list[Values]:
    if name != "tile":
        return one_by_one(name, values)
    return [
        {"tile": tile, "retile": retile, "broadcast": broadcast, "mapping": "adaptive"}
        for retile in ("index", "rows")
        for tile in values
        for broadcast in (True, False)
    ]


def _changed(case: Case, values: Values) -> Case:
    """Return the case with other values; machines share counts of graphs that do not depend on them."""
    machine, config = case.machine, changed(case.machine.config, values)
    if config is not machine.config:
        sections = [entry.name for entry in fields(config) if entry.name != "name"]
        machine = machine.change(**{name: asdict(getattr(config, name)) for name in sections})
    return Case(machine, changed(case.plan, values))


def _figures(found: list[LayerOutcome]) -> dict[str, Any]:
    """Return the times over all layers."""
    times: dict[str, float] = {}
    for one in found:
        for name, time in one.candidates_ms().items():
            times[name] = times.get(name, 0.0) + time
    total = sum(one.time_ns for one in found)
    return {
        "time_ms": total / 1e6,
        "mappings": [one.run.mapping for one in found],
        "candidates_ms": times,
        "speedup_over_baseline": gain(sum(one.baseline.time_ns for one in found), total),
        "speedup_over_prior": gain(sum(one.best_prior.serial_ns for one in found), total),
    }
