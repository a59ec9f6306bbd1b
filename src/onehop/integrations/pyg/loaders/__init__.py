"""PyG's loaders, which draw with onehop's sampler and divide with its partition.

May import ``onehop.loaders``, the rows of the patch, the session and refusals, and no other room of this
package.
"""

from onehop.integrations.pyg.loaders import graph_batches, hgt, neighbours, saint
from onehop.integrations.rows import Row


def rows() -> list[Row]:
    """The rows of the patch table."""
    return [*neighbours.rows(), *hgt.rows(), *saint.rows(), *graph_batches.rows()]
