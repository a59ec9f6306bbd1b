"""Dropout, which a model that was not converted would draw alike on processes that were seeded alike."""

from collections.abc import Callable
from typing import Any

import torch

from onehop.distributed.converted import may_be_divided, processes_of
from onehop.integrations.rows import Row, stand_in


def rows() -> list[Row]:
    """The table's rows."""
    functional = torch.nn.functional
    return [Row(functional, "dropout", _converted(functional.dropout), functional.dropout)]


def _converted(theirs: Callable[..., Any]) -> Callable[..., Any]:
    divided, check = may_be_divided, processes_of

    def dropout(input, p=0.5, training=True, inplace=False):  # type: ignore[no-untyped-def]
        if training and p and divided():
            check("dropout")
        return theirs(input, p, training, inplace)

    return stand_in(theirs, dropout)
