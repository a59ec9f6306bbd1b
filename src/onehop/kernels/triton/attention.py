"""Attention and its gradient on the GPU."""

from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from onehop.calls import Aggregate, Attention, AttentionGrad, AttentionGradients
from onehop.kernels.triton.aggregate import add_slots, aggregate
from onehop.kernels.triton.attention_call import AttentionCall
from onehop.kernels.triton.attention_forward import attend_kernel, merge
from onehop.kernels.triton.attention_grad import attend_grad_dst_kernel, attend_grad_src_kernel
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
from onehop.kernels.triton.item_tiles import ends_ahead, item_rows, step_ahead, tile_items
from onehop.kernels.triton.launch import buckets
from onehop.kernels.triton.work import Work
from onehop.plans.triton import TritonPlan


@triton.jit(do_not_specialize=["first", "count", "base", "threshold"])
def attend_weights_kernel(
    items, operands, softmax, weights, first, count, base, threshold, factor, kept_factor, FORM: tl.constexpr
):
    """Recomputes the weights from known softmax statistics; writes [E, H] in the caller's order."""
    item, real, begin, end, longest = tile_items(items, tl.program_id(0), first, count, FORM.ROWS)
    row = item_rows(items, item, real)
    head = tl.program_id(1) * FORM.HEADS + tl.arange(0, FORM.HEADS)
    column, value_column = tl.arange(0, FORM.BLOCK_D), tl.arange(0, FORM.BLOCK_V)
    queries = of_destinations(operands, row[:, None], real[:, None], head, column, FORM)
    settings = score_settings(operands, factor, head, column, FORM)
    less = head_numbers(softmax, 2 * row[:, None], real[:, None], head, FORM.H, FORM.ACC)
    inverse = head_numbers(softmax, 2 * row[:, None] + 1, real[:, None], head, FORM.H, FORM.ACC)

    ahead = ends_ahead(items, begin, end, 0, FORM.EDGES)
    for done in tl.range(0, longest, FORM.EDGES, num_stages=FORM.STAGES):
        inside, source, number, ahead = step_ahead(items, ahead, begin, end, done, FORM.EDGES)
        values, keys = of_sources(operands, source, inside, head, column, value_column, FORM)
        _, _, _, score = scored(operands, values, keys, queries, settings, number, inside, head, column, FORM)
        valid = inside[:, :, None] & (head < FORM.H)[None, None, :]
        weight = tl.exp(tl.where(valid, score - less, 0.0)) * inverse
        # For the dot product, weights are returned without dropout and mask.
        if FORM.MASK != NO_MASK and FORM.RULE != DOT:
            weight *= masked(operands, number, inside, head, (base, threshold, kept_factor), FORM)
        tl.store(weights + number[:, :, None] * FORM.H + head[None, None, :], weight, mask=valid)


# The maximal bytes of the sums of edge weights' gradients; every program has separate sums.
_WEIGHT_PARTS_BYTES = 2**26


def attend(work: Work, plan: TritonPlan, operands: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """Return the results of a call; ``work`` is on the device of the operands."""
    call, value, with_weights = AttentionCall(plan, operands), operands.value, operands.with_weights
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
    work: Work, transposed: Work, plan: TritonPlan, grad_call: AttentionGrad
) -> AttentionGradients:
    """Return the gradients of :func:`attend`, by a sweep over rows and one over the transposed graph.

    Args:
        work: The graph's items, on the device of the operands.
        transposed: The items of the transposed graph.
        plan: The kernels' parameters, for both.
        grad_call: The call.
    """
    operands, softmax, grad_weights = grad_call.call, grad_call.softmax, grad_call.grad_weights
    call = AttentionCall(plan, operands)
    needs = {
        name: want and getattr(operands, name) is not None
        for name, want in zip(AttentionGradients._fields, grad_call.wanted, strict=True)
    }
    to_weights = product = None
    if grad_weights is not None and grad_call.weights is not None:
        to_weights = grad_weights.to(call.acc).contiguous()
        ones = to_weights.new_ones(transposed.rows, operands.heads)
        product = aggregate(work, plan, Aggregate(x=ones, weight=grad_call.weights * to_weights))
    statistics = softmax.new_empty(softmax.shape)
    shared = {"grad": grad_call.grad.contiguous(), "grad_weights": to_weights, "statistics": statistics}
    inputs = {"out": grad_call.out.contiguous(), "softmax": softmax, "weights_product": product, **shared}
    gradients = _sweep_rows(call, work, inputs, needs)
    if needs["value"] or needs["key"]:
        gradients |= _sweep_columns(call, transposed, shared, needs)
    return AttentionGradients(**gradients)


def _sweep_rows(
    call: AttentionCall,
    work: Work,
    inputs: dict[str, Tensor | None],
    needs: dict[str, bool],
) -> dict[str, Tensor | None]:
    """Return gradients of destinations and edges, by name; also fill in statistics for the other sweep."""
    operands, plan, acc = call.operands, call.plan, call.acc
    with_weights = inputs["grad_weights"] is not None
    att = call.packed.att if needs["att"] else None
    edge_weight = call.packed.edge_weight if needs["edge_weight"] else None
    query, edge = (_empty_like(call, name, needs) for name in ("query", "edge"))
    slots = None if query is None else work.slots_like(query.flatten(1), acc)
    launches = buckets(work, plan)
    if att is not None:
        # The sum of edge weights' gradients needs registers, so tiles are smaller here than in other kernels.
        fewer = 1 if operands.edge is None and operands.value.itemsize > 2 else 2
        launches = [
            replace(bucket, rows=max(bucket.rows // 2, 1), edges=max(bucket.edges // fewer, 1))
            for bucket in launches
        ]
    choices = {
        # A column of the edges' features contributes to all heads.
        "all_heads": needs["edge"] and operands.edge_weight is not None,
        "numbered": with_weights,
        "WEIGHTS": with_weights,
        **{f"FOR_{name.upper()}": needs[name] for name in ("query", "att", "edge", "edge_weight")},
    }
    tensors = {**inputs, "grad_query": query, "slot_rows": slots, "grad_edge": edge}
    tensors |= {"att_parts": None, "weight_parts": None}
    programs = [bucket.programs for bucket in launches]
    att_parts = weight_parts = None
    if att is not None or edge_weight is not None:
        # Sums over all edges are private to each program, so there are only as many programs as run at once.
        sums = {"att_parts": att is not None, "weight_parts": edge_weight is not None}
        typed = {**tensors, **{name: inputs["statistics"] for name, there in sums.items() if there}}
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
    return {"query": query, "att": att, "edge": edge, "edge_weight": edge_weight}


def _sweep_columns(
    call: AttentionCall, work: Work, inputs: dict[str, Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return gradients of sources, by name."""
    results = {name: _empty_like(call, name, needs) for name in ("value", "key")}
    slots = [
        None if each is None else work.slots_like(each.flatten(1), call.acc) for each in results.values()
    ]
    names = ("grad_value", "grad_key", "slot_values", "slot_keys")
    tensors = {**inputs, **dict(zip(names, [*results.values(), *slots], strict=True))}
    with_weights = inputs["grad_weights"] is not None
    for bucket in buckets(work, call.plan):
        call.run(
            attend_grad_src_kernel,
            work,
            bucket,
            tensors,
            numbered=with_weights,
            WEIGHTS=with_weights,
            FOR_VALUE=needs["value"],
            FOR_KEY=needs["key"],
        )
    for result, part in zip(results.values(), slots, strict=True):
        if result is not None:
            add_slots(work, call.plan, part, None, result.flatten(1))
    return results


def _empty_like(call: AttentionCall, name: str, needs: dict[str, bool]) -> Tensor | None:
    """Return memory for the gradient of a packed operand; None if the gradient is not needed."""
    return torch.empty_like(getattr(call.packed, name)) if needs[name] else None
