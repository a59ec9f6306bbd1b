"""The linear reductions, sum and mean."""

from typing import NamedTuple

from torch import Tensor

from onehop.graph import Graph


class Aggregate(NamedTuple):
    """Sum or mean over each row's edges.

    ``out[i] = dst_scale[i] * sum over e = (j -> i) of weight[e] * src_scale[j] * x[j]``

    Attributes:
        x: [num_src, F].
        weight: acc [E] in the caller's edge order, or acc [E, H], whose columns weigh one H-th of the columns
            of ``x`` each; None means 1.
        src_scale: acc [num_src], contiguous; None means 1.
        dst_scale: acc [num_dst], contiguous; None means 1.
        graph: Number of the graph.
        rows: num_dst.
        transposed: Run on the graph with every edge reversed: sources and destinations change places.
        mean: Divide every message by the number of edges of its destination; in the transposed graph by that
            of the edge's destination in the graph itself, so that this is the derivative of the mean.
        widen: Return acc, the accumulator's dtype, instead of that of ``x``.
        backend: Name of the backend; empty means the best that can.

    Returns:
        [rows, F].
    """

    x: Tensor
    weight: Tensor | None
    src_scale: Tensor | None
    dst_scale: Tensor | None
    graph: int
    rows: int
    transposed: bool
    mean: bool
    widen: bool
    backend: str

    @classmethod
    def of(
        cls,
        graph: Graph,
        x: Tensor,
        *,
        weight: Tensor | None = None,
        src_scale: Tensor | None = None,
        dst_scale: Tensor | None = None,
        transposed: bool = False,
        mean: bool = False,
        widen: bool = False,
        backend: str = "",
    ) -> "Aggregate":
        """A call on a graph that is at hand."""
        return cls(
            x=x,
            weight=weight,
            src_scale=src_scale,
            dst_scale=dst_scale,
            graph=graph.number,
            rows=graph.num_src if transposed else graph.num_dst,
            transposed=transposed,
            mean=mean,
            widen=widen,
            backend=backend,
        )


class AggregateGradients(NamedTuple):
    """Gradients to the operands of :class:`Aggregate`; None where not wanted."""

    x: Tensor | None = None
    weight: Tensor | None = None
    src_scale: Tensor | None = None
    dst_scale: Tensor | None = None
