"""Weighted sums in which each weight belongs to one column or a few columns.

The aggregation kernels read the edges once for each head. For narrow heads, a compiled message, the source's
row times the expanded weights, reads the edges once for all heads.
"""

from functools import lru_cache

from torch import Tensor

from onehop import thresholds
from onehop.graph import Graph
from onehop.messages import End, Operand, Program, Step
from onehop.ops.contexts import compiling, context_reason, is_memory
from onehop.ops.message import DTYPES, fits, reduce_messages


def are_narrow(graph: Graph, x: Tensor, weight: Tensor, reduce: str, backend: str) -> bool:
    """Return whether :func:`reduce_by_columns` can compute a weighted sum, and is faster.

    Args:
        graph: The graph.
        x: [num_src, F].
        weight: [E, H] or [E].
        reduce: "sum" or "mean".
        backend: Name of the backend; empty means the best available one.
    """
    if weight.dim() == 1:
        return False
    heads, width = weight.size(1), x.size(1)
    return (
        1 < heads <= width < heads * thresholds.now.columns_of_a_head
        and graph.num_edges > 0
        and backend in ("", "cpu")
        and x.dtype is weight.dtype
        and x.dtype in DTYPES
        and not compiling()
        and context_reason() is None
        and is_memory(x)
        and is_memory(weight)
        and fits(_program(width, heads), (reduce,))
    )


def reduce_by_columns(graph: Graph, x: Tensor, weight: Tensor, reduce: str) -> Tensor:
    """Compute the weighted sum or mean of sources; :func:`are_narrow` must hold.

    Args:
        graph: The graph.
        x: [num_src, F]. Differentiable.
        weight: [E, H], in the caller's edge order. Differentiable.
        reduce: "sum" or "mean".

    Returns:
        [num_dst, F].
    """
    (out,) = reduce_messages(graph, _program(x.size(1), weight.size(1)), (x, weight), (reduce,))
    return out


@lru_cache(maxsize=256)
def _program(width: int, heads: int) -> Program:
    operands = Operand(End.SOURCE, width), Operand(End.EDGE, heads)
    if heads == width:
        return Program(operands, (Step("multiply", (0, 1), width),), 2)
    return Program(operands, (Step("spread", (1,), width), Step("multiply", (0, 2), width)), 3)
