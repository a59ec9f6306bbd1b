"""Attention by dot products and its gradient, over the windows of a graph: see :mod:`.blocks`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from onehop.calls import Attention, AttentionGradients
from onehop.kernels.triton.aggregate import add_slots
from onehop.kernels.triton.attention_call import Given
from onehop.kernels.triton.attention_forward import merge
from onehop.kernels.triton.blocks import DTYPES, MOST_HEAD_WIDTH, Blocks
from onehop.kernels.triton.blocks_attention_forward import block_attend_kernel
from onehop.kernels.triton.blocks_attention_grad_dst import block_grad_dst_kernel
from onehop.kernels.triton.blocks_attention_grad_src import block_grad_src_kernel
from onehop.kernels.triton.launch import LEAST_COLUMNS, columns_at_a_time, on_device_of, windows_of
from onehop.kernels.triton.numbers import dropout_words
from onehop.kernels.triton.registers import bounded
from onehop.plans.triton import TritonPlan
from onehop.plans.triton_default import power_of_two

_LEAST_WIDTH = 16


def applies(operands: Attention) -> bool:
    """Return whether blocks can compute attention: dot products of 16-bit features, without edge features.

    Heads of more than 128 columns and explicit masks are not supported.
    """
    return (
        operands.rule == "dot"
        and operands.value.dtype in DTYPES
        and operands.edge is None
        and operands.mask is None
        and max(operands.query.size(2), operands.value.size(2)) <= MOST_HEAD_WIDTH
    )


@dataclass(frozen=True)
class WindowForm:
    """Compile-time constants of an attention kernel over windows, besides dtypes.

    Attributes:
        H: Heads.
        D: Columns of keys.
        V: Columns of values.
        DROPOUT: Whether weights are dropped.
        SPLIT: Whether pieces of windows may be among the items.
        COLUMNS: Columns of a window that are read at a time.
        BLOCK_D: Columns of a tile, at least D.
        BLOCK_V: Columns of a tile, at least V.
        STAGES: Number of tiles in flight.
    """

    H: int
    D: int
    V: int
    DROPOUT: bool
    SPLIT: bool
    COLUMNS: int
    BLOCK_D: int
    BLOCK_V: int
    STAGES: int


class _WindowCall:
    """A call's operands and form, and the launcher of its kernels."""

    def __init__(self, plan: TritonPlan, operands: Attention) -> None:
        self.plan = plan
        heads, value_width = operands.value.shape[1:]
        width = operands.query.size(2)
        key = operands.key
        self.given = Given(
            value=operands.value.contiguous(),
            key=None if key is None else key.contiguous(),
            query=operands.query.contiguous(),
            att=None,
            edge=None,
            edge_weight=None,
            mask=None,
        )
        self.form = WindowForm(
            H=heads,
            D=width,
            V=value_width,
            DROPOUT=operands.dropout > 0,
            SPLIT=False,
            COLUMNS=columns_at_a_time(plan),
            BLOCK_D=max(power_of_two(width), _LEAST_WIDTH),
            BLOCK_V=max(power_of_two(value_width), _LEAST_WIDTH),
            STAGES=plan.num_stages,
        )
        self.numbers: dict[str, Any] = {
            **dropout_words(operands),
            "factor": operands.factor,
            "kept": 1 / (1 - operands.dropout),
        }

    def run(
        self,
        kernel: Any,
        blocks: Blocks,
        tensors: Mapping[str, Tensor | None],
        columns: int | None = None,
        **choices: bool,
    ) -> None:
        """Launches a kernel over all items and heads; ``columns``: of a window at a time, None the plan's."""
        form = replace(self.form, SPLIT=blocks.slots > 0, COLUMNS=columns or self.form.COLUMNS)
        kernel[(blocks.items, form.H)](
            windows_of(blocks, form.DROPOUT),
            self.given,
            **tensors,
            **self.numbers,
            rows=blocks.rows,
            FORM=form,
            **choices,
            **bounded(self.plan),
        )


def attend(blocks: Blocks, plan: TritonPlan, operands: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """Attention over each row's edges.

    Args:
        blocks: The graph's windows, on the device of the operands.
        plan: The kernels' parameters.
        operands: The operands.

    Returns:
        The output [rows, H, V]; float32 [rows, 2, H], largest scores and inverse sums of exponentials; and an
        empty tensor instead of weights.
    """
    call, value = _WindowCall(plan, operands), operands.value
    heads, width = value.shape[1:]
    out = value.new_empty((blocks.rows, heads, width))
    softmax = value.new_empty((blocks.rows, 2, heads), dtype=torch.float32)
    weights = softmax.new_empty(0)
    if not blocks.items or not heads:
        return out, softmax, weights
    slot_softmax = slot_rows = None
    if blocks.slots:
        slot_softmax = softmax.new_empty((blocks.slots, 2, heads))
        slot_rows = softmax.new_empty((blocks.slots, heads, width))
    with on_device_of(value):
        call.run(
            block_attend_kernel,
            blocks,
            {"out": out, "softmax": softmax, "slot_softmax": slot_softmax, "slot_rows": slot_rows},
        )
        if slot_softmax is not None and slot_rows is not None:
            merge(blocks.merges, (slot_softmax, slot_rows), (out, softmax), 1, plan)
    return out, softmax, weights


def attend_grad(
    blocks: Blocks,
    transposed: Blocks,
    plan: TritonPlan,
    operands: Attention,
    out: Tensor,
    softmax: Tensor,
    grad: Tensor,
    wanted: Sequence[bool],
) -> AttentionGradients:
    """Gradients of :func:`attend`: a sweep over the windows, then one over those of the transposed graph.

    Args:
        blocks: The graph's windows, on the device of the operands.
        transposed: The items of the transposed graph.
        plan: The kernels' parameters, for both.
        operands: The operands of ``attend``.
        out: Its output.
        softmax: Its second result.
        grad: Gradient to the output.
        wanted: The gradients to compute, in the order of AttentionGradients.
    """
    call = _WindowCall(plan, operands)
    for_value, for_key, for_query = wanted[:3]
    grad, statistics = grad.contiguous(), torch.empty_like(softmax)
    query, query_slots = _result(call.given.query, blocks, for_query)
    key, key_slots = _result(call.given.key, transposed, for_key)
    value, value_slots = _result(call.given.value, transposed, for_value)
    with on_device_of(operands.value):
        if blocks.items and operands.heads:
            call.run(
                block_grad_dst_kernel,
                blocks,
                {
                    "out": out.contiguous(),
                    "softmax": softmax,
                    "grad": grad,
                    "statistics": statistics,
                    "grad_query": query,
                    "slot_rows": query_slots,
                },
                FOR_QUERY=for_query,
            )
        if transposed.items and operands.heads and (for_value or for_key):
            # Its two sums need registers, so fewer columns are processed at a time than elsewhere.
            call.run(
                block_grad_src_kernel,
                transposed,
                {
                    "grad": grad,
                    "statistics": statistics,
                    "grad_value": value,
                    "grad_key": key,
                    "slot_values": value_slots,
                    "slot_keys": key_slots,
                },
                columns=max(columns_at_a_time(plan) // 2, LEAST_COLUMNS),
                FOR_VALUE=for_value,
                FOR_KEY=for_key,
            )
        for windows, result, slots in (
            (blocks, query, query_slots),
            (transposed, key, key_slots),
            (transposed, value, value_slots),
        ):
            if result is not None and slots is not None:
                add_slots(windows, plan, slots, None, result.view(windows.rows, slots.size(1)))
    return AttentionGradients(value=value, key=key, query=query)


def _result(of: Tensor | None, blocks: Blocks, wanted: bool) -> tuple[Tensor | None, Tensor | None]:
    """The tensor for a gradient, and float32 [slots, H * D] for the parts of split rows."""
    if of is None or not wanted:
        return None, None
    slots = None
    if blocks.slots:
        slots = of.new_empty((blocks.slots, of[:1].numel()), dtype=torch.float32)
    return torch.empty_like(of), slots
