"""iSpLib: training epochs of PyG's models on a CPU, and the width at which generated kernels gain most.

Each published ratio names a model and a release of PyG or PyTorch, but neither the graph nor the baseline of
iSpLib's scripts. So each ratio of a model is compared with all baselines that can be measured here, and the
interval is their range; a published best is compared with our best.
"""

from collections.abc import Sequence
from typing import NamedTuple

from onehop.bench.models import ModelResult
from onehop.bench.peers.base import import_reason
from onehop.bench.stamp import versions
from onehop.bench.variants import ISPLIB, PYG, TORCH_CSR
from onehop.reproduce.intervals import Interval, Unknown
from onehop.reproduce.isplib import curve, epochs
from onehop.reproduce.tables import Reproduction, Row, row
from onehop.reproduce.twins import Progress, part, silent

_SOURCE = (
    "M. S. H. Anik et al., iSpLib, short paper at the Web Conference 2024 (arXiv 2403.14853): its abstract, "
    "and its author's account of the whole work."
)


_GRAPHS = tuple(twin.name for twin in epochs.TWINS)


class Published(NamedTuple):
    """A published ratio of times of a training epoch.

    figure: The figure's name.
        figure: Its name.
        paper: The published value.
        models: The models that the ratio may refer to.
        graphs: The twins of the graphs that the ratio may refer to.
        over: The baselines that the ratio may refer to; empty means all of iSpLib's scripts.
    """

    figure: str
    paper: float
    models: tuple[str, ...]
    graphs: tuple[str, ...] = _GRAPHS
    over: tuple[str, ...] = ()


_UNKNOWNS = (
    Unknown(
        "the graph",
        "the graph of the largest ratio",
        (),
        "the graphs of iSpLib's scripts; the source names none",
        "the graph of each published ratio",
    ),
    Unknown(
        "the baseline",
        "the baseline of the largest ratio",
        (),
        "the baselines of iSpLib's scripts; the source names none",
        "the baseline of each published ratio",
    ),
)
_DECIDES = (
    "To decide it, one needs the graph and the baseline of the published ratio, and iSpLib itself beside "
    "them in the same run."
)
_EPOCH = "training epoch over PyG 2.4"
PUBLISHED = (
    Published(f"{_EPOCH}, GCN", 54.0, ("gcn",)),
    Published(f"{_EPOCH}, GraphSAGE, sum", 32.0, ("sage-sum",)),
    Published(f"{_EPOCH}, GraphSAGE, mean", 23.0, ("sage",)),
    Published(f"{_EPOCH}, GIN", 51.0, ("gin",)),
    Published(
        "training epoch over PyTorch 2.1, GCN on large graphs, best",
        93.0,
        ("gcn",),
        ("reddit", "proteins"),
        (PYG.name, TORCH_CSR.name),
    ),
    Published("training epoch over PyTorch 2.1 and PyG 2.4, best", 27.0, epochs.MODELS),
)


def reproduce(quick: bool, progress: Progress = silent) -> Reproduction:
    """Compute the figures of iSpLib; with ``quick``, on smaller twins and without ``torch.compile``."""
    widths = curve.measured(quick, part(progress, 0.9, 1.0))
    rows, charts = curve.rows(widths), curve.charts(widths)
    reason = import_reason("torch_geometric")
    if reason is None:
        results = epochs.measured(quick, part(progress, 0.0, 0.9))
        headlines = [headline(each, results) for each in PUBLISHED]
        rows = [*headlines, *rows, over_isplib(results), *epochs.rows(results)]
        charts = (*epochs.charts(results), *charts)
    else:
        note = f"Needs PyG: {reason}."
        rows += [row(each.figure, "x", note, paper=each.paper, headline=True) for each in PUBLISHED]
    return Reproduction(work="isplib", source=_SOURCE, rows=tuple(rows), charts=charts)


def headline(published: Published, results: Sequence[ModelResult]) -> Row:
    """Return a published ratio with the largest of ours that it may refer to.

    The interval of a model's ratio is the range of all that it may refer to. A published best is compared
    with our best alone, within the quartiles of its rounds.
    """
    ours = sorted(
        (
            (ratio.median, f"{one.model} over {name} on the {one.graph}", ratio)
            for one in results
            if one.model in published.models and one.graph.split(" ")[0] in published.graphs
            for name in one.times
            if name in (published.over or epochs.BASELINES) and (ratio := one.speedup(name)) is not None
        ),
        key=lambda each: each[:2],
        reverse=True,
    )
    if not ours:
        return row(published.figure, "x", "Nothing was timed.", paper=published.paper, headline=True)
    best, name, ratio = ours[0]
    least, least_name, _ = ours[-1]
    note = (
        f"The largest of {len(ours)}: {name}, here on {epochs.threads()}. Ours is onehop, not iSpLib, over "
        f"PyG {_version('torch_geometric')} and torch {_version('torch')}."
    )
    spanned = Interval(best, least, best, least_name, name)
    if published.figure.endswith("best"):
        quartiles = ("the lower quartile of the rounds", "the upper quartile of the rounds")
        spanned = Interval(best, ratio.lower_quartile, ratio.upper_quartile, *quartiles)
    absent = sorted({name for one in results for name in one.skipped} & set(epochs.BASELINES))
    otherwise = (
        f"For {published.paper:g}, the author's processor would have to speed up iSpLib's kernels more than "
        f"the baseline's beyond {epochs.threads()}"
        if best < published.paper
        else f"For {published.paper:g}, the baseline would have to be faster than the ones here"
    )
    if absent:
        otherwise += f", or the baseline be one that was not timed here ({', '.join(absent)})"
    return row(
        published.figure,
        "x",
        note,
        spanned,
        published.paper,
        headline=True,
        otherwise=f"{otherwise}.",
        decides=_DECIDES,
        unknowns=_UNKNOWNS,
    )


def _version(package: str) -> str:
    return versions()[package] or "unknown"


def over_isplib(results: Sequence[ModelResult]) -> Row:
    """Return iSpLib's own time divided by ours, if it can be imported; it depends least on the host."""
    figure = "iSpLib's training epoch over ours"
    ratios = [ratio.median for one in results if (ratio := one.speedup(ISPLIB.name)) is not None]
    if not ratios:
        return row(figure, "x", f"Needs iSpLib: {ISPLIB.available() or 'its losses differ'}.")
    ratios.sort()
    middle = ratios[len(ratios) // 2]
    return row(figure, "x", f"The middle of {len(ratios)}, and their range.", [middle, *ratios])
