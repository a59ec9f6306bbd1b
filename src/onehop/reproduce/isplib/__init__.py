"""iSpLib: training epochs of PyG's models on a CPU."""

from onehop.bench.peers.base import import_reason
from onehop.bench.variants import ISPLIB
from onehop.reproduce.isplib import epochs
from onehop.reproduce.progress import Progress, silent
from onehop.reproduce.rows import Reproduction, Row, missing

_SOURCE = (
    "M. S. H. Anik et al., iSpLib, short paper at the Web Conference 2024 (arXiv 2403.14853). Its abstract "
    "could be read; its figures by data set could not."
)
_PAPER_BEST = 27.0


def reproduce(quick: bool, progress: Progress = silent) -> Reproduction:
    """Computes the figures of iSpLib.

    Args:
        quick: Use parts of the twins, one width and three rounds.
        progress: Told how far it is.
    """
    best = "training epoch over PyG, best"
    reason = import_reason("torch_geometric")
    if reason is not None:
        row = missing(best, "x", _PAPER_BEST, f"Needs PyG: {reason}.")
        return Reproduction(work="isplib", source=_SOURCE, rows=(row,))
    found = epochs.measured(quick, progress)
    timed = [one for one in found if one.over_pyg is not None]
    fastest = max((one.over_pyg.median for one in timed if one.over_pyg is not None), default=None)
    headline = Row(
        figure=best,
        paper=_PAPER_BEST,
        ours=fastest,
        unit="x",
        note="The paper's is over PyTorch 2.1.0 and PyG 2.4.0 on its processors; ours is the best below.",
    )
    absent = ISPLIB.available()
    beside = missing(
        "iSpLib's training epoch over ours",
        "x",
        None,
        "`onehop bench models --peers pyg-isplib` measures it."
        if absent is None
        else f"Needs iSpLib: {absent}.",
    )
    return Reproduction(
        work="isplib",
        source=_SOURCE,
        rows=(headline, *epochs.rows(found), beside),
        charts=epochs.charts(found),
    )
