"""A simulated near-bank machine: aggregates exactly as a plan says, and reports the simulated time."""

import weakref
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from onehop import calls
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.machines.base import AttentionSize
from onehop.machines.common.checks import check_integer
from onehop.machines.common.operands import Operands
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel
from onehop.machines.pim.counted import GraphShapes
from onehop.machines.pim.numbers import NAMES
from onehop.machines.pim.operators import Attention, Extremum, Operator, Rows, Sum
from onehop.machines.pim.operators.operands import checked
from onehop.machines.pim.presets import upmem_v1a
from onehop.machines.pim.report import PimReport
from onehop.machines.pim.search import candidates, default_plan, ranked
from onehop.machines.pim.shapes import BalancedShapes, Shapes
from onehop.plans.pim import PimPlan

R = TypeVar("R")


class Machine:
    """A near-bank machine.

    Args:
        config: The machine's configuration; None means :func:`upmem_v1a`.
        plan: The plan for aggregations that give none; None means that :meth:`plan` makes one for each graph,
            width and dtype.
        dtype: Dtype of the features inside the machine if the plan names none; None means unchanged. An
            integer dtype means that float features are quantised.
        tune: Whether to search for a plan when a graph, width and dtype is first used. The search takes
            hundredths of a second and a pass over the edges for each way to cut them. False means the plan
            that is best if the work is perfectly balanced.

    Examples:
        >>> import onehop, torch
        >>> from onehop.machines import pim
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]))  # 0->1, 0->2, 1->2
        >>> machine = pim.Machine(pim.upmem_v1a())
        >>> out, report = machine.aggregate(graph, torch.tensor([[1.0], [10.0], [5.0]]))
        >>> out.flatten().tolist()
        [0.0, 1.0, 11.0]
        >>> list(report.phases_ns)  # print(report) shows the times, bytes and energies
        ['send', 'broadcast', 'kernel', 'retrieve', 'merge']
    """

    def __init__(
        self,
        config: PimConfig | None = None,
        plan: PimPlan | None = None,
        dtype: str | None = None,
        tune: bool = True,
    ) -> None:
        self.config = upmem_v1a() if config is None else config
        self._plan = plan
        self._dtype = dtype
        self._tune = tune
        self._tuned: weakref.WeakKeyDictionary[Graph, dict[tuple[int, Kernel], PimPlan]] = (
            weakref.WeakKeyDictionary()
        )
        self._attending: weakref.WeakKeyDictionary[Graph, dict[AttentionSize, PimPlan | None]] = (
            weakref.WeakKeyDictionary()
        )
        self._shapes: weakref.WeakKeyDictionary[Graph, GraphShapes] = weakref.WeakKeyDictionary()
        for name in {dtype, plan.dtype if plan is not None else None} - {None}:
            self._check_dtype(str(name))

    @property
    def name(self) -> str:
        """Name of the configuration."""
        return self.config.name

    def describe(self) -> str:
        """Return one line that describes the machine."""
        c = self.config
        kind = "estimated near-bank machine" if c.estimate else "near-bank machine"
        return f"simulated {kind} {c.name}: {c.cores} cores in {c.ranks} ranks at {c.core.clock_mhz:g} MHz"

    def refuse(self, dtype: torch.dtype) -> str | None:
        """Return why the machine cannot aggregate features of this dtype, or None if it can."""
        return Sum.refuse(self.config, dtype, self._machine_dtype)

    @property
    def _machine_dtype(self) -> str | None:
        """Dtype of features in the machine if no plan is given; None means their own dtype."""
        return self._dtype if self._plan is None or self._plan.dtype is None else self._plan.dtype

    def shapes(self, graph: Graph) -> GraphShapes:
        """Return the work of cores and tasklets for a graph; it is kept with the graph."""
        shapes = self._shapes.get(graph)
        if shapes is None:
            shapes = self._shapes[graph] = GraphShapes(graph)
        return shapes

    def plan(self, graph: Graph, width: int, dtype: str = "float32", weighted: bool = False) -> PimPlan:
        """Return the plan for a graph if none is given: the tuner's plan, or the default if tuning is off.

        The plan streams if the sums need more memory than the search assumed. Plans are kept with the graph.

        Args:
            graph: The graph.
            width: Feature columns.
            dtype: Dtype of the features in the machine.
            weighted: Whether edges have weights.

        Raises:
            ArgumentError: The width is not an integer of at least 1, or the machine lacks the dtype.
        """
        return self._plan_for(graph, width, self.kernel(PimPlan(), dtype, weighted))

    def _plan_for(self, graph: Graph, width: int, kernel: Kernel) -> PimPlan:
        check_integer("width", width)
        if not self._tune:
            return self._default(graph, width, kernel)
        tuned, key = self._tuned.setdefault(graph, {}), (width, kernel)
        if key not in tuned:
            plans = candidates(self.config, PimPlan())
            order = ranked(self.config, self.shapes(graph), width, kernel, plans)
            # If nothing fits at once, use the default plan, which streams.
            tuned[key] = replace(order[0][0], stream=True) if order else self._default(graph, width, kernel)
        return tuned[key]

    def _default(self, sized: Graph | Shapes, width: int, kernel: Kernel) -> PimPlan:
        size = BalancedShapes(sized.num_src, sized.num_dst, sized.num_edges)
        return default_plan(self.config, size, width, kernel)

    def default_plan(
        self, graph: Graph, width: int, dtype: str = "float32", weighted: bool = False
    ) -> PimPlan:
        """Return the plan with the best grid for perfectly balanced work, from the graph's size only.

        The arguments and errors are the same as for :meth:`plan`.
        """
        check_integer("width", width)
        return self._default(graph, width, self.kernel(PimPlan(), dtype, weighted))

    def kernel(
        self, plan: PimPlan, dtype: str, weighted: bool = False, sums: str | None = None, bits: float = 1.0
    ) -> Kernel:
        """Return the kernel of a plan; without data, sums of int8 and int16 are assumed to be int32."""
        self._check_dtype(dtype)
        if sums is None:
            sums = plan.accumulator or ("int32" if dtype in ("int8", "int16") else dtype)
        self._check_dtype(sums)
        return Kernel(dtype, sums, weighted or not plan.unit_weights, bits)

    def simulate(
        self,
        graph: Graph | Shapes,
        width: int,
        plan: PimPlan | None = None,
        dtype: str = "float32",
        weighted: bool = False,
    ) -> PimReport:
        """Simulate an aggregation without computing its result.

        Args:
            graph: A graph; or only its size as :class:`BalancedShapes`, which assumes perfectly balanced work
                and needs no arrays.
            width: Feature columns.
            plan: The plan. None means the machine's own plan, or :meth:`plan`; for a size, the default plan.
            dtype: Dtype of the features in the machine, if the plan names none.
            weighted: Whether edges have weights.

        Raises:
            ArgumentError: The width is not an integer of at least 1, or the plan does not fit the width or
                the machine.
            MachineMemoryError: The plan needs more memory than a core has.
        """
        check_integer("width", width)
        shapes = self.shapes(graph) if isinstance(graph, Graph) else graph
        if plan is None:
            plan = self._plan
        if plan is None and isinstance(graph, Graph):
            plan = self.plan(graph, width, self._dtype or dtype, weighted)
        if plan is None:
            plan = self._default(shapes, width, self.kernel(PimPlan(), self._dtype or dtype, weighted))
        kernel = self.kernel(plan, plan.dtype or self._dtype or dtype, weighted)
        return Rows(kernel, width).cost(self.config, plan, shapes)

    def aggregate(
        self,
        graph: Graph,
        x: Tensor,
        plan: PimPlan | None = None,
        *,
        weight: Tensor | None = None,
        reduce: str = "sum",
        src_scale: Tensor | None = None,
        dst_scale: Tensor | None = None,
    ) -> tuple[Tensor, PimReport]:
        """Aggregates features over a graph, as :func:`onehop.aggregate` does.

        The host computes scales, the division of means and quantisation, as it computes the dense half of a
        layer.

        Args:
            graph: The graph.
            x: [num_src, F], on the CPU: int8, int16, int32, int64, float32 or float64.
            plan: The plan. None means the machine's own plan, or :meth:`plan`.
            weight: [E], in the caller's edge order, of the dtype of x; None means 1.
            reduce: "sum" or "mean".
            src_scale: [num_src], for float features only; None means 1.
            dst_scale: [num_dst], for float features only; None means 1.

        Returns:
            [num_dst, F], in the dtype of x, and the report. For integer features, sums have the accumulator's
            dtype and means are float32.

        Raises:
            ArgumentError: A shape, dtype or plan does not fit, or sums could overflow.
            MachineMemoryError: The plan needs more memory than a core has.
        """
        inputs = checked(graph, Operands(x, weight, reduce, src_scale, dst_scale))
        chosen = plan if plan is not None else self._plan
        dtype = (chosen.dtype if chosen is not None else None) or self._dtype or NAMES[x.dtype]
        self._check_dtype(dtype)
        if chosen is None:
            # Without columns, any plan works.
            chosen = self.plan(graph, max(x.size(1), 1), dtype, weight is not None)
        return self._run(Sum.of(graph, inputs, chosen, dtype), graph, chosen)

    def refuse_extremum(self, dtype: torch.dtype) -> str | None:
        """Return why max and min of features of this dtype are not supported, or None if they are."""
        return Extremum.refuse(self.config, dtype, self._machine_dtype)

    def refuse_attention(self, graph: Graph, size: AttentionSize) -> str | None:
        """Return why the machine cannot run this attention over a graph, or None if it can."""
        reason = Attention.refuse(self.config, size, self._machine_dtype)
        if reason is not None:
            return reason
        if self._attention_plan(graph, size) is None:
            return (
                f"has no room for this attention: {size.heads} heads of {size.width} columns over "
                f"{graph.num_edges} edges fit the memories of its cores under no plan"
            )
        return None

    def extremum(
        self, graph: Graph, call: calls.Extremum, plan: PimPlan | None = None
    ) -> tuple[Tensor, PimReport]:
        """Compute max or min over each row's edges; the cores compare instead of adding.

        Args:
            graph: The graph.
            call: The call, with CPU tensors of float32 or float64; ties are not counted.
            plan: The plan. None means the machine's own plan, or the tuner's.

        Returns:
            [num_dst, F], 0 for rows without edges; and the report.

        Raises:
            ArgumentError: The machine refuses the call, or the plan does not fit.
            MachineMemoryError: The plan needs more memory than a core has.
        """
        reason = self.refuse_extremum(call.x.dtype)
        if reason is not None:
            raise ArgumentError(f"x: {self.name} {reason}.")
        operator = Extremum.of(graph, call)
        chosen = plan if plan is not None else self._plan
        if chosen is None:
            chosen = self._plan_for(graph, max(operator.width, 1), operator.searched)
        return self._run(operator, graph, chosen)

    def attention(
        self, graph: Graph, call: calls.Attention, plan: PimPlan | None = None
    ) -> tuple[tuple[Tensor, Tensor], PimReport]:
        """Compute attention over each row's edges: scores, softmax and weighted sums on the cores.

        Args:
            graph: The graph.
            call: The call, with CPU tensors of float32 or float64; weights are not returned.
            plan: A "csr" plan of one round. None means the fastest one, because the machine's own plan is for
                sums.

        Returns:
            [num_dst, H, V], and [num_dst, 2, H], the first two results of the call; and the report.

        Raises:
            ArgumentError: The machine refuses the call, or the plan does not fit.
            MachineMemoryError: The plan needs more memory than a core has.
        """
        size = AttentionSize.of(call)
        reason = self.refuse_attention(graph, size)
        if call.dropout:
            reason = "has no dropout of its own: give the factors as a mask"
        if reason is not None:
            raise ArgumentError(f"attention: {self.name} {reason}.")
        chosen = plan if plan is not None else self._attention_plan(graph, size)
        assert chosen is not None
        return self._run(Attention(size, call), graph, chosen)

    def _run(self, operator: Operator[R], graph: Graph, plan: PimPlan) -> tuple[R, PimReport]:
        shapes = self.shapes(graph)
        report = operator.cost(self.config, plan, shapes)
        # Use the report's plan: it may have more rounds than the plan that was chosen.
        return operator.execute(self.config, report.plan, shapes), report

    def _attention_plan(self, graph: Graph, size: AttentionSize) -> PimPlan | None:
        plans = self._attending.setdefault(graph, {})
        if size not in plans:
            plans[size] = Attention(size).plan(self.config, self.shapes(graph))
        return plans[size]

    def _check_dtype(self, dtype: str) -> None:
        if dtype not in self.config.arithmetic:
            raise ArgumentError(
                f"plan: dtype must be one that {self.config.name} computes with, "
                f"{', '.join(self.config.arithmetic)}, not {dtype!r}."
            )
