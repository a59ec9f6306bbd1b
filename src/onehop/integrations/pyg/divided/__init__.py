"""Functions that mix the rows of a converted model: exact over all processes, or an error.

Without a divided graph, everything here is its framework's own.
"""

from onehop.integrations.pyg.divided import functional, norms, readouts, refusals, relational
from onehop.integrations.rows import Row


def rows() -> list[Row]:
    """The table's rows."""
    return [
        *functional.rows(),
        *norms.rows(),
        *readouts.rows(),
        *refusals.rows(),
        *relational.rows(),
    ]
