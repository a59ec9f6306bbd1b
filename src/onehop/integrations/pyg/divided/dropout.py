"""Dropout of a divided graph's rows: every process draws its own positions, however it was seeded."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop.distributed.dropout import dropout as own_dropout
from onehop.distributed.graph import DistributedGraph
from onehop.distributed.live import in_use, owned_and_whole
from onehop.integrations.rows import Row, stand_in


def rows() -> list[Row]:
    """The table's rows."""
    functional = torch.nn.functional
    return [Row(functional, "dropout", _by_rank(functional.dropout), functional.dropout)]


def _by_rank(theirs: Callable[..., Any]) -> Callable[..., Any]:
    used, ours = in_use, _dropout

    def dropout(input, p=0.5, training=True, inplace=False):  # type: ignore[no-untyped-def]
        if training and used():
            return ours(theirs, input, p, inplace)
        return theirs(input, p, training, inplace)

    return stand_in(theirs, dropout)


def _rows_of(graph: DistributedGraph) -> tuple[int, ...]:
    return (*(owned for owned, _ in owned_and_whole(graph)), graph.num_edges)


def _dropout(theirs: Callable[..., Any], x: Tensor, p: float, inplace: bool) -> Tensor:
    rows = x.size(0) if x.dim() else -1
    graph = next((each for each in in_use() if rows in _rows_of(each)), None)
    if graph is None or not 0 < p <= 1:
        dropped: Tensor = theirs(x, p, True, inplace)
        return dropped
    out = own_dropout(x, p, graph.rank)
    return x.copy_(out) if inplace else out
