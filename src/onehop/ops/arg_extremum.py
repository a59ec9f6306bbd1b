"""Max and min whose gradient goes to one edge for each destination and column, as DGL has it.

:func:`onehop.aggregate` splits the gradient among the edges that tie, as PyG does. What is kept for the
backward pass is the winner of every entry, 32 bits each.
"""

from typing import Any

import torch
from torch import Tensor

from onehop.backends.cpu import CpuBackend
from onehop.graph import Graph
from onehop.kernels.cpu.arg_extremum import (
    arg_extremum as _forward,
    arg_extremum_grad_source,
    arg_extremum_grad_weight,
)
from onehop.ops.batching import for_each
from onehop.plans import CpuPlan

# Places of edges are kept in 32 bits.
MOST_EDGES = 2**31 - 1

_BACKEND = CpuBackend()


def arg_extremum(
    graph: Graph, x: Tensor, weight: Tensor | None = None, reduce: str = "max", last: bool = False
) -> Tensor:
    """Max or min over each destination's edges; NaN is passed over.

    Args:
        graph: Of :data:`MOST_EDGES` edges at most.
        x: [num_src, F], or [num_src, H, D], float32 or float64, on the CPU.
        weight: [E], or [E, H] for x with heads, of the same dtype; None means 1.
        reduce: "max" or "min".
        last: Which of the edges that tie wins: the one with the highest number, or the one with the lowest.
            With the lowest a message must also be larger than minus infinity (for min, smaller than
            infinity).

    Returns:
        [num_dst, F] or [num_dst, H, D]; minus infinity (plus, for min) where nothing wins. The gradient to
        such an entry goes nowhere.
    """
    flat = x.reshape(x.size(0), -1) if x.numel() else x.reshape(x.size(0), x.shape[1:].numel())
    out: Tensor = _Recorded.apply(flat, weight, graph, reduce, last)  # type: ignore[no-untyped-call]
    return out.view(graph.num_dst, *x.shape[1:])


def _plan(graph: Graph, operation: str, x: Tensor, weight: Tensor | None) -> CpuPlan:
    heads = weight.size(1) if weight is not None and weight.dim() == 2 else 1
    return _BACKEND.plan_for(graph, operation, False, x.size(1) // heads, x.dtype)


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, graph: Graph, reduce: str, last: bool) -> Tensor:
        plan = _plan(graph, "extremum", x, weight)
        out, winner = _forward(graph.csr, plan, x, weight, reduce == "min", last)
        ctx.save_for_backward(x, weight, winner)
        ctx.graph = graph
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, winner = ctx.saved_tensors
        for_x, for_weight = ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():
            grads = _differentiable_grad(ctx.graph, grad, x, weight, winner)
            return (
                grads[0] if for_x else None,
                grads[1] if for_weight else None,
                None,
                None,
                None,
            )
        csr, plan = ctx.graph.csr, _plan(ctx.graph, "extremum_grad", x, weight)

        def of_one(*tensors: Any) -> tuple[Tensor, ...]:
            kernels = (arg_extremum_grad_source, for_x), (arg_extremum_grad_weight, for_weight)
            return tuple(kernel(csr, plan, *tensors) for kernel, want in kernels if want)

        found = iter(for_each(of_one, grad, x, weight, winner))
        return (
            next(found) if for_x else None,
            next(found) if for_weight else None,
            None,
            None,
            None,
        )


def _differentiable_grad(
    graph: Graph, grad: Tensor, x: Tensor, weight: Tensor | None, winner: Tensor
) -> tuple[Tensor, Tensor | None]:
    """The gradients by operations that torch differentiates once more; second derivatives are rare."""
    heads = weight.size(1) if weight is not None and weight.dim() == 2 else 1
    wins = winner >= 0
    place = winner.clamp(min=0).long()
    source = graph.col[place].long()
    grad = torch.where(wins, grad, 0)
    if weight is None:
        return torch.zeros_like(x).scatter_add(0, source, grad), None
    edge = place if graph.perm is None else graph.perm[place].long()
    wide = weight.view(-1, heads).repeat_interleave(x.size(1) // heads, 1)
    grad_x = torch.zeros_like(x).scatter_add(0, source, wide.gather(0, edge) * grad)
    of_edges = torch.zeros_like(wide).scatter_add(0, edge, x.gather(0, source) * grad)
    return grad_x, of_edges.view(-1, heads, x.size(1) // heads).sum(2).view_as(weight)
