"""Messages of a program, reduced over destinations: forward and backward in sweeps over the edges."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.kernels.cpu import message as kernel
from onehop.messages import EXTREMA, Program, Sweep, backward_sweeps, forward_sweeps, ties_sweep
from onehop.ops.batching import for_each
from onehop.reference.message import message as reference

DTYPES = kernel.DTYPES
"""What messages are computed in."""

Reductions = tuple[str, ...]


def fits(program: Program, reductions: Reductions) -> bool:
    """Return whether a program is short enough to be run, backward too."""
    wanted = (True,) * len(program.operands)
    return all(map(kernel.fits, backward_sweeps(program, wanted, reductions)))


def reduce_messages(
    graph: Graph, program: Program, operands: Sequence[Tensor], reductions: Reductions
) -> tuple[Tensor, ...]:
    """Computes the message of every edge and reduces it over each destination, in all these ways at once.

    Nothing of edges times width is made, but the gradients of operands that have a row for each edge.

    Args:
        graph: The graph, on the CPU.
        program: The message; one that :func:`fits`.
        operands: For each of the program's: [num_src, width], [num_dst, width], or [E, width] in the caller's
            order of edges; [width] of a fixed row; [rows, columns] of a matrix. All float32, or all float64.
            Differentiable.
        reductions: Some of :data:`onehop.messages.REDUCTIONS`. Gradients of "max" and "min" are those of
            :func:`onehop.reference.aggregate`.

    Returns:
        For each reduction, [num_dst, width of the message]. 0 for destinations without edges.
    """
    if torch.is_grad_enabled() and any(operand.requires_grad for operand in operands):
        found: tuple[Tensor, ...] = _Recorded.apply(graph, program, reductions, *operands)  # type: ignore[no-untyped-call]
        return found
    return _reduced(graph, program, operands, reductions)[0]


def _reduced(
    graph: Graph, program: Program, operands: Sequence[Tensor], reductions: Reductions
) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
    """The reductions, and the results of the program's steps over rows; None of those that nothing needs."""
    tensors = dict(enumerate(operands))
    results = _run(graph, forward_sweeps(program, reductions), tensors)
    shares = graph.inverse_in_degrees(operands[0].dtype).view(-1, 1)
    outs = tuple(
        out.mul_(shares) if reduce in ("mean", "squares") else out
        for reduce, (_, out) in zip(reductions, results, strict=True)
    )
    own = len(operands)
    return outs, tuple(tensors.get(own + number) for number in range(len(program.of_rows)))


def _run(graph: Graph, sweeps: Sequence[Sweep], tensors: dict[int, Tensor]) -> list[tuple[int, Tensor]]:
    """Runs sweeps on numbered tensors, and adds those of steps over rows to them; returns the other results.

    Each comes with what it is of.
    """
    others = []
    first = max(tensors) + 1
    with torch.no_grad():
        for sweep in sweeps:
            inputs = [tensors[i.at].t() if i.turned else tensors[i.at] for i in sweep.inputs]
            for result, tensor in zip(sweep.results, kernel.run(graph, sweep, inputs), strict=True):
                if result.of < first:
                    others.append((result.of, tensor))
                else:
                    tensors[result.of] = tensor
    return others


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, graph: Graph, program: Program, reductions: Reductions, *operands: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.of = graph, program, reductions
        outs, of_rows = _reduced(graph, program, operands, reductions)
        extrema = [out for reduce, out in zip(reductions, outs, strict=True) if reduce in EXTREMA]
        ctx.save_for_backward(*operands, *of_rows, *extrema)
        return outs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        wanted = ctx.needs_input_grad[3:]
        given = tuple(grad for grad in grads if grad is not None)
        if not given:
            return (None,) * len(ctx.needs_input_grad)
        graph, program, reductions = ctx.of
        saved = ctx.saved_tensors
        if torch.is_grad_enabled():
            operands = saved[: len(wanted)]
            found = _differentiable(graph, program, reductions, operands, wanted, grads)
        else:
            pulled = tuple(r for r, grad in zip(reductions, grads, strict=True) if grad is not None)
            kept = saved[: len(saved) - sum(reduce in EXTREMA for reduce in reductions)]
            each = iter(saved[len(kept) :])
            extrema = tuple(
                extremum
                for reduce, grad in zip(reductions, grads, strict=True)
                if reduce in EXTREMA
                for extremum in [next(each)]
                if grad is not None
            )
            # Kernels read memory, which a batch of gradients does not have: they go over it one by one.
            found = for_each(partial(_gradients, graph, program, pulled, kept, extrema, wanted), *given)
        left = iter(found)
        return (None, None, None, *(next(left) if needed else None for needed in wanted))


def _gradients(
    graph: Graph,
    program: Program,
    reductions: Reductions,
    kept: Sequence[Any],
    extrema: Sequence[Tensor],
    wanted: tuple[bool, ...],
    *grads: Tensor,
) -> tuple[Tensor, ...]:
    """The gradients that are wanted.

    Args:
        graph: The graph.
        program: The message.
        reductions: Those that have a gradient,
        kept: The operands, and the results of steps over rows.
        extrema: What the reductions gave that are extrema.
        wanted: For each operand, whether its gradient is wanted.
        *grads: For each reduction.
    """
    pulled = _of_messages(graph, reductions, grads)
    tensors: dict[int, Any] = dict(enumerate((*kept, *pulled, *extrema)))
    if extrema:
        ties = iter(_run(graph, (ties_sweep(program, reductions),), tensors))
        places = [at for at, reduce in enumerate(reductions) if reduce in EXTREMA]
        for at, extremum in zip(places, extrema, strict=True):
            _, count = next(ties)
            # The zeros that torch's outputs start from tie too. Each share lies where the count was.
            tensors[len(kept) + at] = torch.div(pulled[at], count.add_(extremum == 0), out=count)
    found: dict[int, Tensor] = {}
    for at, tensor in _run(graph, backward_sweeps(program, wanted, reductions), tensors):
        tensor = tensor.view_as(kept[at])
        found[at] = found[at] + tensor if at in found else tensor
    return tuple(
        found[at] if at in found else torch.zeros_like(kept[at]) for at, needed in enumerate(wanted) if needed
    )


def _of_messages(graph: Graph, reductions: Reductions, grads: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of sums, and of half the sums of squares, given those of what was made of the sums."""
    shares = graph.inverse_in_degrees(grads[0].dtype).view(-1, 1)
    factors = {"mean": shares, "squares": 2 * shares}
    return [
        grad * factors[reduce] if reduce in factors else grad
        for reduce, grad in zip(reductions, grads, strict=True)
    ]


def _differentiable(
    graph: Graph,
    program: Program,
    reductions: Reductions,
    operands: Sequence[Tensor],
    wanted: tuple[bool, ...],
    grads: Sequence[Tensor | None],
) -> tuple[Tensor, ...]:
    """The gradients as functions that can be differentiated again, at the price of PyG: edges times width."""
    # New names for them all, so that an operand that was made from another does not count for that too.
    inputs = [t.view_as(t) if needed else t for t, needed in zip(operands, wanted, strict=True)]
    outs = reference(graph.edge_index(), graph.num_dst, program, inputs, reductions)
    ends = [t for t, needed in zip(inputs, wanted, strict=True) if needed]
    pairs = [(out, grad) for out, grad in zip(outs, grads, strict=True) if grad is not None]
    found = torch.autograd.grad(
        [out for out, _ in pairs], ends, [grad for _, grad in pairs], create_graph=True, allow_unused=True
    )
    return tuple(torch.zeros_like(t) if g is None else g for g, t in zip(found, ends, strict=True))
