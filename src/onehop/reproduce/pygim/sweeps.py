"""The characterisation of Parallelism Fusion: the published plan with one choice varied at a time."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from onehop.errors import MachineMemoryError
from onehop.machines.pim import Machine, prior_art
from onehop.machines.pim.shapes import Shapes
from onehop.plans.pim import DTYPES
from onehop.reproduce.pygim.assumptions import base
from onehop.reproduce.pygim.schemes import DTYPE, WIDTH, named
from onehop.reproduce.tables import Chart, Row, plain, row

_GRID = (1, 32)
_BALANCES = {"core_balance": ("row", "edge"), "thread_balance": ("row", "edge")}
# Milliseconds of each point, None if it does not fit, by the sweeps' names.
Times = Mapping[str, list[float | None]]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Values of a plan that are varied, in all combinations.

    Attributes:
        name: Stem of the picture's file name.
        what: What is varied.
        axes: Values by field of the plan.
        fixed: Other values that differ from the published plan's.
    """

    name: str
    what: str
    axes: Mapping[str, tuple[Any, ...]]
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def points(self) -> list[dict[str, Any]]:
        """Return the varied values of each plan."""
        return [dict(zip(self.axes, values, strict=True)) for values in product(*self.axes.values())]

    @property
    def command(self) -> str:
        """Return the command that gives the same figures, except for its graph."""
        words = ["onehop simulate pim --published --plan", "x".join(map(str, _GRID))]
        words += [f"--set {name}={value}" for name, value in self.fixed.items()]
        words += [f"--sweep {name}={','.join(map(str, values))}" for name, values in self.axes.items()]
        return " ".join([*words, *(["--grid"] if len(self.axes) > 1 else [])])


SWEEPS = (
    Sweep("balance_csr", "rows or edges over cores and tasklets, CSR", _BALANCES),
    Sweep("balance_coo", "rows or edges over cores and tasklets, COO", _BALANCES, {"format": "coo"}),
    Sweep("tasklets", "1 to 24 tasklets", {"tasklets": (1, 2, 4, 8, 12, 16, 24)}),
    Sweep("dtypes", "six types of elements", {"dtype": DTYPES}),
    Sweep("clusters", "1 to 8 clusters in a rank", {"ds": (32, 64, 128, 256)}),
    Sweep("parts", "sparse and dense parts", {"sp": (1, 2, 4), "ds": (8, 16, 32)}),
)


def times(shapes: Shapes) -> Times:
    """Return the time of an aggregation at each point of each sweep."""
    machine = Machine(base().config)
    plan = prior_art.published(*_GRID)

    def run(**values: Any) -> float | None:
        try:
            return machine.simulate(shapes, WIDTH, replace(plan, **values), DTYPE).total_ms
        except MachineMemoryError:
            # Running out of memory is a result.
            return None

    return {each.name: [run(**each.fixed, **point) for point in each.points] for each in SWEEPS}


def rows(by_graph: Mapping[str, Times]) -> list[Row]:
    """Return the effect of each choice: the slowest point's time divided by the fastest's."""
    table = []
    for sweep, (graph, by_sweep) in product(SWEEPS, by_graph.items()):
        fitting = {
            _label(p): ms for p, ms in zip(sweep.points, by_sweep[sweep.name], strict=True) if ms is not None
        }
        figure = f"slowest over fastest, {sweep.what}, {graph}"
        if not fitting:
            table.append(row(figure, "x", "None of the plans fits."))
            continue
        fast, slow = min(fitting, key=fitting.__getitem__), max(fitting, key=fitting.__getitem__)
        note = f"{slow}: {fitting[slow]:.4g} ms; {fast}: {fitting[fast]:.4g} ms. "
        note += "The paper's figures could not be read."
        table.append(row(figure, "x", note, fitting[slow] / fitting[fast]))
    return table


def charts(by_graph: Mapping[str, Times]) -> tuple[Chart, ...]:
    """Return a picture of each sweep: its points, with a bar per graph."""
    return tuple(
        Chart(
            name=sweep.name,
            title=f"One aggregation, width {WIDTH}, published kernels: {sweep.what}",
            machine=named(base().config),
            unit="time, ms",
            groups=tuple(_label(point) for point in sweep.points),
            series=plain({graph: each[sweep.name] for graph, each in by_graph.items()}),
            logarithmic=True,
            absent="does not fit",
        )
        for sweep in SWEEPS
    )


def _label(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in point.items())
