"""The machine that is nearest to PyGim's figures of inference, over the GraNDe-like scheme and the host."""

from collections.abc import Mapping

from onehop.machines.pim import PimReport
from onehop.machines.pim.combination import KINDS, Network
from onehop.machines.pim.shapes import Shapes
from onehop.reproduce.intervals import Setting
from onehop.reproduce.nearest import Fit, Target, nearest
from onehop.reproduce.pygim import comparison, machine
from onehop.reproduce.pygim.assumptions import (
    CACHED,
    FAST_MERGE,
    FULL_LOAD,
    HOSTS,
    POWERS,
    THREAD_LABELS,
    UNKNOWNS,
    WITH_ARXIV,
    assumption,
    base,
    corners,
)
from onehop.reproduce.pygim.comparison import LAYERS, SUMMARIES, ratio
from onehop.reproduce.pygim.schemes import GRANDE, PUBLISHED, WIDTH, named, reports
from onehop.reproduce.twins import Progress, silent

_REMARK = (
    "Fitted as the prior work is the GraNDe-like scheme: the G-NMP-like one ties with the published scheme "
    "here, so no setting meets the same gain over it. The utilisation is not fitted, because neither the GPU "
    "nor the definition is known."
)
# Labels that change neither aggregations nor their reports: powers, the host's products, graphs, PyTorch.
_AFTER = {
    *(label for unknown in (*POWERS, *HOSTS) for label in unknown.others),
    *(label for unknown in UNKNOWNS if "GFLOPS" in unknown.name for label in unknown.others),
    WITH_ARXIV,
}


# What moves the figures most: a search begins at each combination of these, and moves the rest as well.
_DECISIVE = [
    each
    for each in (*UNKNOWNS, *HOSTS, *POWERS)
    if {*THREAD_LABELS.values(), FAST_MERGE, WITH_ARXIV, CACHED, FULL_LOAD} & set(each.others)
]


class Runs:
    """Aggregations of the GraNDe-like and the published scheme on all graphs, computed once per machine.

    Args:
        shapes: The shapes of the mean's graphs, by the graphs' names.
        apart: The shapes of the graph that the mean may have too.
    """

    def __init__(self, shapes: Mapping[str, Shapes], apart: Mapping[str, Shapes]) -> None:
        self._graphs = {**shapes, **apart}
        self._averaged = tuple(shapes)
        self._known: dict[Setting, dict[str, dict[str, PimReport]]] = {}

    def values(self, setting: Setting) -> tuple[float, ...]:
        """Return the figures of :func:`targets` at a setting."""
        assumed = assumption(setting)
        ran = self._reports(setting - _AFTER)
        names = tuple(self._graphs) if WITH_ARXIV in setting else self._averaged
        over_prior: dict[bool, list[float]] = {False: [], True: []}
        over_host: dict[bool, list[float]] = {False: [], True: []}
        for name in names:
            by_scheme, sized = ran[name], self._graphs[name]
            for energy in (False, True):
                for kind in KINDS:
                    network = Network(kind, sized.num_dst, WIDTH, WIDTH, WIDTH, LAYERS)
                    over_prior[energy].append(
                        ratio(by_scheme[GRANDE], by_scheme[PUBLISHED], assumed, network, energy)
                    )
                cached = CACHED in setting
                over_host[energy] += machine.host_ratios(by_scheme[PUBLISHED], sized, assumed, cached, energy)
        return tuple(
            over(ratios[energy])
            for ratios in (over_prior, over_host)
            for energy in (False, True)
            for over in SUMMARIES.values()
        )

    def _reports(self, setting: Setting) -> dict[str, dict[str, PimReport]]:
        """Return the reports of each graph; a setting has here only what changes them."""
        if setting not in self._known:
            threads = next((count for count, label in THREAD_LABELS.items() if label in setting), 1)
            self._known[setting] = {
                name: reports(assumption(setting), sized, threads, (GRANDE, PUBLISHED))
                for name, sized in self._graphs.items()
            }
        return self._known[setting]


def targets() -> list[Target]:
    """Return the published figures of inference: over the GraNDe-like scheme, then over the host."""
    return [
        Target(f"{quantity} of {whose} over {PUBLISHED}, {name}", paper, f"over {group}")
        for whose, group, papers in (
            (GRANDE, f"the {GRANDE} scheme", comparison.PAPER),
            ("PyTorch on the host", "the host", machine.PAPER),
        )
        for quantity, pair in papers.items()
        for name, paper in zip(SUMMARIES, pair, strict=True)
    ]


def search(shapes: Mapping[str, Shapes], apart: Mapping[str, Shapes], progress: Progress = silent) -> Fit:
    """Return the nearest machine.

    Args:
        shapes: The shapes of the mean's graphs, by the graphs' names.
        apart: The shapes of the graph that the mean may have too.
        progress: Called with the current step and the share that is done.
    """
    unknowns = (*UNKNOWNS, *HOSTS, *POWERS)
    title = f"{named(base().config)}, {', '.join(shapes)}"
    starts = list(corners(*(("", *unknown.others) for unknown in _DECISIVE)))
    values = Runs(shapes, apart).values
    return nearest("pygim", title, targets(), unknowns, values, starts, _REMARK, progress, len(starts))
