"""IO-aware kernels for GNN layers: figures that can be computed without a GPU, and a list of the others."""

from pathlib import Path

from onehop.bench.peers.base import import_reason
from onehop.reproduce.io_aware import counted, layers, memory, on_gpu, reordering
from onehop.reproduce.tables import Chart, Reproduction, row
from onehop.reproduce.twins import Progress, part, silent

_SOURCE = (
    "On efficient scaling of GNNs (turbo-gnn), ICML 2026, arXiv 2605.31500. Its body, appendices and most "
    "tables of absolute times could be read. All its figures are of an A100."
)


def reproduce(quick: bool, progress: Progress = silent) -> Reproduction:
    """Compute the IO-aware kernels' figures; with ``quick``, on small graphs, in three rounds."""
    reordered, picture = reordering.measured(quick, part(progress, 0.0, 0.5))
    rows = [*on_gpu.headlines(), *memory.savings(), *memory.memory(), *counted.times(), *reordered]
    charts: tuple[Chart, ...] = (*memory.charts(), picture)
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


def on_a_gpu(path: Path) -> Reproduction:
    """Return the rows of times that need a GPU, from the results of ``make gpu``.

    Args:
        path: The file that ``make gpu`` writes, build/gpu/gpu.json.

    Raises:
        OSError: The file cannot be read.
        ArgumentError: The file is not a result of ``make gpu``.
    """
    rows = tuple(on_gpu.headlines(on_gpu.results(path)))
    return Reproduction(work="io-aware", source=_SOURCE, rows=rows)
