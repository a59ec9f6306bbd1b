"""Functions that mix the rows of a converted model: exact over all processes, or an error.

Without a divided graph, PyG's and torch's own functions run. May import ``onehop.distributed`` and the rows
of the patch, and no other room of this package.
"""

from onehop.integrations.pyg.divided import norms, refusals, relational
from onehop.integrations.rows import Row


def rows() -> list[Row]:
    """The rows of the patch table."""
    return [*norms.rows(), *refusals.rows(), *relational.rows()]
