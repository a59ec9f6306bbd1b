"""Old names, until all callers use the new ones."""

from typing import Any

from onehop.integrations.pyg.call import begin as begin
from onehop.integrations.pyg.layer import record_of as record_of
from onehop.integrations.pyg.leave import Leave
from onehop.integrations.pyg.propagate import aggregation_of, aggregation_over

from onehop.integrations.pyg.rules.plain import Aggregation

Task = Aggregation


def task_of(*args: Any) -> Any:
    try:
        return aggregation_of(*args)
    except Leave as why:
        return why.sentence


def task_over(*args: Any) -> Any:
    try:
        return aggregation_over(*args)
    except Leave as why:
        return why.sentence
