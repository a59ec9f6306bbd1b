"""Softmax over edges: ``onehop::edge_softmax`` and its gradient, ``onehop::edge_softmax_grad``."""

from typing import Any

from torch import Tensor

from onehop.calls import (
    Aggregate,
    EdgeSoftmax,
    EdgeSoftmaxGrad,
    EdgeSoftmaxGradGradients,
    EdgeSoftmaxGradients,
    Sddmm,
    accumulator,
)
from onehop.graph import Graph
from onehop.ops.checks import check_edge_values, check_graph
from onehop.ops.library import Context, Operator, run


def edge_softmax(graph: Graph, scores: Tensor, *, backend: str | None = None) -> Tensor:
    """Compute the softmax of edge scores over each destination's edges, for each head.

    ``out[e] = exp(scores[e] - m) / (sum of exp(scores - m) + 1e-16)``, with the maximum ``m`` and the sum
    taken over the edges of the destination of ``e``, as in ``torch_geometric.utils.softmax``.

    Args:
        graph: The graph.
        scores: [E] or [E, H], in the caller's edge order, float32, float64, bfloat16 or float16.
            Differentiable any number of times. A score of -inf gives 0. If a score is NaN or +inf, or all
            scores are -inf, the results for that destination and head are NaN.
        backend: Name of the backend; None means the best available one (``onehop info`` lists them).

    Returns:
        A tensor with the shape and dtype of ``scores``; for 16-bit scores, computed in float32 and rounded
        once.

    Raises:
        ArgumentError: A shape or dtype does not fit.
        BackendError: No backend runs on such tensors.

    Examples:
        >>> import onehop, torch
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]))  # 0->1, 0->2, 1->2
        >>> onehop.edge_softmax(graph, torch.tensor([5.0, 3.0, 3.0])).tolist()  # one edge ends at 1, two at 2
        [1.0, 0.5, 0.5]
    """
    check_graph(graph)
    check_edge_values("scores", scores, graph.num_edges)
    heads = scores.dim() == 2
    call = EdgeSoftmax(
        scores=scores if heads else scores.unsqueeze(1),
        graph=graph.number,
        sources=graph.num_src,
        rows=graph.num_dst,
        backend=backend or "",
    )
    out: Tensor = EDGE_SOFTMAX(call, graph)
    return out if heads else out.squeeze(1)


class _EdgeSoftmax(Operator[EdgeSoftmax]):
    call = EdgeSoftmax
    gradients_of = EdgeSoftmaxGradients

    def saved(
        self, call: EdgeSoftmax, results: Any, needs: tuple[str, ...]
    ) -> tuple[EdgeSoftmax, tuple[Tensor, ...]]:
        return call._replace(scores=None), (results,)  # type: ignore[arg-type]

    def gradients(self, context: Context[EdgeSoftmax], *grads: Tensor | None) -> EdgeSoftmaxGradients:
        call, (softmax,), grad = context.call, context.results, grads[0]
        assert grad is not None
        grad_call = EdgeSoftmaxGrad(
            softmax=softmax,
            grad=grad,
            graph=call.graph,
            sources=call.sources,
            rows=call.rows,
            backend=call.backend,
        )
        return EdgeSoftmaxGradients(run(grad_call))


class _EdgeSoftmaxGrad(Operator[EdgeSoftmaxGrad]):
    """The gradient a (g - s), where s is the sum of a g over the edge's row.

    If v is the gradient to this result, the gradient to g is a (v - t), where t is the sum of a v; this is
    the same operator. The gradient to a is v (g - s) - g t, where s and t are read for every edge and head.
    """

    call = EdgeSoftmaxGrad
    gradients_of = EdgeSoftmaxGradGradients

    def gradients(self, context: Context[EdgeSoftmaxGrad], *grads: Tensor | None) -> EdgeSoftmaxGradGradients:
        call, again = context.call, grads[0]
        assert again is not None
        softmax, grad = call.softmax, call.grad
        to_softmax = to_grad = None
        if "softmax" in context.needs:
            s, t = _row_sums(softmax * grad, call), _row_sums(softmax * again, call)
            to_softmax = again * (grad - s) - grad * t
        if "grad" in context.needs:
            to_grad = run(call._replace(grad=again))
        return EdgeSoftmaxGradGradients(softmax=to_softmax, grad=to_grad)


def _row_sums(values: Tensor, call: EdgeSoftmaxGrad) -> Tensor:
    """Return, for each edge, the sum of the values in its row, [E, H], as a weighted sum of ones."""
    acc = accumulator(values.dtype)
    ones = values.new_ones((call.sources, values.size(1)), dtype=acc)
    sums = run(
        Aggregate(x=ones, weight=values.to(acc), graph=call.graph, rows=call.rows, backend=call.backend)
    )
    spread: Tensor = run(
        Sddmm(
            dst=sums.unsqueeze(2),
            src=ones.unsqueeze(2),
            graph=call.graph,
            edges=values.size(0),
            backend=call.backend,
        )
    )
    return spread.to(values.dtype)


EDGE_SOFTMAX = _EdgeSoftmax()
EDGE_SOFTMAX_GRAD = _EdgeSoftmaxGrad()
