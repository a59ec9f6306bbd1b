"""Tuned plans for this processor, as the CPU backend looks them up."""

import torch

from onehop import native
from onehop.graph import Graph
from onehop.plans import changes, store
from onehop.plans.cases import OPERATIONS as OPERATIONS, PlanCase as PlanCase, case_of as case_of
from onehop.plans.cpu import CpuPlan
from onehop.plans.entry import Tuned as Tuned
from onehop.plans.table import Found, Table

_table: Table[CpuPlan] = Table(store.machine)


def find(
    graph: Graph, operation: str, transposed: bool, width: int, dtype: torch.dtype
) -> Found[CpuPlan] | None:
    """Return the plan to use for this call; None if nothing was tuned.

    The cost is O(1) plus the graph's statistics, which are needed only if a graph of the same sizes was
    tuned. See :meth:`onehop.plans.table.Table.find` for plans with an order.
    """
    if not _table.knows((graph.num_src, graph.num_dst, graph.num_edges)):
        return None
    return _table.find(
        graph,
        (operation, transposed, width, dtype, native.threads(), native.extension.selected_isa()),
        lambda: case_of(graph, operation, transposed, width, dtype),
    )


def install(found: list[Tuned[CpuPlan]], keep: bool = True) -> None:
    """Install plans in this process and, with ``keep``, on disk for later processes."""
    _table.install(found, keep)


def known(case: PlanCase) -> Tuned[CpuPlan] | None:
    """Return the entry for exactly this case, or None."""
    return _table.known(case)


def forget() -> None:
    """Empty the table; plans on disk are read again when needed."""
    global _table
    _table = Table(store.machine)
    changes.note()
