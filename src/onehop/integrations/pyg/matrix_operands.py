"""Old names, until all callers use the new ones."""

from typing import Any, NamedTuple

from onehop.integrations.pyg.edges.matrix import (
    matrix_product,
    tensor_product,
)
from onehop.integrations.pyg.leave import Leave


class _Found(NamedTuple):
    graph: Any
    weight: Any
    scale: Any
    first: bool
    x: Any


def product_operands(matrix, x, sizes, reduce):
    try:
        return _Found(*matrix_product(matrix, x, reduce), x)
    except Leave as why:
        return why.sentence


def tensor_operands(matrix, x, sizes, reduce):
    try:
        return _Found(*tensor_product(matrix, x, reduce), x)
    except Leave as why:
        return why.sentence


from onehop.integrations.pyg.edges.matrix import adjacency_reason as adjacency_reason  # noqa: E402
from onehop.integrations.pyg.edges.matrix import is_adjacency as is_adjacency  # noqa: E402
