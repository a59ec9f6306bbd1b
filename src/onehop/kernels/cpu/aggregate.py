"""Sum and mean on the CPU."""

import math
from typing import Any

import torch
from torch import Tensor

from onehop import thresholds
from onehop.calls import Aggregate, accumulator, heads_of
from onehop.graph import Graph
from onehop.graph.reorder import ordered_csr
from onehop.kernels.cpu import generated
from onehop.kernels.cpu.layout import planned
from onehop.kernels.cpu.ordered_weights import in_graph_order
from onehop.kernels.cpu.prepared import PlanKey
from onehop.kernels.cpu.rows import copy_rows
from onehop.native import CPU, address, empty, extension
from onehop.plans import CpuPlan

# Numbers of onehop::Reduce in csrc/include/onehop/kernels.hpp.
_SUM, _MEAN = 0, 1

# If sources have at least this many edges on average, scaling each row once is cheaper than once for each
# edge. (Two cores, float32, widths 16 to 128: 1.04 to 1.38 times faster with 190 edges per source, 0.36 to
# 0.95 times with 14.)
_SCALED_FIRST_DEGREE = 64


class PreparedAggregate:
    """Sum or mean over each row's edges."""

    __slots__ = (
        "csr",
        "dtype",
        "inverse",
        "keeps_weights",
        "number",
        "ordering",
        "out_dtype",
        "pooled",
        "scales_first",
        "shape",
        "template",
        "transposed",
    )

    def __new__(cls, graph: Graph, plan: CpuPlan, call: Aggregate) -> Any:
        """Makes a gather if each result row is a copy of one row of ``x``, and the general call otherwise."""
        gathers = graph.index is not None and call.transposed and call.weight is None
        return _PreparedGather(graph, call) if gathers else super().__new__(cls)

    def __init__(self, graph: Graph, plan: CpuPlan, call: Aggregate) -> None:
        x, heads = call.x, heads_of(call.weight)
        self.csr = ordered_csr(graph, plan.ordering, call.transposed)
        self.dtype = x.dtype
        if plan.storage == "bfloat16" and x.dtype.itemsize == 4:
            self.dtype = x.bfloat16().dtype
        acc = accumulator(x.dtype)
        self.out_dtype = acc if call.widen else x.dtype
        self.shape = (self.csr.rows, x.size(1))
        self.pooled = math.prod(self.shape) * self.out_dtype.itemsize >= thresholds.now.pooled_bytes
        divides_sources = call.mean and call.transposed
        self.inverse = graph.inverse_in_degrees(acc) if divides_sources else None
        self.scales_first = graph.num_edges >= _SCALED_FIRST_DEGREE * self.csr.cols
        self.keeps_weights = self.csr.edges >= thresholds.now.ordered_edges and self.csr.perm is not None
        self.number, self.transposed, self.ordering = graph.number, call.transposed, plan.ordering
        self.template = aggregate_call(plan, self.dtype)
        self.template.reduce = _MEAN if call.mean and not call.transposed else _SUM
        self.template.out_is_acc = self.out_dtype is not self.dtype
        self.template.heads, self.template.width = heads, x.size(1) // heads
        self.template.out_stride = x.size(1)

    @staticmethod
    def key(call: Aggregate) -> tuple[Any, ...]:
        """Return the direction, the width, the heads (0 without weights) and the dtypes."""
        weight, x = call.weight, call.x
        heads = 0 if weight is None else 1 if weight.dim() == 1 else weight.shape[1]
        return Aggregate, call.transposed, call.mean, call.widen, x.shape[1], heads, x.dtype

    @staticmethod
    def case(call: Aggregate) -> PlanKey:
        """Return the case of a call, which depends on the number of columns of a head."""
        return PlanKey("sum", call.transposed, call.x.size(1) // heads_of(call.weight), call.x.dtype)

    def run(self, call: Aggregate) -> Tensor:
        """Run the call; return [rows, F]."""
        x, weight, src_scale, dst_scale = call[:4]
        # The sizes are passed one by one, which is a third faster in torch.
        rows, columns = self.shape
        out = (
            empty(self.shape, self.out_dtype)
            if self.pooled
            else torch.empty(rows, columns, dtype=self.out_dtype, device=CPU)
        )
        if not self.template.width:
            return out
        if self.inverse is not None:
            src_scale = self.inverse if src_scale is None else self.inverse * src_scale
        if self.scales_first and src_scale is not None and weight is None and src_scale.dtype is x.dtype:
            x, src_scale = x * src_scale[:, None], None
        if x.dtype is not self.dtype:
            x = x.to(self.dtype)
        stride = x.stride()
        if stride[1] != 1 and x.shape[1] > 1:
            x = x.contiguous()
            stride = x.stride()
        native = self.template.copy()
        native.x, native.x_stride = x.data_ptr() or address(x), stride[0]
        if weight is not None:
            if self.keeps_weights:
                weight, native.weight_in_graph_order = in_graph_order(
                    self.csr, self.number, self.transposed, self.ordering, weight
                )
            native.weight, native.weight_stride = address(weight), weight.stride(0)
            if weight.dim() == 2:
                native.weight_head_stride = weight.stride(1)
        if src_scale is not None:
            native.col_scale = address(src_scale)
        if dst_scale is not None:
            native.row_scale = address(dst_scale)
        native.out = out.data_ptr()
        extension.aggregate(native, self.csr)
        return out


class _PreparedGather:
    """The transposed sum or mean of a graph that was made from an index: entry e gets row ``index[e]``."""

    __slots__ = ("index", "inverse", "out_dtype")

    def __init__(self, graph: Graph, call: Aggregate) -> None:
        assert graph.index is not None
        acc = accumulator(call.x.dtype)
        self.index = graph.index.numbers
        self.inverse = graph.inverse_in_degrees(acc) if call.mean else None
        self.out_dtype = acc if call.widen else call.x.dtype

    def run(self, call: Aggregate) -> Tensor:
        """Run the call; return [E, F]."""
        x = call.x
        for scale in (call.src_scale, self.inverse):
            if scale is not None:
                x = x * scale[:, None]
        rows = empty((len(self.index), x.size(1)), x.dtype)
        copy_rows(x, self.index, rows)
        if call.dst_scale is not None:
            rows = rows * call.dst_scale[:, None]
        return rows.to(self.out_dtype)


def aggregate_call(plan: CpuPlan, dtype: torch.dtype) -> extension.AggregateCall:
    """Return a call of the extension's ``aggregate`` with the choices of a plan."""
    call = planned(extension.AggregateCall(), plan, dtype)
    call.keeps_near = plan.prefetch_hint == "L1"
    call.column_tile = plan.column_tile
    call.register_block = plan.register_block
    call.nontemporal = plan.nontemporal
    call.generated = generated.address(plan.generated) if plan.generated else 0
    call.heads = 1
    return call
