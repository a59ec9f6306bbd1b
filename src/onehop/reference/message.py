"""Naive message programs: every edge's rows are gathered, computed by torch, and reduced."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onehop.messages import EDGES, End, Program

_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "add": lambda a, b, p, q: a + b,
    "subtract": lambda a, b, p, q: a - b,
    "multiply": lambda a, b, p, q: a * b,
    "divide": lambda a, b, p, q: a / b,
    "product": lambda a, b, p, q: a @ b,
    "shift": lambda a, p, q: a + p,
    "scale": lambda a, p, q: a * p,
    "invert": lambda a, p, q: p / a,
    "negate": lambda a, p, q: -a,
    "absolute": lambda a, p, q: a.abs(),
    "relu": lambda a, p, q: a.relu(),
    "leaky_relu": lambda a, p, q: functional.leaky_relu(a, p),
    "sigmoid": lambda a, p, q: a.sigmoid(),
    "tanh": lambda a, p, q: a.tanh(),
    "erf": lambda a, p, q: a.erf(),
    "softplus": functional.softplus,
    "elu": lambda a, p, q: functional.elu(a, p),
    "exp": lambda a, p, q: a.exp(),
    "log": lambda a, p, q: a.log(),
    "sqrt": lambda a, p, q: a.sqrt(),
    "clamp": lambda a, p, q: a.clamp(p, q),
    "detach": lambda a, p, q: a.detach(),
}


def message(
    edge_index: Tensor, num_dst: int, program: Program, operands: Sequence[Tensor], reductions: Sequence[str]
) -> tuple[Tensor, ...]:
    """Compute the messages of all edges, and reduce them over each destination in several ways.

    Args:
        edge_index: [2, E], with sources in row 0 and destinations in row 1.
        num_dst: Number of destinations.
        program: The program that computes the message.
        operands: A tensor for each of the program's operands: [num_src, width], [num_dst, width] or [E,
            width]; [width] for a fixed row; [rows, columns] for a matrix.
        reductions: Some of "sum", "mean", "squares" (the mean of the squares), "max" and "min";
            :func:`.aggregate` describes the gradients of max and min. "edges" returns the messages without
            reduction.

    Returns:
        For each reduction, [num_dst, width of the message]; for "edges", [E, width].
    """
    source, target = edge_index[0].long(), edge_index[1].long()
    edges = source.numel()
    values: list[Any] = []
    for operand, tensor in zip(program.operands, operands, strict=True):
        if operand.end is End.SOURCE:
            values.append(tensor.index_select(0, source))
        elif operand.end is End.TARGET:
            values.append(tensor.index_select(0, target))
        elif operand.end is End.FIXED:
            values.append(tensor.expand(edges, -1))
        else:
            values.append(tensor)
    for step in program.steps:
        inputs = [values[value] for value in step.inputs]
        if step.operation == "spread":
            values.append(_spread(inputs[0], step.width, int(step.numbers[0]) or 1))
        elif step.operation == "collect":
            values.append(_collected(inputs[0], step.width, int(step.numbers[0]) or 1))
        elif step.operation == "largest":
            values.append(_collected(inputs[0].detach(), step.width, int(step.numbers[0]) or 1, torch.amax))
        elif step.operation == "row_sum":
            values.append(_reduced(inputs[0], target, num_dst, "sum").index_select(0, target))
        elif step.operation == "row_max":
            values.append(_reduced(inputs[0].detach(), target, num_dst, "max").index_select(0, target))
        else:
            values.append(_FUNCTIONS[step.operation](*inputs, *step.numbers))
    result = values[program.result]
    return tuple(
        result if reduce == EDGES else _reduced(result, target, num_dst, reduce) for reduce in reductions
    )


def _spread(rows: Tensor, width: int, block: int) -> Tensor:
    """Repeat each block of ``block`` numbers until the row has ``width`` numbers."""
    times = width // rows.size(1)
    each = rows.reshape(len(rows), rows.size(1) // block, 1, block)
    return each.expand(-1, -1, times, -1).flatten(1)


def _collected(
    rows: Tensor, width: int, block: int, fold: Callable[[Tensor, int], Tensor] = torch.sum
) -> Tensor:
    """Fold consecutive blocks of ``block`` numbers, number by number, to ``width`` numbers."""
    count = rows.size(1) // width
    return fold(rows.reshape(len(rows), width // block, count, block), 2).flatten(1)


def _reduced(rows: Tensor, target: Tensor, num_dst: int, reduce: str) -> Tensor:
    zeros = rows.new_zeros(num_dst, rows.size(1))
    if reduce in ("max", "min"):
        index = target.view(-1, 1).expand_as(rows)
        return zeros.scatter_reduce(0, index, rows, reduce=f"a{reduce}", include_self=False)
    out = zeros.index_add(0, target, rows * rows if reduce == "squares" else rows)
    if reduce == "sum":
        return out
    return out / torch.bincount(target, minlength=num_dst).clamp(min=1).to(out.dtype).view(-1, 1)
