"""The interface of operators on the cores, and a graph part by part as the cores see it.

A row of a part belongs to one tasklet (in COO, neighbours' extrema are joined exactly), so within a part the
host's kernels make the same numbers from the same edges.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.counted import GraphShapes
from onehop.machines.pim.report import PimReport
from onehop.machines.pim.shapes import Shapes
from onehop.plans.pim import PimPlan

R = TypeVar("R", covariant=True)


class Operator(Protocol[R]):
    """An operator with its operands, or with their sizes alone, of which only the cost is known."""

    def cost(self, config: PimConfig, plan: PimPlan, shapes: Shapes) -> PimReport:
        """The report of a run. Its plan may have more rounds than the given one, if that streams.

        Raises:
            ArgumentError: The plan does not fit the machine or the operands.
            MachineMemoryError: It needs more memory than a core has.
        """
        ...

    def execute(self, config: PimConfig, plan: PimPlan, shapes: GraphShapes) -> R:
        """The result, computed as the plan of the report says."""
        ...


class Part(NamedTuple):
    """A block of columns.

    Attributes:
        graph: Its edges; sources are counted from ``first``.
        first: Its first source.
        last: One past its last.
        edges: [edges of the part], int64: their places in the caller's edge order.
    """

    graph: Graph
    first: int
    last: int
    edges: Tensor


def parts_of(plan: PimPlan, shapes: GraphShapes) -> Iterator[Part]:
    """The parts that have edges."""
    number, perm = plan.sp * plan.block_rounds, shapes.graph.perm
    cut = shapes.parts(number, plan.column_cut)
    col, origin = shapes.columns(number, plan.column_cut, True)
    assert origin is not None
    for part in range(number):
        first, last = int(cut.bounds[part]), int(cut.bounds[part + 1])
        positions = torch.from_numpy(cut.positions[part])
        begin, end = int(positions[0]), int(positions[-1])
        if begin == end:
            continue
        graph = Graph.from_csr(positions - begin, col[begin:end], last - first)
        places = origin[begin:end]
        yield Part(graph, first, last, places if perm is None else perm.long()[places])
