"""Attention and its gradient on the GPU."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from onehop.kernels.attention_operands import AttentionGrads, AttentionOperands
from onehop.kernels.triton.aggregate import add_slots, aggregate
from onehop.kernels.triton.attention_forward import attend_kernel, merge_kernel
from onehop.kernels.triton.attention_grad_dst import attend_grad_dst_kernel
from onehop.kernels.triton.attention_grad_src import attend_grad_src_kernel
from onehop.kernels.triton.attention_weights import attend_weights_kernel
from onehop.kernels.triton.launch import Bucket, accumulator, buckets, on_device_of
from onehop.kernels.triton.numbers import dropout_words, two_parts
from onehop.kernels.triton.registers import bounded
from onehop.kernels.triton.work import Work
from onehop.plans.triton import TritonPlan
from onehop.plans.triton_default import power_of_two

# Of onehop.kernels.triton.attention_parts.
_RULES = {"gat": 0, "gatv2": 1, "dot": 2}
_EDGE_ROWS, _EDGE_PROJECTED = 1, 2
_MASK_TENSOR, _MASK_DROPOUT = 1, 2

# Programs that keep a sum over all edges each: about eight for each of an H200's 132 multiprocessors.
_PROGRAMS = 1024
# Most bytes of the sums of edge weights' gradients, of which every program has its own.
_WEIGHT_PARTS_BYTES = 2**26


class _Call:
    """What every kernel of one call is given."""

    def __init__(self, plan: TritonPlan, operands: AttentionOperands) -> None:
        self.plan, self.operands = plan, operands
        heads, value_width = operands.value.shape[1:]
        width = 1 if operands.rule == "gat" else operands.query.size(2)
        block_d, block_v = power_of_two(width), power_of_two(value_width)
        factor_high, factor_low = two_parts(operands.factor)
        kept_high, kept_low = two_parts(1 / (1 - operands.dropout))
        edge, edge_weight = operands.edge, operands.edge_weight
        mask = 0
        if operands.mask is not None:
            mask = _MASK_TENSOR
        elif operands.dropout:
            mask = _MASK_DROPOUT
        self.head_block = min(power_of_two(heads), max(plan.block_features // max(block_d, block_v), 1))
        self.all_heads = power_of_two(heads)
        self.numbered = edge is not None or mask != 0
        self.acc = accumulator(operands.value.dtype)
        self.tensors: dict[str, Any] = {
            "value": operands.value.contiguous(),
            "key": _packed(operands.key),
            "query": operands.query.contiguous(),
            "att": _packed(operands.att),
            "edge": _packed(edge),
            "edge_weight": None if edge_weight is None else edge_weight.t().contiguous(),
            "mask": _packed(operands.mask),
        }
        self.settings = {
            **dropout_words(operands),
            "factor_high": factor_high,
            "factor_low": factor_low,
            "kept_high": kept_high,
            "kept_low": kept_low,
            "RULE": _RULES[operands.rule],
            "H": heads,
            "D": width,
            "V": value_width,
            "K": 0 if edge is None or edge_weight is None else edge.size(1),
            "EDGE": 0 if edge is None else _EDGE_ROWS if edge_weight is None else _EDGE_PROJECTED,
            "MASK": mask,
            "BLOCK_D": block_d,
            "BLOCK_V": block_v,
            "STAGES": plan.num_stages,
        }

    def run(
        self,
        kernel: Any,
        work: Work,
        bucket: Bucket,
        programs: int | None = None,
        all_heads: bool = False,
        numbered: bool = False,
        **more: Any,
    ) -> None:
        """Launches a kernel over a bucket: a program a tile, or so many programs that share the tiles.

        ``numbered`` says that it reads or writes something per edge besides operands.
        """
        head_block = self.all_heads if all_heads else self.head_block
        grid = (bucket.programs if programs is None else programs, -(-self.settings["H"] // head_block))
        kernel[grid](
            work.row,
            work.begin,
            work.end,
            work.slot,
            work.col,
            work.perm if numbered or self.numbered else None,
            **self.tensors,
            **more,
            **self.settings,
            first=bucket.first,
            count=bucket.count,
            SPLIT=bucket.split,
            ROWS=bucket.rows,
            EDGES=bucket.edges,
            HEADS=head_block,
            **bounded(self.plan),
        )


def attend(
    work: Work, plan: TritonPlan, operands: AttentionOperands, with_weights: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention over each row's edges.

    Args:
        work: The graph's items, on the device of the operands.
        plan: How to go over them.
        operands: What it works on.
        with_weights: Also return the softmaxed weights.

    Returns:
        The output [rows, H, V]; acc [rows, 2, H], largest scores and inverse sums of exponentials; and acc
        [E, H], the weights, or an empty tensor.
    """
    call, value = _Call(plan, operands), operands.value
    heads, width = value.shape[1:]
    out = value.new_empty((work.rows, heads, width))
    softmax = value.new_empty((work.rows, 2, heads), dtype=call.acc)
    slot_softmax = slot_rows = None
    if work.slots:
        slot_softmax = value.new_empty((work.slots, 2, heads), dtype=call.acc)
        slot_rows = value.new_empty((work.slots, heads, width), dtype=call.acc)
    shape = (work.edges, heads) if with_weights else (0,)
    weights = value.new_empty(shape, dtype=call.acc)
    with on_device_of(value):
        for bucket in buckets(work, plan):
            results: dict[str, Any] = {
                "out": out,
                "softmax": softmax,
                "slot_softmax": slot_softmax,
                "slot_rows": slot_rows,
            }
            call.run(attend_kernel, work, bucket, **results)
        if work.slots:
            merge_kernel[(work.split_row.numel(), -(-heads // call.head_block))](
                work.split_row,
                work.split_begin,
                slot_softmax,
                slot_rows,
                out,
                softmax,
                H=heads,
                V=width,
                HEADS=call.head_block,
                BLOCK_V=call.settings["BLOCK_V"],
                **bounded(plan),
            )
        if with_weights:
            for bucket in buckets(work, plan):
                call.run(attend_weights_kernel, work, bucket, numbered=True, softmax=softmax, weights=weights)
    return out, softmax, weights


def attend_grad(
    work: Work,
    transposed: Work,
    plan: TritonPlan,
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
        work: The graph's items, on the device of the operands.
        transposed: Those of the transposed graph.
        plan: How to go over both.
        operands: What ``attend`` worked on.
        out: Its output.
        softmax: Its second result.
        weights: Its weights; needed with ``grad_weights`` only.
        grad: To the output.
        grad_weights: To the weights, or None.
        wanted: Which gradients, in the order of AttentionGrads.
    """
    call = _Call(plan, operands)
    for_value, for_key, for_query, for_att, for_edge, for_edge_weight = wanted
    grad, to_weights, product = grad.contiguous(), None, None
    if grad_weights is not None and weights is not None:
        to_weights = grad_weights.to(call.acc).contiguous()
        ones = to_weights.new_ones(transposed.rows, operands.heads)
        product = aggregate(work, plan, ones, weights * to_weights, None, None, False)
    statistics = softmax.new_empty(softmax.shape)
    shared = {
        "grad": grad,
        "grad_weights": to_weights,
        "statistics": statistics,
        "WEIGHTS": product is not None,
    }

    query, att, edge, edge_weight = _sweep_rows(
        call,
        work,
        {"out": out.contiguous(), "softmax": softmax, "weights_product": product, **shared},
        for_query,
        for_att and operands.att is not None,
        for_edge and operands.edge is not None,
        for_edge_weight and operands.edge_weight is not None,
    )
    value = key = None
    if for_value or (for_key and operands.key is not None):
        value, key = _sweep_columns(call, transposed, shared, for_value, for_key and operands.key is not None)
    return AttentionGrads(value, key, query, att, edge, edge_weight)


def _sweep_rows(
    call: _Call,
    work: Work,
    given: dict[str, Any],
    for_query: bool,
    for_att: bool,
    for_edge: bool,
    for_edge_weight: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """What destinations and edges have; also fills in the statistics for the other sweep."""
    operands, plan, acc = call.operands, call.plan, call.acc
    query = torch.empty_like(call.tensors["query"]) if for_query else None
    edge = torch.empty_like(call.tensors["edge"]) if for_edge else None
    slots = None
    if query is not None and work.slots:
        slots = query.new_empty((work.slots, query[:1].numel()), dtype=acc)
    launches = buckets(work, plan)
    if for_att:
        # Its sum takes registers, of which tiles as large as elsewhere would leave too few.
        fewer = 1 if operands.edge is None else 2
        launches = [
            replace(bucket, rows=max(bucket.rows // 2, 1), edges=max(bucket.edges // fewer, 1))
            for bucket in launches
        ]
    programs = [bucket.programs for bucket in launches]
    att_parts = weight_parts = None
    if for_att or for_edge_weight:
        most = _PROGRAMS
        if for_edge_weight:
            each = call.tensors["edge_weight"].numel() * acc.itemsize
            most = min(most, max(_WEIGHT_PARTS_BYTES // each, 1))
        programs = [min(number, most) for number in programs]
        if for_att:
            att_parts = operands.value.new_empty((sum(programs), *call.tensors["att"].shape), dtype=acc)
        if for_edge_weight:
            shape = (sum(programs), *call.tensors["edge_weight"].shape)
            weight_parts = operands.value.new_zeros(shape, dtype=acc)
    # A column of the edges' features takes part in all heads.
    all_heads = for_edge and operands.edge_weight is not None
    with on_device_of(operands.value):
        before = 0
        for bucket, number in zip(launches, programs, strict=True):
            call.run(
                attend_grad_dst_kernel,
                work,
                bucket,
                programs=number,
                all_heads=all_heads,
                numbered=given["WEIGHTS"],
                **given,
                grad_query=query,
                slot_rows=slots,
                att_parts=None if att_parts is None else att_parts[before:],
                grad_edge=edge,
                weight_parts=None if weight_parts is None else weight_parts[before:],
                FOR_QUERY=for_query,
                FOR_ATT=for_att,
                FOR_EDGE=for_edge,
                FOR_EDGE_WEIGHT=for_edge_weight,
            )
            before += number
        if query is not None and slots is not None:
            add_slots(work, plan, slots, None, query.view(work.rows, slots.size(1)))
    att = None if att_parts is None else att_parts.sum(0)
    edge_weight = None if weight_parts is None else weight_parts.sum(0).t().contiguous()
    return query, att, edge, edge_weight


def _sweep_columns(
    call: _Call, work: Work, given: dict[str, Any], for_value: bool, for_key: bool
) -> tuple[Tensor | None, Tensor | None]:
    """What sources have."""
    results: list[Tensor | None] = []
    slots: list[Tensor | None] = []
    for name, want in (("value", for_value), ("key", for_key)):
        result = torch.empty_like(call.tensors[name]) if want else None
        results.append(result)
        part = None
        if result is not None and work.slots:
            part = result.new_empty((work.slots, result[:1].numel()), dtype=call.acc)
        slots.append(part)
    value, key = results
    with on_device_of(call.operands.value):
        for bucket in buckets(work, call.plan):
            call.run(
                attend_grad_src_kernel,
                work,
                bucket,
                numbered=given["WEIGHTS"],
                **given,
                grad_value=value,
                grad_key=key,
                slot_values=slots[0],
                slot_keys=slots[1],
                FOR_VALUE=for_value,
                FOR_KEY=for_key,
            )
        for result, part in zip(results, slots, strict=True):
            if result is not None and part is not None:
                add_slots(work, call.plan, part, None, result.view(work.rows, part.size(1)))
    return value, key


def _packed(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()
