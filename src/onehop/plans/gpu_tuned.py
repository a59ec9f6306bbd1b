"""Tuned GPU plans, as the Triton backend looks them up: one table for each kind of GPU."""

from typing import Any

import torch

from onehop.graph import Graph
from onehop.plans.cases import GpuCase, gpu_case_of, size_class
from onehop.plans.entry import Tuned
from onehop.plans.table import Found, Table
from onehop.plans.triton import TritonPlan

_tables: dict[str, Table[TritonPlan]] = {}


def find(
    graph: Graph,
    operation: str,
    transposed: bool,
    width: int,
    heads: int,
    dtype: torch.dtype,
    machine: dict[str, Any],
) -> Found[TritonPlan] | None:
    """Return the plan to use for this call; None if nothing was tuned.

    The cost is O(1) plus the graph's statistics, which are needed only if a graph of these sizes was tuned.

    Args:
        graph: The graph; plans for graphs of its shape class are found.
        operation: One of :data:`onehop.plans.cases.GPU_OPERATIONS`.
        transposed: Whether rows are sources.
        width: Number of columns of all heads together.
        heads: Number of heads that share the columns.
        dtype: Dtype of the features.
        machine: The properties of the GPU that identify its file; "gpu" is its name.
    """
    table = _table_of(machine)
    if not table.knows(size_class(graph)):
        return None
    return table.find(
        graph,
        (operation, transposed, width, heads, dtype),
        lambda: gpu_case_of(graph, operation, transposed, width, heads, dtype, machine["gpu"]),
    )


def install(found: list[Tuned[TritonPlan]], machine: dict[str, Any], keep: bool = True) -> None:
    """Install plans in this process and, with ``keep``, on disk for later processes."""
    _table_of(machine).install(found, keep)


def known(case: GpuCase, machine: dict[str, Any]) -> Tuned[TritonPlan] | None:
    """Return the entry for exactly this case, or None."""
    return _table_of(machine).known(case)


def forget() -> None:
    """Empty the tables; plans on disk are read again when needed."""
    _tables.clear()


def _table_of(machine: dict[str, Any]) -> Table[TritonPlan]:
    table = _tables.get(machine["gpu"])
    if table is None:
        table = _tables.setdefault(machine["gpu"], Table(lambda: machine))
    return table
