"""The interface of an operator on the cores."""

from typing import Protocol, TypeVar

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

        Args:
            config: The machine.
            plan: The plan.
            shapes: The work of each core and tasklet.

        Raises:
            ArgumentError: The plan does not fit the machine or the operands.
            MachineMemoryError: It needs more memory than a core has.
        """
        ...

    def execute(self, config: PimConfig, plan: PimPlan, shapes: GraphShapes) -> R:
        """The result, computed as the plan of the report says.

        Args:
            config: The machine.
            plan: The plan.
            shapes: The graph's counts.
        """
        ...
