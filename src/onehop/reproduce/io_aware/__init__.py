"""IO-aware kernels for GNN layers: figures that can be computed without a GPU, and a list of the others."""

from onehop.bench.peers.base import import_reason
from onehop.reproduce.io_aware import counted, layers, reordering
from onehop.reproduce.tables import Chart, Reproduction, row
from onehop.reproduce.twins import Progress, part, silent

_SOURCE = (
    "On efficient scaling of GNNs (turbo-gnn), ICML 2026, arXiv 2605.31500. Its body, appendices and most "
    "tables of absolute times could be read. All its figures are of an A100."
)


def reproduce(quick: bool, progress: Progress = silent) -> Reproduction:
    """Compute the IO-aware kernels' figures; with ``quick``, on small graphs, in three rounds."""
    reordered, picture = reordering.measured(quick, part(progress, 0.0, 0.5))
    rows = [*counted.headlines(), *counted.savings(), *counted.memory(), *counted.times(), *reordered]
    charts: tuple[Chart, ...] = (*counted.charts(), picture)
    reason = import_reason("torch_geometric")
    if reason is None:
        progress("bytes kept for gradients", 0.5)
        rows += layers.memory()
        timed = layers.measured(quick, part(progress, 0.6, 1.0))
        rows += layers.rows(timed)
        charts += layers.charts(timed)
    else:
        rows.append(row("layers over PyG on this processor", "x", f"Needs PyG: {reason}."))
    return Reproduction(work="io-aware", source=_SOURCE, rows=tuple(rows), charts=charts)
