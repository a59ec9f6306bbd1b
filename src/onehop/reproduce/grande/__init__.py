"""GraNDe: near-rank aggregation, on twins of the paper's graphs."""

from onehop.reproduce.grande import clock, retiling, shares, sizes, speedups
from onehop.reproduce.grande.graphs import TWINS, loaded
from onehop.reproduce.progress import Progress, part, silent
from onehop.reproduce.rows import Reproduction, Row

_SOURCE = (
    "S. Yun et al., GraNDe, IEEE Transactions on Computers 73(10), 2024. Sections 1 to 6, 10 and 11 could be "
    "read; the set-up, the results by graph, area and energy could not."
)


def reproduce(quick: bool, progress: Progress = silent) -> Reproduction:
    """Computes the figures of GraNDe.

    Args:
        quick: Use parts of the twins.
        progress: Told how far it is.
    """
    runs: list[speedups.Run] = []
    tiled: list[Row] = []
    bytes_held: list[Row] = []
    by_clock: list[Row] = []
    for number, twin in enumerate(TWINS):
        begin, end = number / len(TWINS), (number + 0.5) / len(TWINS)
        graph = loaded(twin, quick, part(progress, begin, end))
        progress(f"{twin.name}: aggregation", end)
        runs += speedups.measured(twin, graph)
        tiled += retiling.rows(twin, graph, quick)
        bytes_held += sizes.rows(twin, graph, quick)
        by_clock += clock.rows(twin, graph, quick)
    rows = (*speedups.rows(runs, quick), *tiled, *by_clock, *bytes_held, *shares.rows())
    return Reproduction(work="grande", source=_SOURCE, rows=rows, charts=speedups.charts(runs, quick))
