"""The one place where the patch has the rows of a graph reduced."""

from torch import Tensor

from onehop.graph import Graph
from onehop.ops.aggregate import aggregate


def reduce_rows(
    graph: Graph,
    x: Tensor,
    *,
    weight: Tensor | None = None,
    reduce: str = "sum",
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
    backend: str = "",
) -> Tensor:
    """Reduces the rows of every destination's sources, as :func:`onehop.aggregate`, which checks again.

    Args:
        graph: The graph.
        x: [num_src, F] or [num_src, ...].
        weight: [E], or [E, H] for x of shape [num_src, H, D]; None means 1.
        reduce: "sum", "mean", "max" or "min".
        src_scale: [num_src]; None means 1.
        dst_scale: [num_dst]; None means 1.
        backend: Who runs it, by name; empty means the first that takes the tensors.

    Returns:
        [num_dst, F] or [num_dst, ...].
    """
    return aggregate(graph, x, weight, reduce, src_scale, dst_scale, backend=backend or None)
