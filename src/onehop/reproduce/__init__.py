"""The figures and tables of four published works, computed here and compared with the published values.

A work is a module or a package with a function ``reproduce(quick, progress)``, which is imported when the
work is computed. A work with a simulator has a function ``fit(quick, progress)`` too. A figure of a work is a
function that returns rows (:func:`onehop.reproduce.tables.row`). Published values are data at the top of the
work's modules, and the function that computes our values is listed in ``reproduce``.
"""

import importlib
from pathlib import Path

from onehop.errors import ArgumentError, check_choice
from onehop.reproduce.nearest import Fit
from onehop.reproduce.tables import Chart, Reproduction, Row, Series
from onehop.reproduce.twins import Progress, silent

__all__ = [
    "FITTED",
    "ON_GPU",
    "WORKS",
    "Chart",
    "Fit",
    "Reproduction",
    "Row",
    "Series",
    "fit",
    "on_a_gpu",
    "reproduce",
]

# Names on the command line, and their modules.
WORKS = {
    "pygim": "onehop.reproduce.pygim",
    "grande": "onehop.reproduce.grande",
    "io-aware": "onehop.reproduce.io_aware",
    "isplib": "onehop.reproduce.isplib",
}


# Works with a simulator, whose nearest configuration can be searched.
FITTED = ("pygim", "grande")
# The work whose times need a GPU.
ON_GPU = "io-aware"


def fit(work: str, quick: bool = False, progress: Progress = silent) -> Fit:
    """Return the one configuration of a work's machine that is nearest to all its headline figures.

    Args:
        work: One of :data:`FITTED`.
        quick: Use smaller graphs.
        progress: Called with the current step, and the share that is done, 0 to 1.

    Raises:
        ArgumentError: The work is unknown, or has no simulator.
    """
    check_choice("work", work, WORKS)
    if work not in FITTED:
        raise ArgumentError(
            f"work: {work} has no simulator, so no configuration can be fitted; expected one of "
            f"{', '.join(FITTED)}."
        )
    result: Fit = importlib.import_module(WORKS[work]).fit(quick, progress)
    return result


def on_a_gpu(path: Path) -> Reproduction:
    """Return the rows of the IO-aware kernels' times from the results of ``make gpu``.

    Args:
        path: The file that ``make gpu`` writes, build/gpu/gpu.json.

    Raises:
        OSError: The file cannot be read.
        ArgumentError: The file is not a result of ``make gpu``.
    """
    result: Reproduction = importlib.import_module(WORKS[ON_GPU]).on_a_gpu(path)
    return result


def reproduce(work: str, quick: bool = False, progress: Progress = silent) -> Reproduction:
    """Compute all figures of a work that can be computed here.

    Args:
        work: A key of :data:`WORKS`.
        quick: Use smaller graphs and fewer rounds: minutes instead of an hour.
        progress: Called with the current step, and the share that is done, 0 to 1.

    Raises:
        ArgumentError: The work is unknown.
    """
    check_choice("work", work, WORKS)
    result: Reproduction = importlib.import_module(WORKS[work]).reproduce(quick, progress)
    return result
