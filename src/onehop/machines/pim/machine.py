"""A simulated near-bank machine: aggregates exactly as a plan says, and reports the time that would take."""

import weakref
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel
from onehop.machines.pim.counted import GraphShapes
from onehop.machines.pim.defaults import default_plan
from onehop.machines.pim.execute import execute
from onehop.machines.pim.numbers import (
    INTEGERS,
    NAMES,
    TORCH_TYPES,
    accumulator,
    degree_bound,
    largest,
    multiply_bits,
    quantise,
)
from onehop.machines.pim.presets import upmem_v1a
from onehop.machines.pim.report import PimReport
from onehop.machines.pim.search import candidates, ranked
from onehop.machines.pim.shapes import BalancedShapes, Shapes, check_width
from onehop.machines.pim.simulate import simulate
from onehop.plans.pim import PimPlan


class Machine:
    """A near-bank machine.

    Args:
        config: Its configuration; None means :func:`upmem_v1a`.
        plan: The plan for aggregations that have none of their own; None means one made for each graph, width
            and dtype by :meth:`plan`.
        dtype: Type of the features in the machine where no plan names one; None means unchanged. An integer
            type means that float features are quantised.
        tune: Search the plan of each graph, width and dtype when it is first met, which takes hundredths of a
            second and a pass over the edges for each way to cut them. False means the plan that is best if
            everything is balanced.
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
        self._tuned: weakref.WeakKeyDictionary[Graph, dict[tuple[int, str, bool], PimPlan]] = (
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
        """One line that describes the machine."""
        c = self.config
        kind = "estimated near-bank machine" if c.estimate else "near-bank machine"
        return f"simulated {kind} {c.name}: {c.cores} cores in {c.ranks} ranks at {c.core.clock_mhz:g} MHz"

    def refuse(self, dtype: torch.dtype) -> str | None:
        """Return why it cannot aggregate features of this dtype, or None if it can."""
        wanted = self._dtype if self._plan is None or self._plan.dtype is None else self._plan.dtype
        name = NAMES.get(dtype)
        if name is None:
            return f"has no {dtype}"
        if (wanted or name) not in self.config.arithmetic:
            return f"has no {wanted or name}: {self.config.name} computes {', '.join(self.config.arithmetic)}"
        return None

    def shapes(self, graph: Graph) -> GraphShapes:
        """The work of cores and tasklets for a graph, kept with the graph."""
        found = self._shapes.get(graph)
        if found is None:
            found = self._shapes[graph] = GraphShapes(graph)
        return found

    def plan(self, graph: Graph, width: int, dtype: str = "float32", weighted: bool = False) -> PimPlan:
        """The plan for a graph where none is given: the tuner's, or the default if the machine does not tune.

        It streams, should the sums need more memory than the search assumed. Plans are kept with the graph.

        Args:
            graph: The graph.
            width: Feature columns.
            dtype: Dtype of the features in the machine.
            weighted: Whether edges have weights.

        Raises:
            ArgumentError: The width is not an integer of at least 1, or the machine lacks the dtype.
        """
        check_width(width)
        if not self._tune:
            return self.default_plan(graph, width, dtype, weighted)
        kept, key = self._tuned.setdefault(graph, {}), (width, dtype, weighted)
        if key not in kept:
            base = PimPlan()
            kernel = self.kernel(base, dtype, weighted)
            found = ranked(self.config, self.shapes(graph), width, kernel, candidates(self.config, base))
            # Where nothing fits at once, the default streams.
            kept[key] = (
                replace(found[0][0], stream=True)
                if found
                else self.default_plan(graph, width, dtype, weighted)
            )
        return kept[key]

    def default_plan(
        self, graph: Graph, width: int, dtype: str = "float32", weighted: bool = False
    ) -> PimPlan:
        """The plan with the best grid if everything were balanced: it uses the graph's size only.

        Args:
            graph: The graph.
            width: Feature columns.
            dtype: Dtype of the features in the machine.
            weighted: Whether edges have weights.

        Raises:
            ArgumentError: The width is not an integer of at least 1, or the machine lacks the dtype.
        """
        check_width(width)
        size = BalancedShapes(graph.num_src, graph.num_dst, graph.num_edges)
        return default_plan(self.config, size, width, self.kernel(PimPlan(), dtype, weighted))

    def kernel(
        self, plan: PimPlan, dtype: str, weighted: bool = False, sums: str | None = None, bits: float = 1.0
    ) -> Kernel:
        """The kernel of a plan; without data, sums of int8 and int16 are assumed to be int32."""
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
        """Simulates an aggregation without computing its result.

        Args:
            graph: A graph, or its size: :class:`BalancedShapes`, which assumes that everything is balanced
                and needs no arrays.
            width: Feature columns.
            plan: None means the machine's own, or :meth:`plan`; for a size the default.
            dtype: Dtype of the features in the machine, where the plan names none.
            weighted: Whether edges have weights.

        Raises:
            ArgumentError: The width is not an integer of at least 1, or the plan fits neither it nor the
                machine.
            MachineMemoryError: It needs more memory than a core has.
        """
        check_width(width)
        shapes = self.shapes(graph) if isinstance(graph, Graph) else graph
        if plan is None:
            plan = self._plan
        if plan is None and isinstance(graph, Graph):
            plan = self.plan(graph, width, self._dtype or dtype, weighted)
        if plan is None:
            size = BalancedShapes(shapes.num_src, shapes.num_dst, shapes.num_edges)
            kernel = self.kernel(PimPlan(), self._dtype or dtype, weighted)
            plan = default_plan(self.config, size, width, kernel)
        kernel = self.kernel(plan, plan.dtype or self._dtype or dtype, weighted)
        return simulate(self.config, plan, shapes, width, kernel)

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

        Scales, the division of means and quantisation run on the host, like the dense half of a layer.

        Args:
            graph: The graph.
            x: [num_src, F], on the CPU: int8, int16, int32, int64, float32 or float64.
            plan: None means the machine's own, or :meth:`plan`.
            weight: [E], in the caller's edge order, of the dtype of x; None means 1.
            reduce: "sum" or "mean".
            src_scale: [num_src]; None means 1. For float features.
            dst_scale: [num_dst], likewise.

        Returns:
            [num_dst, F], of the dtype of x; for integers, sums are of the accumulator's type, and means
            float32. And the report.

        Raises:
            ArgumentError: A shape, dtype or plan does not fit, or sums could overflow.
            MachineMemoryError: The plan needs more memory than a core has.
        """
        inputs = _checked(graph, x, weight, reduce, src_scale, dst_scale)
        chosen = plan if plan is not None else self._plan
        dtype = (chosen.dtype if chosen is not None else None) or self._dtype or NAMES[x.dtype]
        self._check_dtype(dtype)
        if chosen is None:
            # Without columns any plan will do.
            chosen = self.plan(graph, max(x.size(1), 1), dtype, weight is not None)
        prepared = _prepare(graph, inputs, chosen, dtype)
        weighted = prepared.weight is not None or not chosen.unit_weights
        ones = torch.ones(1, dtype=prepared.x.dtype, device="cpu")
        bits = (
            multiply_bits(prepared.x, ones if prepared.weight is None else prepared.weight)
            if weighted
            else 1.0
        )
        kernel = self.kernel(chosen, dtype, weighted, prepared.sums, bits)
        shapes = self.shapes(graph)
        report = simulate(self.config, chosen, shapes, x.size(1), kernel)
        # The report's plan: it may have more rounds than the one that was chosen.
        out = execute(self.config, report.plan, shapes, kernel, prepared.x, prepared.weight)
        return _finish(graph, inputs, prepared, out), report

    def _check_dtype(self, dtype: str) -> None:
        if dtype not in self.config.arithmetic:
            raise ArgumentError(
                f"plan: dtype must be one that {self.config.name} computes with, "
                f"{', '.join(self.config.arithmetic)}, not {dtype!r}."
            )


@dataclass(frozen=True, slots=True)
class _HostInputs:
    x: Tensor
    weight: Tensor | None
    reduce: str
    src_scale: Tensor | None
    dst_scale: Tensor | None


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Operands as the machine gets them.

    Attributes:
        x: [num_src, F], contiguous.
        weight: [E], in the graph's order.
        sums: Type of the sums.
        factor: Factor of quantised sums; None without quantisation.
    """

    x: Tensor
    weight: Tensor | None
    sums: str
    factor: Tensor | None


def _checked(
    graph: Graph,
    x: Tensor,
    weight: Tensor | None,
    reduce: str,
    src_scale: Tensor | None,
    dst_scale: Tensor | None,
) -> _HostInputs:
    if not isinstance(graph, Graph):
        raise ArgumentError(f"graph: expected an onehop.Graph, got {type(graph).__name__}.")
    if not isinstance(x, Tensor) or x.layout != torch.strided or x.dtype not in NAMES or not x.is_cpu:
        what = f"{x.dtype} on {x.device}" if isinstance(x, Tensor) else type(x).__name__
        raise ArgumentError(f"x: expected a dense CPU tensor of {', '.join(TORCH_TYPES)}, got {what}.")
    if x.dim() != 2 or x.size(0) != graph.num_src:
        raise ArgumentError(
            f"x: expected a row for each of the {graph.num_src} sources, got shape {list(x.shape)}."
        )
    if reduce not in ("sum", "mean"):
        raise ArgumentError(f"reduce: the machine computes sum and mean, not {reduce!r}.")
    for name, vector, count in (
        ("weight", weight, graph.num_edges),
        ("src_scale", src_scale, graph.num_src),
        ("dst_scale", dst_scale, graph.num_dst),
    ):
        if vector is None:
            continue
        if not isinstance(vector, Tensor) or vector.shape != (count,) or not vector.is_cpu:
            tensor = isinstance(vector, Tensor)
            what = f"shape {list(vector.shape)} on {vector.device}" if tensor else type(vector).__name__
            raise ArgumentError(f"{name}: expected a CPU tensor of shape [{count}], got {what}.")
        if name == "weight" and vector.dtype.is_floating_point != x.dtype.is_floating_point:
            raise ArgumentError(f"weight: expected {x.dtype} as the features, got {vector.dtype}.")
        if name != "weight" and not x.dtype.is_floating_point:
            raise ArgumentError(f"{name}: integer features cannot be scaled; give x as floats.")
    return _HostInputs(x.detach(), weight, reduce, src_scale, dst_scale)


def _prepare(graph: Graph, inputs: _HostInputs, plan: PimPlan, dtype: str) -> _Prepared:
    x, weight = inputs.x, inputs.weight
    if inputs.src_scale is not None:
        x = x * inputs.src_scale.to(x.dtype).unsqueeze(1)
    if weight is not None:
        weight = weight.detach()
        weight = weight if graph.perm is None else weight[graph.perm.long()]
    rowptr = graph.rowptr.numpy()
    if dtype not in INTEGERS:
        if not x.dtype.is_floating_point:
            raise ArgumentError(f"plan: dtype {dtype} for features of {x.dtype}; give x as floats.")
        kind = TORCH_TYPES[dtype]
        ordered = None if weight is None else weight.to(kind).contiguous()
        return _Prepared(x.to(kind).contiguous(), ordered, accumulator(plan, dtype, 0), None)
    if x.dtype.is_floating_point:
        return _quantised(x, weight, rowptr, plan, dtype)
    if x.dtype != TORCH_TYPES[dtype]:
        raise ArgumentError(
            f"plan: dtype {dtype} for features of {x.dtype}; convert x, or omit the plan's dtype."
        )
    if weight is not None:
        weight = _narrowed(weight, TORCH_TYPES[dtype])
    bound = _magnitude(x) * degree_bound(rowptr, None if weight is None else weight.numpy())
    return _Prepared(x.contiguous(), weight, accumulator(plan, dtype, bound), None)


def _quantised(x: Tensor, weight: Tensor | None, rowptr: np.ndarray, plan: PimPlan, dtype: str) -> _Prepared:
    """Features, and weights if there are any, as integers; int32 features so that sums fit 32 bits too."""
    values, weight_factor = None, 1.0
    if weight is not None:
        # Half the bits: products have those of both.
        most = largest({"int8": "int8", "int64": "int32"}.get(dtype, "int16"))
        found = quantise(weight.view(-1, 1), dtype, most, by_column=False)
        values, weight_factor = found.values.view(-1), float(found.factor)
    degree = max(degree_bound(rowptr, None if values is None else values.numpy()), 1)
    # More steps than a float64 distinguishes would be useless.
    most = min(largest(dtype), 1 << 52)
    if dtype in ("int32", "int64"):
        room = largest(plan.accumulator or dtype) // degree
        if room < largest("int8") and plan.accumulator is None and dtype == "int32":
            room = largest("int64") // degree
        most = max(min(most, room), 1)
    features = quantise(x, dtype, most, plan.scale == "column")
    sums = accumulator(plan, dtype, most * degree)
    return _Prepared(features.values.contiguous(), values, sums, features.factor * weight_factor)


def _finish(graph: Graph, inputs: _HostInputs, prepared: _Prepared, out: Tensor) -> Tensor:
    kind = inputs.x.dtype
    if prepared.factor is not None:
        out = (out.double() * prepared.factor).to(kind)
    elif kind.is_floating_point:
        out = out.to(kind)
    if inputs.reduce == "mean":
        kind = kind if kind.is_floating_point else torch.float32
        out = out.to(kind) * graph.inverse_in_degrees(kind).unsqueeze(1)
    if inputs.dst_scale is not None:
        out = out * inputs.dst_scale.to(out.dtype).unsqueeze(1)
    return out


def _magnitude(x: Tensor) -> int:
    return max(-int(x.min()), int(x.max())) if x.numel() else 0


def _narrowed(weight: Tensor, dtype: torch.dtype) -> Tensor:
    narrow = weight.to(dtype)
    if not torch.equal(narrow.to(weight.dtype), weight):
        limits = torch.iinfo(dtype)
        raise ArgumentError(
            f"weight: expected numbers from {limits.min} to {limits.max}, the range of {dtype}."
        )
    return narrow.contiguous()
