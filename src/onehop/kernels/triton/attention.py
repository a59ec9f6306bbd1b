"""Attention and its gradient on the GPU."""

from collections.abc import Sequence
from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from onehop.calls import Attention, AttentionGradients
from onehop.kernels.triton.aggregate import add_slots, aggregate
from onehop.kernels.triton.attention_call import AttentionCall
from onehop.kernels.triton.attention_forward import attend_kernel, merge
from onehop.kernels.triton.attention_grad_dst import attend_grad_dst_kernel
from onehop.kernels.triton.attention_grad_src import attend_grad_src_kernel
from onehop.kernels.triton.attention_parts import (
    DOT,
    NO_MASK,
    head_numbers,
)
from onehop.kernels.triton.attention_scores import (
    masked,
    of_destinations,
    of_sources,
    score_settings,
    scored,
)
from onehop.kernels.triton.item_tiles import caller_numbers, ends_ahead, item_rows, next_edges, tile_items
from onehop.kernels.triton.launch import buckets
from onehop.kernels.triton.work import Work
from onehop.plans.triton import TritonPlan


@triton.jit(do_not_specialize=["first", "count", "base", "threshold"])
def attend_weights_kernel(
    items, given, softmax, weights, first, count, base, threshold, factor, kept, FORM: tl.constexpr
):
    """Recomputes the weights from a known softmax; writes [E, H] in the caller's order."""
    item, real, begin, end, longest = tile_items(items, tl.program_id(0), first, count, FORM.ROWS)
    row = item_rows(items, item, real)
    head = tl.program_id(1) * FORM.HEADS + tl.arange(0, FORM.HEADS)
    column, value_column = tl.arange(0, FORM.BLOCK_D), tl.arange(0, FORM.BLOCK_V)
    queries = of_destinations(given, row[:, None], real[:, None], head, column, FORM)
    settings = score_settings(given, factor, head, column, FORM)
    less = head_numbers(softmax, 2 * row[:, None], real[:, None], head, FORM.H, FORM.ACC)
    inverse = head_numbers(softmax, 2 * row[:, None] + 1, real[:, None], head, FORM.H, FORM.ACC)

    ahead = ends_ahead(items, begin, end, 0, FORM.EDGES)
    for done in tl.range(0, longest, FORM.EDGES, num_stages=FORM.STAGES):
        at, inside = next_edges(begin, end, done, FORM.EDGES)
        source = ahead.to(tl.int64)
        ahead = ends_ahead(items, begin, end, done + FORM.EDGES, FORM.EDGES)
        number = caller_numbers(items, at, inside)
        values, keys = of_sources(given, source, inside, head, column, value_column, FORM)
        _, _, _, score = scored(given, values, keys, queries, settings, number, inside, head, column, FORM)
        valid = inside[:, :, None] & (head < FORM.H)[None, None, :]
        weight = tl.exp(tl.where(valid, score - less, 0.0)) * inverse
        # The dot product's weights are returned without dropout and mask.
        if FORM.MASK != NO_MASK and FORM.RULE != DOT:
            weight *= masked(given, number, inside, head, (base, threshold, kept), FORM)
        tl.store(weights + number[:, :, None] * FORM.H + head[None, None, :], weight, mask=valid)


# Most bytes of the sums of edge weights' gradients, of which every program has its own.
_WEIGHT_PARTS_BYTES = 2**26


def attend(
    work: Work, plan: TritonPlan, operands: Attention, with_weights: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention over each row's edges.

    Args:
        work: The graph's items, on the device of the operands.
        plan: The kernels' parameters.
        operands: The operands.
        with_weights: Also return the softmaxed weights.

    Returns:
        The output [rows, H, V]; acc [rows, 2, H], largest scores and inverse sums of exponentials; and acc
        [E, H], the weights, or an empty tensor.
    """
    call, value = AttentionCall(plan, operands), operands.value
    heads, width = value.shape[1:]
    out = value.new_empty((work.rows, heads, width))
    softmax = value.new_empty((work.rows, 2, heads), dtype=call.acc)
    slot_softmax, slot_rows = (work.slots_like(each, call.acc) for each in (softmax, out))
    shape = (work.edges, heads) if with_weights else (0,)
    weights = value.new_empty(shape, dtype=call.acc)
    results = {"out": out, "softmax": softmax, "slot_softmax": slot_softmax, "slot_rows": slot_rows}
    for bucket in buckets(work, plan):
        call.run(attend_kernel, work, bucket, results)
    if slot_softmax is not None and slot_rows is not None:
        merge(work.merges, (slot_softmax, slot_rows), (out, softmax), call.form.HEADS, plan)
    if with_weights:
        results = {"softmax": softmax, "weights": weights}
        for bucket in buckets(work, plan):
            call.run(attend_weights_kernel, work, bucket, results, numbered=True)
    return out, softmax, weights


def attend_grad(
    work: Work,
    transposed: Work,
    plan: TritonPlan,
    operands: Attention,
    out: Tensor,
    softmax: Tensor,
    weights: Tensor | None,
    grad: Tensor,
    grad_weights: Tensor | None,
    wanted: Sequence[bool],
) -> AttentionGradients:
    """Gradients of :func:`attend`: a sweep over the rows, then one over those of the transposed graph.

    Args:
        work: The graph's items, on the device of the operands.
        transposed: The items of the transposed graph.
        plan: The kernels' parameters, for both.
        operands: The operands of ``attend``.
        out: Its output.
        softmax: Its second result.
        weights: Its weights; needed with ``grad_weights`` only.
        grad: Gradient to the output.
        grad_weights: Gradient to the weights, or None.
        wanted: The gradients to compute, in the order of AttentionGradients.
    """
    call = AttentionCall(plan, operands)
    for_value, for_key, for_query, for_att, for_edge, for_edge_weight = wanted
    grad, to_weights, product = grad.contiguous(), None, None
    if grad_weights is not None and weights is not None:
        to_weights = grad_weights.to(call.acc).contiguous()
        ones = to_weights.new_ones(transposed.rows, operands.heads)
        product = aggregate(work, plan, ones, weights * to_weights, None, None, False)
    statistics = softmax.new_empty(softmax.shape)
    shared = {"grad": grad, "grad_weights": to_weights, "statistics": statistics}
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
    return AttentionGradients(value=value, key=key, query=query, att=att, edge=edge, edge_weight=edge_weight)


def _sweep_rows(
    call: AttentionCall,
    work: Work,
    given: dict[str, Tensor | None],
    for_query: bool,
    for_att: bool,
    for_edge: bool,
    for_edge_weight: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of destinations and edges; also fills in the statistics for the other sweep."""
    operands, plan, acc = call.operands, call.plan, call.acc
    with_weights = given["grad_weights"] is not None
    att = call.given.att if for_att else None
    edge_weight = call.given.edge_weight if for_edge_weight else None
    query, edge = (
        torch.empty_like(each) if each is not None and wanted else None
        for each, wanted in ((call.given.query, for_query), (call.given.edge, for_edge))
    )
    slots = None if query is None else work.slots_like(query.flatten(1), acc)
    launches = buckets(work, plan)
    if att is not None:
        # The sum of edge weights' gradients needs registers, so tiles are smaller than elsewhere.
        fewer = 1 if operands.edge is None and operands.value.itemsize > 2 else 2
        launches = [
            replace(bucket, rows=max(bucket.rows // 2, 1), edges=max(bucket.edges // fewer, 1))
            for bucket in launches
        ]
    # A column of the edges' features contributes to all heads.
    all_heads = for_edge and operands.edge_weight is not None
    choices = {
        "all_heads": all_heads,
        "numbered": with_weights,
        "WEIGHTS": with_weights,
        "FOR_QUERY": for_query,
        "FOR_ATT": for_att,
        "FOR_EDGE": for_edge,
        "FOR_EDGE_WEIGHT": for_edge_weight,
    }
    tensors = {
        **given,
        "grad_query": query,
        "slot_rows": slots,
        "grad_edge": edge,
        "att_parts": None,
        "weight_parts": None,
    }
    programs = [bucket.programs for bucket in launches]
    att_parts = weight_parts = None
    if att is not None or edge_weight is not None:
        # Sums over all edges are private to a program, so there are as many as run at once.
        sums = {"att_parts": att is not None, "weight_parts": edge_weight is not None}
        typed = {**tensors, **{name: given["statistics"] for name, there in sums.items() if there}}
        most = [call.resident(attend_grad_dst_kernel, work, bucket, typed, **choices) for bucket in launches]
        if edge_weight is not None:
            room = max(_WEIGHT_PARTS_BYTES // (edge_weight.numel() * acc.itemsize), 1)
            most = [min(number, room) for number in most]
        programs = [min(pair) for pair in zip(programs, most, strict=True)]
        if att is not None:
            att_parts = att.new_empty((sum(programs), *att.shape), dtype=acc)
        if edge_weight is not None:
            weight_parts = edge_weight.new_zeros((sum(programs), *edge_weight.shape), dtype=acc)
    before = 0
    for bucket, number in zip(launches, programs, strict=True):
        if att_parts is not None:
            tensors["att_parts"] = att_parts[before:]
        if weight_parts is not None:
            tensors["weight_parts"] = weight_parts[before:]
        call.run(attend_grad_dst_kernel, work, bucket, tensors, programs=number, **choices)
        before += number
    if query is not None:
        add_slots(work, plan, slots, None, query.flatten(1))
    att = None if att_parts is None else att_parts.sum(0)
    edge_weight = None if weight_parts is None else weight_parts.sum(0).t().contiguous()
    return query, att, edge, edge_weight


def _sweep_columns(
    call: AttentionCall, work: Work, given: dict[str, Tensor | None], for_value: bool, for_key: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of sources."""
    results: list[Tensor | None] = []
    slots: list[Tensor | None] = []
    for operand, wanted in ((call.given.value, for_value), (call.given.key, for_key)):
        result = part = None
        if operand is not None and wanted:
            result = torch.empty_like(operand)
            part = work.slots_like(result.flatten(1), call.acc)
        results.append(result)
        slots.append(part)
    names = ("grad_value", "grad_key", "slot_values", "slot_keys")
    tensors = {**given, **dict(zip(names, results + slots, strict=True))}
    with_weights = given["grad_weights"] is not None
    for bucket in buckets(work, call.plan):
        call.run(
            attend_grad_src_kernel,
            work,
            bucket,
            tensors,
            numbered=with_weights,
            WEIGHTS=with_weights,
            FOR_VALUE=for_value,
            FOR_KEY=for_key,
        )
    for result, part in zip(results, slots, strict=True):
        if result is not None:
            add_slots(work, call.plan, part, None, result.flatten(1))
    return results[0], results[1]
