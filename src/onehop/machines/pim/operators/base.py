"""The interface of operators on the cores, and the parts of a graph as the cores see them.

A row of a part belongs to one tasklet (in COO, extrema of neighbouring tasklets are joined exactly). So
within a part, the host's kernels compute the same numbers from the same edges.
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
    """An operator with its operands; or with their sizes only, in which case only the cost is known."""

    def cost(self, config: PimConfig, plan: PimPlan, shapes: Shapes) -> PimReport:
        """Return the report of a run; its plan may have more rounds than the given one, if that streams.

        Raises:
            ArgumentError: The plan does not fit the machine or the operands.
            MachineMemoryError: The operator needs more memory than a core has.
        """
        ...

    def execute(self, config: PimConfig, plan: PimPlan, shapes: GraphShapes) -> R:
        """Return the result, computed as the report's plan says."""
        ...


class Part(NamedTuple):
    """A block of columns of the graph.

    Attributes:
        graph: The block's edges; sources are counted from ``first``.
        first: The first source.
        last: One past the last source.
        edges: [edges of the part], int64: the edges' positions in the caller's edge order.
    """

    graph: Graph
    first: int
    last: int
    edges: Tensor


def parts_of(plan: PimPlan, shapes: GraphShapes) -> Iterator[Part]:
    """Yield the parts that have edges."""
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
