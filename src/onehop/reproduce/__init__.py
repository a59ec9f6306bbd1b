"""The figures and tables of four published works, computed here and compared with the published values.

A work is a module or a package with a function ``reproduce(quick, progress)``, which is imported when the
work is computed. A figure of a work is a function that returns rows (:func:`onehop.reproduce.tables.row`).
Published values are data at the top of the work's module, and the function that computes our values is listed
in ``reproduce``.
"""

import importlib

from onehop.errors import check_choice
from onehop.reproduce.tables import Chart, Reproduction, Row, Series
from onehop.reproduce.twins import Progress, silent

__all__ = ["WORKS", "Chart", "Reproduction", "Row", "Series", "reproduce"]

# Names on the command line, and their modules.
WORKS = {
    "pygim": "onehop.reproduce.pygim",
    "grande": "onehop.reproduce.grande",
    "io-aware": "onehop.reproduce.io_aware",
    "isplib": "onehop.reproduce.isplib",
}


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
