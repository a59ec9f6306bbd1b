"""Softmax over the edges of every destination."""

from torch import Tensor

from onehop.graph import Graph
from onehop.ops.checks import check_edge_values, check_graph
from onehop.ops.softmax import EDGE_SOFTMAX


def edge_softmax(graph: Graph, scores: Tensor, *, backend: str | None = None) -> Tensor:
    """Scores of edges as shares that add up to 1 over each destination's edges, for each head.

    ``out[e] = exp(scores[e] - m) / (sum of exp(scores - m) + 1e-16)``, with the maximum ``m`` and the sum
    taken over the edges of the destination of ``e``, as ``torch_geometric.utils.softmax`` has it.

    Args:
        graph: The graph.
        scores: [E] or [E, H], in the caller's edge order, float32, float64, bfloat16 or float16.
            Differentiable, any number of times. A score of -inf gives a share of 0. A NaN or +inf makes the
            shares of its destination and head NaN, and so do scores that are all -inf.
        backend: Who runs it, by name; None means the best that can (``onehop info`` lists them).

    Returns:
        Of the shape and dtype of ``scores``; 16-bit scores are computed in float32 and rounded once.

    Raises:
        ArgumentError: A shape or dtype does not fit.
        BackendError: No backend runs on such tensors.
    """
    check_graph(graph)
    check_edge_values("scores", scores, graph.num_edges)
    heads = scores.dim() == 2
    out: Tensor = EDGE_SOFTMAX(
        scores if heads else scores.unsqueeze(1), graph.number, graph.num_src, graph.num_dst, backend or ""
    )
    return out if heads else out.squeeze(1)
