"""Tensor products of features with harmonics, and their gradients, on the CPU."""

from typing import Any

import torch
from torch import Tensor

from onehop.calls import TensorProduct, TensorProductEdges
from onehop.graph import Graph
from onehop.irreps import Tables, tables_of
from onehop.irreps.paths import of_text
from onehop.kernels.cpu.layout import address, planned, rows
from onehop.kernels.cpu.prepared import PlanKey
from onehop.native import empty, extension
from onehop.plans import CpuPlan


class PreparedTensorProduct:
    """Products summed over each row; uses the plans of ``sddmm``."""

    __slots__ = ("csr", "factors", "tables", "template")

    def __init__(self, graph: Graph, plan: CpuPlan, call: TensorProduct) -> None:
        paths = of_text(call.paths)
        self.csr = graph.transposed_csr if call.transposed else graph.csr
        self.tables = tables_of(call.paths, call.transposed)
        self.factors = self.tables.factors.to(call.x.dtype)
        self.template = _template(plan, self.tables, self.factors)
        widths = paths.dim_x, paths.dim_out
        self.template.x_width, self.template.out_width = widths[::-1] if call.transposed else widths
        self.template.weights_width = paths.weight_numel

    @staticmethod
    def key(call: TensorProduct) -> tuple[Any, ...]:
        """Return the paths, the direction and the dtype."""
        return TensorProduct, call.paths, call.transposed, call.x.dtype

    @staticmethod
    def case(call: TensorProduct) -> PlanKey:
        """Return the case of a call, which depends on the number of columns."""
        return PlanKey("sddmm", call.transposed, call.x.size(1), call.x.dtype)

    def run(self, call: TensorProduct) -> Tensor:
        """Run the call; return [rows, F]."""
        shape = (self.csr.rows, self.template.out_width)
        if not self.template.path_count:
            return torch.zeros(shape, dtype=call.x.dtype, device="cpu")
        out = empty(shape, call.x.dtype)
        native = self.template.copy()
        x, harmonics, weights = rows(call.x), rows(call.harmonics), _weights(call.weights)
        native.x, native.x_stride = address(x), x.stride(0)
        native.harmonics, native.harmonics_stride = address(harmonics), harmonics.stride(0)
        native.weights, native.weights_stride = address(weights), _edge_stride(weights)
        native.out = out.data_ptr()
        extension.tensor_product(native, self.csr)
        return out


class PreparedTensorProductEdges:
    """The gradients to harmonics and weights, edge by edge in the order of destinations."""

    __slots__ = ("csr", "factors", "shared", "tables", "template")

    def __init__(self, graph: Graph, plan: CpuPlan, call: TensorProductEdges) -> None:
        paths = of_text(call.paths)
        self.csr = graph.csr
        self.tables = tables_of(call.paths, False)
        self.factors = self.tables.factors.to(call.x.dtype)
        self.shared = call.shared
        self.template = _template(plan, self.tables, self.factors)
        self.template.x_width, self.template.out_width = paths.dim_x, paths.dim_out
        self.template.harmonics_width = paths.dim_harmonics
        self.template.weights_width = paths.weight_numel

    @staticmethod
    def key(call: TensorProductEdges) -> tuple[Any, ...]:
        """Return the paths, whether weights are shared, and the dtype."""
        return TensorProductEdges, call.paths, call.shared, call.x.dtype

    @staticmethod
    def case(call: TensorProductEdges) -> PlanKey:
        """Return the case of a call, which depends on the number of columns."""
        return PlanKey("sddmm", False, call.x.size(1), call.x.dtype)

    def run(self, call: TensorProductEdges) -> tuple[Tensor, Tensor]:
        """Run the call; return the gradients to the harmonics and the weights, each empty if not needed."""
        needs_harmonics, needs_weights = call.weights is not None, call.harmonics is not None
        template, dtype = self.template, call.x.dtype
        of_weights = (template.weights_width,) if self.shared else (self.csr.edges, template.weights_width)
        shapes = (
            (self.csr.edges, template.harmonics_width) if needs_harmonics else (0,),
            of_weights if needs_weights else (0,),
        )
        if not template.path_count:
            to_harmonics, to_weights = (torch.zeros(shape, dtype=dtype, device="cpu") for shape in shapes)
            return to_harmonics, to_weights
        to_harmonics, to_weights = (empty(shape, dtype) for shape in shapes)
        native = template.copy()
        x, grad = rows(call.x), rows(call.grad)
        native.x, native.x_stride = address(x), x.stride(0)
        native.grad, native.grad_stride = address(grad), grad.stride(0)
        if call.weights is not None:
            weights = _weights(call.weights)
            native.weights, native.weights_stride = address(weights), _edge_stride(weights)
            native.to_harmonics = to_harmonics.data_ptr()
        if call.harmonics is not None:
            harmonics = rows(call.harmonics)
            native.harmonics, native.harmonics_stride = address(harmonics), harmonics.stride(0)
            native.to_weights = to_weights.data_ptr()
            native.sums_weights = self.shared
        extension.tensor_product_edges(native, self.csr)
        return to_harmonics, to_weights


def _template(plan: CpuPlan, tables: Tables, factors: Tensor) -> "extension.TensorProductCall":
    """Return a structure with the plan's values and the tables, which the caller must keep."""
    template = planned(extension.TensorProductCall(), plan, factors.dtype)
    template.paths, template.path_count = address(tables.paths), tables.paths.size(0)
    template.groups = address(tables.groups)
    template.pairs, template.pair_count = address(tables.pairs), tables.pairs.size(0)
    template.term_columns, template.term_factors = address(tables.columns), address(factors)
    return template


def _weights(weights: Tensor) -> Tensor:
    """Return weights, [E, W] or [W], with contiguous rows."""
    return rows(weights) if weights.dim() == 2 else weights.contiguous()


def _edge_stride(weights: Tensor) -> int:
    """Return the stride between the weights of edges; 0 for shared weights, [W]."""
    return weights.stride(0) if weights.dim() == 2 else 0
