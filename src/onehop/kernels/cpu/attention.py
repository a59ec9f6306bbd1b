"""Attention and its gradient on the CPU."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from onehop.kernels.attention_operands import AttentionGrads, AttentionOperands
from onehop.kernels.cpu.aggregate import aggregate
from onehop.kernels.cpu.layout import accumulator, address, thread_count
from onehop.native import DTYPE_CODES, empty, extension
from onehop.plans import CpuPlan

# Numbers of onehop::ScoreRule in csrc/include/onehop/kernels.hpp.
_RULES = {"gat": 0, "gatv2": 1, "dot": 2}


class _Call:
    """A call of one of the kernels, and the tensors it points into."""

    def __init__(self, plan: CpuPlan, operands: AttentionOperands) -> None:
        self.plan = plan
        self.rule, self.dtype = _RULES[operands.rule], operands.value.dtype
        self.held: list[Tensor] = []
        self.fields = extension.AttendCall()
        fields = self.fields
        fields.threads, fields.prefetch = thread_count(plan), plan.prefetch
        gat = operands.rule == "gat"
        fields.heads, fields.value_width = operands.value.shape[1:]
        fields.key_width = 1 if gat else operands.query.size(2)
        fields.factor, fields.dropout, fields.seed = operands.factor, operands.dropout, operands.seed
        fields.weights_masked = operands.masks_returned_weights
        fields.value, fields.value_stride = self.rows(operands.value)
        if operands.key is not None:
            fields.key, fields.key_stride = self.rows(operands.key, packed=gat)
        fields.query, fields.query_stride = self.rows(operands.query, packed=gat)
        if operands.edge is not None:
            fields.edge, fields.edge_stride = self.rows(operands.edge, packed=gat)
        fields.att = self.packed(operands.att)
        fields.mask = self.packed(operands.mask)
        if operands.edge is not None and operands.edge_weight is not None:
            fields.edge_width = operands.edge.size(1)
            fields.edge_weight = self.packed(operands.edge_weight.t())

    def rows(self, x: Tensor, packed: bool = False) -> tuple[int, int]:
        """Address and row stride; a copy where a row's entries (with ``packed``, the rows too) have gaps."""
        if x[:1].numel() and (not x[:1].is_contiguous() or (packed and not x.is_contiguous())):
            x = x.contiguous()
        self.held.append(x)
        return address(x), x.stride(0)

    def packed(self, x: Tensor | None) -> int:
        """The address of a contiguous copy, or of the tensor itself; 0 for None."""
        if x is None:
            return 0
        self.held.append(x.contiguous())
        return address(self.held[-1])

    def run(self, kernel: Any, csr: Any) -> None:
        kernel(self.fields, csr, self.rule, DTYPE_CODES[self.dtype], self.plan.edges_per_item)


def attend(
    csr: Any, plan: CpuPlan, operands: AttentionOperands, with_weights: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention over each row's edges.

    Args:
        csr: The native graph.
        plan: How to go over it.
        operands: What it works on.
        with_weights: Also return the softmaxed weights.

    Returns:
        The output [rows, H, V]; acc [rows, 2, H], largest scores and inverse sums of exponentials; and acc
        [E, H], the weights, or an empty tensor.
    """
    dtype, heads = accumulator(operands.value.dtype), operands.heads
    out = empty((csr.rows, heads, operands.value.size(2)), operands.value.dtype)
    softmax = empty((csr.rows, 2, heads), dtype)
    call = _Call(plan, operands)
    call.fields.out, call.fields.softmax = out.data_ptr(), softmax.data_ptr()
    call.run(extension.attend, csr)
    if not with_weights:
        return out, softmax, torch.empty(0, dtype=dtype, device="cpu")
    weights = empty((csr.edges, heads), dtype)
    call.fields.weights = weights.data_ptr()
    call.run(extension.attend_weights, csr)
    return out, softmax, weights


def attend_grad(
    csr: Any,
    transposed: Any,
    plan: CpuPlan,
    operands: AttentionOperands,
    out: Tensor,
    softmax: Tensor,
    weights: Tensor | None,
    grad: Tensor,
    grad_weights: Tensor | None,
    wanted: Sequence[bool],
) -> AttentionGrads:
    """Gradients of :func:`attend`: a sweep over the rows, then one over those of the transposed graph.

    Args:
        csr: The native graph.
        transposed: The native transposed graph.
        plan: How to go over both.
        operands: What ``attend`` worked on.
        out: Its output.
        softmax: Its second result.
        weights: Its weights; needed with ``grad_weights`` only.
        grad: To the output.
        grad_weights: To the weights, or None.
        wanted: Which gradients, in the order of AttentionGrads.
    """
    dtype, heads = accumulator(operands.value.dtype), operands.heads
    for_value, for_key, for_query, for_att, for_edge, for_edge_weight = wanted
    call = _Call(plan, operands)
    fields = call.fields
    fields.out, fields.softmax = call.packed(out), call.packed(softmax)
    fields.grad, fields.grad_stride = call.rows(grad)
    if grad_weights is not None and weights is not None:
        grad_weights = grad_weights.to(dtype)
        fields.grad_weights = call.packed(grad_weights)
        ones = torch.ones(csr.cols, heads, dtype=dtype, device="cpu")
        product = aggregate(csr, plan, ones, weights * grad_weights, None, None, False, False, False)
        fields.weights_product = call.packed(product)
    statistics = empty((csr.rows, 3, heads), dtype)
    fields.statistics = call.packed(statistics)

    def made(like: Tensor | None, want: bool) -> Tensor | None:
        return empty(like.shape, like.dtype) if want and like is not None else None

    value, key = made(operands.value, for_value), made(operands.key, for_key)
    query, att = made(operands.query, for_query), made(operands.att, for_att)
    edge = made(operands.edge, for_edge)
    edge_weight = None
    if for_edge_weight and operands.edge_weight is not None:
        edge_weight = made(operands.edge_weight.t(), True)
    fields.grad_query, fields.grad_att = address(query), address(att)
    fields.grad_edge, fields.grad_edge_weight = address(edge), address(edge_weight)
    call.run(extension.attend_grad_dst, csr)
    if for_value or for_key or for_att:
        fields.grad_value, fields.grad_key = address(value), address(key)
        call.run(extension.attend_grad_src, transposed)
    return AttentionGrads(
        value, key, query, att, edge, None if edge_weight is None else edge_weight.t().contiguous()
    )
