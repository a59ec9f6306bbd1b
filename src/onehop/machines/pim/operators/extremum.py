"""Max and min on the cores: cores compare values instead of adding them."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from onehop import calls
from onehop.graph import Graph
from onehop.kernels.cpu.extremum import PreparedExtremum
from onehop.machines.common.operands import Operands
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel
from onehop.machines.pim.counted import GraphShapes
from onehop.machines.pim.numbers import NAMES, multiply_bits
from onehop.machines.pim.operators.base import parts_of
from onehop.machines.pim.operators.operands import checked
from onehop.machines.pim.operators.rows import Rows
from onehop.plans import CpuPlan
from onehop.plans.pim import PimPlan


@dataclass(frozen=True, slots=True)
class Extremum(Rows):
    """Max or min over each row's edges.

    Attributes:
        call: The call, with CPU tensors of float32 or float64; ties are not counted.
    """

    call: calls.Extremum

    @staticmethod
    def refuse(config: PimConfig, dtype: torch.dtype, machine_dtype: str | None) -> str | None:
        """Return why a machine does not support max and min of this dtype, as :meth:`.Sum.refuse` does."""
        name = NAMES.get(dtype)
        if name is None or not dtype.is_floating_point:
            return f"has max, min and attention of float32 and float64, not of {dtype}"
        if machine_dtype not in (None, name):
            return f"has sums alone of {machine_dtype}: max, min and attention run on floats as they are"
        if name not in config.functions:
            return f"has no max, min and attention of {name}: {config.name} gives no functions for it"
        return None

    @classmethod
    def of(cls, graph: Graph, call: calls.Extremum) -> "Extremum":
        """Return the operator for a call.

        Raises:
            ArgumentError: A shape or dtype does not fit.
        """
        weight, dtype = call.weight, NAMES[call.x.dtype]
        x = checked(graph, Operands(call.x, weight)).x
        bits = 1.0 if weight is None else multiply_bits(x, weight)
        kernel = Kernel(dtype, dtype, weight is not None, bits, True, call.adds)
        return cls(kernel, x.size(1), call._replace(x=x))

    @property
    def searched(self) -> Kernel:
        """The kernel without its data, used to search for plans; the next call can then reuse the plan."""
        return replace(self.kernel, value_bits=1.0)

    @torch.no_grad()
    def execute(self, config: PimConfig, plan: PimPlan, shapes: GraphShapes) -> Tensor:
        """Return the result [num_dst, F], 0 for rows without edges; see :class:`.base.Operator`."""
        call = self.call
        none = -torch.inf if call.reduce == "max" else torch.inf
        joined = torch.full((shapes.num_dst, self.width), none, dtype=call.x.dtype, device="cpu")
        join = torch.maximum if call.reduce == "max" else torch.minimum
        for part in parts_of(plan, shapes) if call.x.numel() else ():
            part_call = call._replace(
                x=call.x[part.first : part.last].contiguous(),
                weight=None if call.weight is None else call.weight[part.edges],
                graph=part.graph.number,
                edges=part.graph.num_edges,
                with_ties=False,
            )
            extrema = PreparedExtremum(part.graph, CpuPlan(), part_call).run(part_call)[0]
            filled = part.graph.in_degrees > 0
            joined[filled] = join(joined[filled], extrema[filled].to(joined.dtype))
        return joined.masked_fill_((shapes.graph.in_degrees == 0).unsqueeze(1), 0)
