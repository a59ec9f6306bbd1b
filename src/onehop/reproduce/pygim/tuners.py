"""PyGim's own tuner compared with ours: the plan that each chooses, and the simulated times of both."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onehop.machines.pim import Machine, PimPlan, prior_art, tune
from onehop.machines.pim.memory import fits
from onehop.machines.pim.published_tuner import predictions
from onehop.machines.pim.shapes import Shapes
from onehop.reproduce.pygim.assumptions import THREADS, base
from onehop.reproduce.pygim.comparison import Case
from onehop.reproduce.pygim.schemes import DTYPE, PUBLISHED, WIDTH, named
from onehop.reproduce.tables import Chart, Row, plain, row


@dataclass(frozen=True, slots=True)
class Choices:
    """The plans of both tuners for a graph, with the published kernels.

    Attributes:
        graph: The graph's name.
        theirs: The plan that the published cost function chooses among those that fit.
        predicted_ms: The time of this plan by that function.
        simulated_ms: The time of this plan in simulation.
        best_of_four_ms: Simulated time of the best of the four plans that the published tuner considers.
        ours: The plan of our tuner.
        ours_ms: The simulated time of our plan.
    """

    graph: str
    theirs: PimPlan
    predicted_ms: float
    simulated_ms: float
    best_of_four_ms: float
    ours: PimPlan
    ours_ms: float


def choices(cases: Sequence[Case], shapes: Sequence[Shapes]) -> list[Choices]:
    """Return both tuners' plans for each graph that a published plan fits; ``shapes`` are the graphs'."""
    chosen = []
    machine = Machine(base().config)
    for case, sized in zip([each for each in cases if each.threads == THREADS[0]], shapes, strict=True):
        if PUBLISHED not in case.base.reports:
            continue
        predicted = predictions(machine.config, sized, WIDTH)
        kernel = machine.kernel(prior_art.PUBLISHED, DTYPE)
        fitting = [plan for plan in predicted if fits(machine.config, plan, sized, WIDTH, kernel)]
        theirs = min(fitting, key=predicted.__getitem__)
        tuned = tune(machine, sized, WIDTH, DTYPE, base=prior_art.PUBLISHED)
        chosen.append(
            Choices(
                case.graph,
                theirs,
                predicted[theirs],
                machine.simulate(sized, WIDTH, theirs, DTYPE).total_ms,
                case.base.reports[PUBLISHED].total_ms,
                tuned.plan,
                tuned.predicted_ns / 1e6,
            )
        )
    return chosen


def rows(chosen: Sequence[Choices]) -> Iterator[Row]:
    """Yield the times of the published tuner's plan, and of the best of its four, divided by our best."""
    for one in chosen:
        over = f"over the best of 1,184 with its kernels, {one.graph}"
        note = "The paper's accuracy of its tuner could not be read; its search has four plans."
        yield row(f"plan of PyGim's search {over}", "x", note, one.best_of_four_ms / one.ours_ms)
        note = (
            f"Its cost function takes {one.theirs}: {one.predicted_ms:.4g} ms predicted, "
            f"{one.simulated_ms:.4g} simulated; ours takes {one.ours}: {one.ours_ms:.4g} ms."
        )
        yield row(f"plan of PyGim's tuner {over}", "x", note, one.simulated_ms / one.ours_ms)


def chart(chosen: Sequence[Choices]) -> Chart:
    """Return a chart with the times of the plans, by graph."""
    return Chart(
        name="tuners",
        title=f"One aggregation by the plans of both tuners, published kernels, width {WIDTH}, {DTYPE}",
        machine=named(base().config),
        unit="time, ms",
        groups=tuple(one.graph for one in chosen),
        series=plain(
            {
                "PyGim's, predicted": [one.predicted_ms for one in chosen],
                "PyGim's, simulated": [one.simulated_ms for one in chosen],
                "the best of its four": [one.best_of_four_ms for one in chosen],
                "ours, simulated": [one.ours_ms for one in chosen],
            }
        ),
    )
