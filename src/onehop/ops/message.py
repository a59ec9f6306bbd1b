"""Reductions of messages that are programs: forward and backward in sweeps, with nothing for edges."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.kernels.cpu import message as kernel
from onehop.messages import Program, Sweep, backward_sweeps, forward_sweep, ties_sweep
from onehop.ops.batching import for_each
from onehop.reference.message import message as reference

DTYPES = kernel.DTYPES
"""What messages are computed in."""


def fits(program: Program) -> bool:
    """Return whether a program is short enough to be run, backward too."""
    wanted = (True,) * len(program.operands)
    return all(map(kernel.fits, backward_sweeps(program, wanted, "max")))


def reduce_messages(graph: Graph, program: Program, operands: Sequence[Tensor], reduce: str) -> Tensor:
    """Computes the message of every edge and reduces it over each destination, in one pass.

    Nothing of edges times width is made, but the gradients of operands that have a row for each edge.

    Args:
        graph: The graph, on the CPU.
        program: The message; one that :func:`fits`.
        operands: For each of the program's: [num_src, width], [num_dst, width], or [E, width] in the caller's
            order of edges; [width] of a fixed row; [rows, columns] of a matrix. All float32, or all float64.
            Differentiable.
        reduce: "sum", "mean", "max" or "min". Gradients of max and min are those of
            :func:`onehop.reference.aggregate`.

    Returns:
        [num_dst, width of the message]. 0 for destinations without edges.
    """
    if torch.is_grad_enabled() and any(operand.requires_grad for operand in operands):
        out: Tensor = _Recorded.apply(graph, program, reduce, *operands)  # type: ignore[no-untyped-call]
        return out
    return _reduced(graph, program, operands, reduce)


def _reduced(graph: Graph, program: Program, operands: Sequence[Tensor], reduce: str) -> Tensor:
    (out,) = _run(graph, forward_sweep(program, reduce), operands)
    return out.mul_(_shares(graph, out.dtype)) if reduce == "mean" else out


def _shares(graph: Graph, dtype: torch.dtype) -> Tensor:
    return graph.inverse_in_degrees(dtype).view(-1, 1)


def _run(graph: Graph, sweep: Sweep, tensors: Sequence[Tensor]) -> list[Tensor]:
    with torch.no_grad():
        inputs = [tensors[i.at].t() if i.turned else tensors[i.at] for i in sweep.inputs]
        return kernel.run(graph, sweep, inputs)


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, graph: Graph, program: Program, reduce: str, *operands: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.of = graph, program, reduce
        out = _reduced(graph, program, operands, reduce)
        ctx.save_for_backward(*operands, *([out] if reduce in ("max", "min") else []))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Any, ...]:
        wanted = ctx.needs_input_grad[3:]
        if grad is None:
            return (None,) * len(ctx.needs_input_grad)
        graph, program, reduce = ctx.of
        saved = ctx.saved_tensors
        operands, extrema = saved[: len(wanted)], saved[len(wanted) :]
        if torch.is_grad_enabled():
            found = _differentiable(graph, program, reduce, operands, wanted, grad)
        else:
            # Kernels read memory, which a batch of gradients does not have: they go over it one by one.
            found = for_each(partial(_gradients, graph, program, reduce, operands, extrema, wanted), grad)
        each = iter(found)
        return (None, None, None, *(next(each) if needed else None for needed in wanted))


def _gradients(
    graph: Graph,
    program: Program,
    reduce: str,
    operands: Sequence[Tensor],
    extrema: Sequence[Tensor],
    wanted: tuple[bool, ...],
    grad: Tensor,
) -> tuple[Tensor, ...]:
    """The gradients that are wanted; of "max" and "min" given what these were."""
    if reduce == "mean":
        grad = grad * _shares(graph, grad.dtype)
    for extremum in extrema:
        (ties,) = _run(graph, ties_sweep(program), (*operands, grad, extremum))
        # The zeros that torch's outputs start from tie too.
        grad = grad / ties.add_(extremum == 0)
    found: dict[int, Tensor] = {}
    for sweep in backward_sweeps(program, wanted, reduce):
        results = _run(graph, sweep, (*operands, grad, *extrema))
        for result, tensor in zip(sweep.results, results, strict=True):
            tensor = tensor.view_as(operands[result.of])
            found[result.of] = found[result.of] + tensor if result.of in found else tensor
    return tuple(
        found[at] if at in found else torch.zeros_like(operands[at])
        for at, needed in enumerate(wanted)
        if needed
    )


def _differentiable(
    graph: Graph,
    program: Program,
    reduce: str,
    operands: Sequence[Tensor],
    wanted: tuple[bool, ...],
    grad: Tensor,
) -> tuple[Tensor, ...]:
    """The gradients as functions that can be differentiated again, at the price of PyG: edges times width."""
    # New names for them all, so that an operand that was made from another does not count for that too.
    inputs = [t.view_as(t) if needed else t for t, needed in zip(operands, wanted, strict=True)]
    out = reference(graph.edge_index(), graph.num_dst, program, inputs, reduce)
    ends = [t for t, needed in zip(inputs, wanted, strict=True) if needed]
    found = torch.autograd.grad(out, ends, grad, create_graph=True, allow_unused=True)
    return tuple(torch.zeros_like(t) if g is None else g for g, t in zip(found, ends, strict=True))
