"""PyG's loaders under the patch: they draw with onehop's sampler and divide with its partition.

This package imports only ``onehop.loaders``, the rows of the patch, the session, refusals and
:mod:`..operators`, and no other part of :mod:`onehop.integrations.pyg`.
"""

from onehop.integrations.pyg.loaders import (
    draws,
    epochs,
    graph_batches,
    hgt,
    merging,
    neighbours,
    saint,
    shadow,
)
from onehop.integrations.pyg.operators import register
from onehop.integrations.rows import Row

_WITH_ROWS = (neighbours, epochs, hgt, saint, shadow, graph_batches)


def rows() -> list[Row]:
    """Return the rows of the patch table; register the operators that draw."""
    register([*draws.OPERATORS, *merging.OPERATORS])
    return [row for module in _WITH_ROWS for row in module.rows()]
