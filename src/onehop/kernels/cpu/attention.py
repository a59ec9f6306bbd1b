"""Attention and its gradient on the CPU."""

from typing import Any

import torch
from torch import Tensor

from onehop.calls import Aggregate, Attention, AttentionGrad, accumulator
from onehop.graph import Graph
from onehop.kernels.cpu.aggregate import PreparedAggregate
from onehop.kernels.cpu.layout import address, thread_count
from onehop.kernels.cpu.prepared import Case
from onehop.native import DTYPE_CODES, empty, extension
from onehop.plans import CpuPlan

# Numbers of onehop::ScoreRule in csrc/include/onehop/kernels.hpp.
_RULES = {"gat": 0, "gatv2": 1, "dot": 2}


class PreparedAttention:
    """Attention over each row's edges."""

    __slots__ = ("acc", "csr", "dtype", "heads", "shape", "template")

    def __init__(self, graph: Graph, plan: CpuPlan, call: Attention) -> None:
        self.csr = graph.csr
        self.dtype, self.acc = call.value.dtype, accumulator(call.value.dtype)
        self.heads = call.heads
        self.shape = (self.csr.rows, self.heads, call.value.size(2))
        self.template = _template(plan, call)

    @staticmethod
    def key(call: Attention) -> tuple[Any, ...]:
        """The rule, the heads, the widths and the dtype."""
        return Attention, call.rule, *call.value.shape[1:], *call.query.shape[2:], call.value.dtype

    @staticmethod
    def case(call: Attention) -> Case:
        """The columns of all heads decide."""
        return Case("attention", False, call.heads * call.value.size(2), call.value.dtype)

    def run(self, call: Attention) -> tuple[Tensor, Tensor, Tensor]:
        """The output, acc [rows, 2, H] for the gradient, and acc [E, H], the weights, or an empty tensor."""
        out = empty(self.shape, self.dtype)
        softmax = empty((self.shape[0], 2, self.heads), self.acc)
        native = self.template.copy()
        held = _fill(native, call)
        native.out, native.softmax = out.data_ptr(), softmax.data_ptr()
        extension.attention(native, self.csr)
        if not call.with_weights:
            return out, softmax, softmax.new_empty(0)
        weights = empty((self.csr.edges, self.heads), self.acc)
        native.weights = weights.data_ptr()
        extension.attention_weights(native, self.csr)
        del held  # until here the kernels read from it
        return out, softmax, weights


class PreparedAttentionGrad:
    """Two sweeps, over the rows and over those of the transposed graph; nothing is kept for each edge."""

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
            self.product = PreparedAggregate(graph, plan, Aggregate.of(graph, ones, weight=like))

    @staticmethod
    def key(grad: AttentionGrad) -> tuple[Any, ...]:
        """The rule, the heads, the widths, the dtype, and whether the weights have a gradient."""
        call = grad.call
        weighed = grad.grad_weights is not None
        widths = *call.value.shape[1:], *call.query.shape[2:]
        return AttentionGrad, call.rule, *widths, call.value.dtype, weighed

    @staticmethod
    def case(grad: AttentionGrad) -> Case:
        """The columns of all heads decide."""
        return PreparedAttention.case(grad.call)

    def run(self, grad: AttentionGrad) -> tuple[Tensor, ...]:
        """A tensor for each field of AttentionGradients; an empty one where not wanted."""
        call, wanted = grad.call, grad.wanted
        native = self.template.copy()
        held = _fill(native, call)
        native.out, native.softmax = held.packed(grad.out), held.packed(grad.softmax)
        native.grad, native.grad_stride = held.rows(grad.grad)
        if grad.grad_weights is not None and grad.weights is not None:
            outer = grad.grad_weights.to(self.acc)
            native.grad_weights = held.packed(outer)
            native.weights_product = held.packed(self._product(grad.weights * outer))
        statistics = empty((self.csr.rows, 3, call.heads), self.acc)
        native.statistics = held.packed(statistics)

        # The projection's gradient is made as the kernels read the projection: transposed.
        projection = None if call.edge_weight is None else call.edge_weight.t()
        operands = (call.value, call.key, call.query, call.att, call.edge, projection)
        none = call.value.new_empty(0)
        value, key, query, att, edge, edge_weight = made = [
            empty(like.shape, like.dtype) if want and like is not None else none
            for like, want in zip(operands, wanted, strict=True)
        ]
        places = [tensor.data_ptr() if tensor is not none else 0 for tensor in made]
        _, _, native.grad_query, native.grad_att, native.grad_edge, native.grad_edge_weight = places
        extension.attention_grad_dst(native, self.csr)
        if wanted[0] or wanted[1] or wanted[3]:
            native.grad_value, native.grad_key = places[:2]
            extension.attention_grad_src(native, self.transposed)
        if edge_weight is not none:
            edge_weight = edge_weight.t().contiguous()
        return value, key, query, att, edge, edge_weight

    def _product(self, weight: Tensor) -> Tensor:
        """Acc [rows, H]: sums of per-edge values over each row."""
        assert self.product is not None
        ones = weight.new_ones(self.csr.cols, weight.size(1))
        call = Aggregate(
            x=ones,
            weight=weight,
            src_scale=None,
            dst_scale=None,
            graph=self.graph_number,
            rows=self.csr.rows,
            transposed=False,
            mean=False,
            widen=False,
            backend="",
        )
        return self.product.run(call)


class _Held:
    """The tensors whose memory a call points into, copies among them."""

    __slots__ = ("tensors",)

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []

    def rows(self, x: Tensor, packed: bool = False) -> tuple[int, int]:
        """Address and row stride; a copy where a row's entries (with ``packed``, the rows too) have gaps."""
        if x[:1].numel() and (not x[:1].is_contiguous() or (packed and not x.is_contiguous())):
            x = x.contiguous()
        self.tensors.append(x)
        return address(x), x.stride(0)

    def packed(self, x: Tensor | None) -> int:
        """The address of a contiguous copy, or of the tensor itself; 0 for None."""
        if x is None:
            return 0
        x = x.contiguous()
        self.tensors.append(x)
        return address(x)


def _template(plan: CpuPlan, call: Attention) -> extension.AttentionCall:
    """What does not change from call to call."""
    template = extension.AttentionCall()
    template.rule, template.dtype = _RULES[call.rule], DTYPE_CODES[call.value.dtype]
    template.threads, template.prefetch = thread_count(plan), plan.prefetch
    template.edges_per_item = plan.edges_per_item
    template.heads, template.value_width = call.value.shape[1:]
    template.key_width = 1 if call.rule == "gat" else call.query.size(2)
    template.weights_masked = call.masks_returned_weights
    return template


def _fill(native: extension.AttentionCall, call: Attention) -> _Held:
    """Sets the operands, and returns what keeps them alive."""
    held, packed = _Held(), call.rule == "gat"
    native.factor, native.dropout, native.seed = call.factor, call.dropout, call.seed
    native.value, native.value_stride = held.rows(call.value)
    native.query, native.query_stride = held.rows(call.query, packed)
    if call.key is not None:
        native.key, native.key_stride = held.rows(call.key, packed)
    if call.edge is not None:
        native.edge, native.edge_stride = held.rows(call.edge, packed)
        if call.edge_weight is not None:
            native.edge_width = call.edge.size(1)
            native.edge_weight = held.packed(call.edge_weight.t())
    native.att, native.mask = held.packed(call.att), held.packed(call.mask)
    return held
