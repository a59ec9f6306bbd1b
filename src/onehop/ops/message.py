"""Computation and reduction of a program's messages, forward and backward, in sweeps over the edges."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.kernels.cpu import message as kernel
from onehop.messages import EXTREMA, Program, Sweep, backward_sweeps, forward_sweeps, ties_sweep
from onehop.ops.recomputed import Needs, Whole, recomputed
from onehop.reference.message import message as reference

DTYPES = kernel.DTYPES
"""The dtypes in which messages are computed."""

Reductions = tuple[str, ...]


def fits(program: Program, reductions: Reductions) -> bool:
    """Return whether a program is short enough to run forward and backward."""
    needs = (True,) * len(program.operands)
    return all(map(kernel.fits, backward_sweeps(program, needs, reductions)))


def reduce_messages(
    graph: Graph,
    program: Program,
    operands: Sequence[Tensor],
    reductions: Reductions,
    guarded: Sequence[Tensor] = (),
) -> tuple[Tensor, ...]:
    """Compute the message of every edge and reduce it over each destination, by all reductions at once.

    No tensor of size edges times width is made, except gradients of operands with a row for each edge, and
    the messages themselves if requested.

    Args:
        graph: The graph, on the CPU.
        program: The program of the message; :func:`fits` must hold.
        operands: For each operand of the program: [num_src, width], [num_dst, width], or [E, width] in the
            caller's edge order; [width] for a fixed row; [rows, columns] for a matrix. All float32, or all
            float64. Differentiable.
        reductions: Some of :data:`onehop.messages.REDUCTIONS`. Gradients of "max" and "min" are those of
            :func:`onehop.reference.aggregate`.
        guarded: Tensors from which the operands are made; torch raises an error if one is written to before
            the backward pass.

    Returns:
        For each reduction, [num_dst, width of the message], 0 for destinations without edges; for "edges" the
        messages, [E, width], in the caller's edge order.
    """
    messages = _Messages(graph, program, reductions, tuple(guarded))
    reduced: tuple[Tensor, ...] = recomputed(messages, *operands)
    return reduced


@dataclass(frozen=True, slots=True)
class _Messages(Whole):
    """Messages that are reduced in sweeps.

    Attributes:
        graph: The graph.
        program: The message.
        reductions: The reductions.
        guarded: Tensors; autograd reports writes to them before the backward pass.
    """

    graph: Graph
    program: Program
    reductions: Reductions
    guarded: tuple[Tensor, ...] = ()

    def forward(self, operands: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
        """Return the reductions, and the results of the program's steps over rows, followed by the extrema.

        A step's result is None if it is not needed.
        """
        tensors = dict(enumerate(operands))
        results = _run(self.graph, forward_sweeps(self.program, self.reductions), tensors)
        shares = self.graph.inverse_in_degrees(operands[0].dtype).view(-1, 1)
        outs = tuple(
            out.mul_(shares) if reduce in ("mean", "squares") else out
            for reduce, (_, out) in zip(self.reductions, results, strict=True)
        )
        first = len(operands)
        of_rows = (tensors.get(first + number) for number in range(len(self.program.of_rows)))
        extrema = (out for reduce, out in zip(self.reductions, outs, strict=True) if reduce in EXTREMA)
        return outs, (*of_rows, *extrema, *self.guarded)

    def gradients(
        self, needs: Needs, operands: Sequence[Tensor], saved: Sequence[Any], *grads: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Return the gradients of the operands that need one."""
        graph, program = self.graph, self.program
        steps = len(program.of_rows)
        inputs, each = (*operands, *saved[:steps]), iter(saved[steps:])
        extremum_of = [next(each) if reduce in EXTREMA else None for reduce in self.reductions]
        numbers = [at for at, grad in enumerate(grads) if grad is not None]
        reductions = tuple(self.reductions[at] for at in numbers)
        pulled = _of_messages(graph, reductions, [grad for grad in grads if grad is not None])
        extrema = {place: extremum_of[at] for place, at in enumerate(numbers) if extremum_of[at] is not None}
        tensors: dict[int, Any] = dict(enumerate((*inputs, *pulled, *extrema.values())))
        if extrema:
            ties = iter(_run(graph, (ties_sweep(program, reductions),), tensors))
            for place, extremum in extrema.items():
                _, count = next(ties)
                # torch's outputs start from zeros, which can tie too. Each share overwrites the count.
                tensors[len(inputs) + place] = torch.div(pulled[place], count.add_(extremum == 0), out=count)
        gradients: dict[int, Tensor] = {}
        for at, tensor in _run(graph, backward_sweeps(program, needs, reductions), tensors):
            tensor = tensor.view_as(inputs[at])
            gradients[at] = gradients[at] + tensor if at in gradients else tensor
        return tuple(
            gradients[at] if at in gradients else torch.zeros_like(inputs[at])
            for at, needed in enumerate(needs)
            if needed
        )

    def whole(self, *operands: Tensor) -> tuple[Tensor, ...]:
        """Return the reductions, computed from a message for each edge as in PyG."""
        edges = self.graph.edge_index()
        return reference(edges, self.graph.num_dst, self.program, operands, self.reductions)


def _run(graph: Graph, sweeps: Sequence[Sweep], tensors: dict[int, Tensor]) -> list[tuple[int, Tensor]]:
    """Run sweeps on numbered tensors; add results of steps over rows to them, and return other results.

    Each result is paired with the number ``of`` from :class:`.Result`.
    """
    others: list[tuple[int, Tensor]] = []
    first = max(tensors) + 1
    with torch.no_grad():
        for sweep in sweeps:
            inputs = []
            for source in sweep.inputs:
                tensor = dict(others)[source.at] if source.gradient else tensors[source.at]
                inputs.append(tensor.t() if source.turned else tensor)
            for result, tensor in zip(sweep.results, kernel.run(graph, sweep, inputs), strict=True):
                if result.of < first:
                    others.append((result.of, tensor))
                else:
                    tensors[result.of] = tensor
    return others


def _of_messages(graph: Graph, reductions: Reductions, grads: Sequence[Tensor]) -> list[Tensor]:
    """Return gradients of sums, and of half the sums of squares, from the gradients of the reductions."""
    shares = graph.inverse_in_degrees(grads[0].dtype).view(-1, 1)
    factors = {"mean": shares, "squares": 2 * shares}
    return [
        grad * factors[reduce] if reduce in factors else grad
        for reduce, grad in zip(reductions, grads, strict=True)
    ]
