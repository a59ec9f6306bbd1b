"""What mixes the rows of a converted model: exact over all processes, or an error.

Without a divided graph, everything here is its framework's own.
"""

from onehop.integrations.pyg.divided import batch_norm, dropout, norms, readouts, refusals, relational
from onehop.integrations.rows import Row


def rows() -> list[Row]:
    """The table's rows."""
    return [
        *batch_norm.rows(),
        *norms.rows(),
        *readouts.rows(),
        *refusals.rows(),
        *dropout.rows(),
        *relational.rows(),
    ]
