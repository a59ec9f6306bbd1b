"""Time by the number of ranks; the paper's own curve could not be read."""

from onehop.machines.pim import Machine, prior_art
from onehop.machines.pim.shapes import Shapes
from onehop.machines.pim.vary import varied
from onehop.reproduce.pygim.assumptions import base
from onehop.reproduce.pygim.schemes import DTYPE, PUBLISHED, WIDTH, named
from onehop.reproduce.rows import Chart, Row, Series

RANKS = (4, 8, 16, 32)
_PHASES = ("send", "broadcast", "kernel", "retrieve", "merge")


def phases(shapes: Shapes) -> dict[int, dict[str, float] | None]:
    """Milliseconds of each phase by ranks, for the plan that PyGim's search finds; None where none fits."""
    found: dict[int, dict[str, float] | None] = {}
    for ranks in RANKS:
        config = varied(base().config, "cores", base().config.cores * ranks / base().config.ranks)
        kernel = Machine(config).kernel(prior_art.PUBLISHED, DTYPE)
        plan = prior_art.pygim_search(config, shapes, WIDTH, kernel)
        if plan is None:
            found[ranks] = None
            continue
        report = Machine(config).simulate(shapes, WIDTH, plan, DTYPE)
        found[ranks] = {name: report.phases_ns[name] / 1e6 for name in _PHASES}
    return found


def rows(graph: str, by_ranks: dict[int, dict[str, float] | None]) -> list[Row]:
    """Total by ranks.

    Args:
        graph: Its name.
        by_ranks: As :func:`phases` gives it.
    """
    found = []
    for ranks, each in by_ranks.items():
        figure = f"one aggregation, {PUBLISHED}, {ranks} ranks, {graph}"
        if each is None:
            found.append(
                Row(figure=figure, unit="ms", note="No plan of the published search fits so few ranks.")
            )
            continue
        found.append(
            Row(
                figure=figure,
                ours=sum(each.values()),
                unit="ms",
                note="The paper's figures could not be read. Broadcasts grow with the ranks.",
            )
        )
    return found


def chart(graph: str, by_ranks: dict[int, dict[str, float] | None]) -> Chart:
    """Phases by ranks, side by side."""
    return Chart(
        name=f"ranks_{graph.split()[0]}",
        title=f"One aggregation by {PUBLISHED}, on 4 to 32 ranks, {graph}, width {WIDTH}, {DTYPE}",
        machine=named(base().config),
        unit="time, ms",
        groups=tuple(f"{ranks} ranks" for ranks in by_ranks),
        series=tuple(
            Series(
                label=name, values=tuple(None if each is None else each[name] for each in by_ranks.values())
            )
            for name in _PHASES
        ),
        absent="no plan fits",
    )
