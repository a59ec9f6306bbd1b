"""Attention and its gradient on the CPU."""

import math
from typing import Any

import torch
from torch import Tensor

from onehop import thresholds
from onehop.calls import Aggregate, Attention, AttentionGrad, accumulator, on
from onehop.graph import Graph
from onehop.kernels.cpu.aggregate import PreparedAggregate
from onehop.kernels.cpu.layout import planned
from onehop.kernels.cpu.prepared import PlanKey
from onehop.native import CPU, address, empty, extension
from onehop.plans import CpuPlan

# Numbers of onehop::ScoreRule in csrc/include/onehop/kernels.hpp.
_RULES = {"gat": 0, "gatv2": 1, "dot": 2}


class PreparedAttention:
    """Attention over each row's edges."""

    __slots__ = ("acc", "csr", "dtype", "heads", "pooled", "shape", "template")

    def __init__(self, graph: Graph, plan: CpuPlan, call: Attention) -> None:
        self.csr = graph.csr
        self.dtype, self.acc = call.value.dtype, accumulator(call.value.dtype)
        self.heads = call.heads
        self.shape = (self.csr.rows, self.heads, call.value.size(2))
        self.pooled = math.prod(self.shape) * self.dtype.itemsize >= thresholds.now.pooled_bytes
        self.template = _template(plan, call)

    @staticmethod
    def key(call: Attention) -> tuple[Any, ...]:
        """Return the rule, the heads, the widths and the dtype."""
        return Attention, call.rule, *call.value.shape[1:], *call.query.shape[2:], call.value.dtype

    @staticmethod
    def case(call: Attention) -> PlanKey:
        """Return the case of a call, which depends on the number of columns of all heads."""
        return PlanKey("attention", False, call.heads * call.value.size(2), call.value.dtype)

    def run(self, call: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """Run the call; return the output, [rows, 2, H] for the gradient, and weights, [E, H] or empty."""
        rows, heads, width = self.shape
        if self.pooled:
            out, softmax = empty(self.shape, self.dtype), empty((rows, 2, heads), self.acc)
        else:
            out = torch.empty(rows, heads, width, dtype=self.dtype, device=CPU)
            softmax = torch.empty(rows, 2, heads, dtype=self.acc, device=CPU)
        native = self.template.copy()
        held = _fill(native, call)
        native.out, native.softmax = out.data_ptr(), softmax.data_ptr()
        extension.attention(native, self.csr)
        if not call.with_weights:
            return out, softmax, softmax.new_empty(0)
        weights = empty((self.csr.edges, self.heads), self.acc)
        native.weights = weights.data_ptr()
        extension.attention_weights(native, self.csr)
        del held  # the kernels read from these tensors until here
        return out, softmax, weights


class PreparedAttentionGrad:
    """The gradient in two sweeps, over the graph and over its transpose; nothing is stored for edges."""

    __slots__ = ("acc", "csr", "graph_number", "product", "template", "transposed")

    def __init__(self, graph: Graph, plan: CpuPlan, grad: AttentionGrad) -> None:
        call = grad.call
        self.csr, self.transposed = graph.csr, graph.transposed_csr
        self.acc = accumulator(call.value.dtype)
        self.graph_number = graph.number
        self.template = _template(plan, call)
        self.product: PreparedAggregate | None = None
        if grad.grad_weights is not None:
            ones = torch.ones(graph.num_src, call.heads, dtype=self.acc, device="cpu")
            like = torch.ones(1, call.heads, dtype=self.acc, device="cpu")
            self.product = PreparedAggregate(graph, plan, on(graph, Aggregate, x=ones, weight=like))

    @staticmethod
    def key(grad: AttentionGrad) -> tuple[Any, ...]:
        """Return the rule, the heads, the widths, the dtype, and whether the weights have a gradient."""
        call = grad.call
        weighed = grad.grad_weights is not None
        widths = *call.value.shape[1:], *call.query.shape[2:]
        return AttentionGrad, call.rule, *widths, call.value.dtype, weighed

    @staticmethod
    def case(grad: AttentionGrad) -> PlanKey:
        """Return the case of a call, which depends on the number of columns of all heads."""
        return PreparedAttention.case(grad.call)

    def run(self, grad: AttentionGrad) -> tuple[Tensor, ...]:
        """Run the call; return a tensor for each field of AttentionGradients, empty if not needed."""
        call, needs = grad.call, grad.wanted
        native = self.template.copy()
        held = _fill(native, call)
        out, softmax, outer = grad.out.contiguous(), grad.softmax.contiguous(), _rows(grad.grad, False)
        statistics = empty((self.csr.rows, 3, call.heads), self.acc)
        native.out, native.softmax = address(out), address(softmax)
        native.grad, native.grad_stride = address(outer), outer.stride(0)
        native.statistics = statistics.data_ptr()
        if grad.grad_weights is not None and grad.weights is not None:
            to_weights = grad.grad_weights.to(self.acc).contiguous()
            ones = to_weights.new_ones(self.csr.cols, call.heads)
            weight = grad.weights * to_weights
            summed = Aggregate(x=ones, weight=weight, graph=self.graph_number, rows=self.csr.rows)
            assert self.product is not None
            product = self.product.run(summed).contiguous()
            native.grad_weights, native.weights_product = address(to_weights), product.data_ptr()
            held += [to_weights, product]

        # The kernels read the projection transposed, so its gradient is also computed transposed.
        projection = None if call.edge_weight is None else call.edge_weight.t()
        operands = (call.value, call.key, call.query, call.att, call.edge, projection)
        value, key, query, att, edge, edge_weight = gradients = [
            empty(like.shape, like.dtype) if want and like is not None else call.value.new_empty(0)
            for like, want in zip(operands, needs, strict=True)
        ]
        places = [tensor.data_ptr() if want else 0 for tensor, want in zip(gradients, needs, strict=True)]
        _, _, native.grad_query, native.grad_att, native.grad_edge, native.grad_edge_weight = places
        extension.attention_grad_dst(native, self.csr)
        if needs[0] or needs[1] or needs[3]:
            native.grad_value, native.grad_key = places[:2]
            extension.attention_grad_src(native, self.transposed)
        del held  # the kernels read from these tensors until here
        if needs[5]:
            edge_weight = edge_weight.t().contiguous()
        return value, key, query, att, edge, edge_weight


def _rows(x: Tensor, packed: bool) -> Tensor:
    """Return a tensor without gaps within rows and, if ``packed``, between rows."""
    return x if not packed and x[:1].is_contiguous() else x.contiguous()


def _template(plan: CpuPlan, call: Attention) -> extension.AttentionCall:
    """Return a native call with the fields that are the same for all calls."""
    template = planned(extension.AttentionCall(), plan, call.value.dtype)
    template.rule = _RULES[call.rule]
    template.heads, template.value_width = call.value.shape[1:]
    template.key_width = 1 if call.rule == "gat" else call.query.size(2)
    template.weights_masked = call.masks_returned_weights
    return template


def _fill(native: extension.AttentionCall, call: Attention) -> list[Tensor]:
    """Sets the operands; returns the tensors, including copies, to which the call now points."""
    packed = call.rule == "gat"
    value, query = call.value, call.query
    if not value.is_contiguous():
        value = _rows(value, False)
    if not query.is_contiguous():
        query = _rows(query, packed)
    held = [value, query]
    native.factor, native.dropout = call.factor, call.dropout
    if call.seeds is not None:
        native.seed = call.seed
    native.value, native.value_stride = value.data_ptr() or address(value), value.stride(0)
    native.query, native.query_stride = query.data_ptr() or address(query), query.stride(0)
    if call.key is not None:
        held.append(key := _rows(call.key, packed))
        native.key, native.key_stride = key.data_ptr() or address(key), key.stride(0)
    if call.att is not None:
        held.append(att := call.att.contiguous())
        native.att = att.data_ptr() or address(att)
    if call.mask is not None:
        held.append(mask := call.mask.contiguous())
        native.mask = mask.data_ptr() or address(mask)
    if call.edge is not None:
        held.append(edge := _rows(call.edge, packed))
        native.edge, native.edge_stride = edge.data_ptr() or address(edge), edge.stride(0)
        if call.edge_weight is not None:
            held.append(projection := call.edge_weight.t().contiguous())
            native.edge_width, native.edge_weight = call.edge.size(1), address(projection)
    for tensor in held:
        if not tensor.is_cpu:
            address(tensor)  # raises
    return held
