"""Sampled dense-dense product: a dot product for every edge."""

from typing import NamedTuple

from torch import Tensor

from onehop.graph import Graph


class Sddmm(NamedTuple):
    """A dot product for every edge and head: ``out[e] = dst[i] . src[j]`` for e = (j -> i).

    Attributes:
        dst: [num_dst, H, F].
        src: [num_src, H, F], of the same dtype.
        graph: Number of the graph.
        edges: E.
        mean: Divide each product by the number of edges of its destination.
        widen: Return the accumulator's dtype instead of the operands'.
        backend: Name of the backend; empty means the best that can.

    Returns:
        [E, H], in the caller's edge order.
    """

    dst: Tensor
    src: Tensor
    graph: int
    edges: int
    mean: bool
    widen: bool
    backend: str

    @classmethod
    def of(
        cls,
        graph: Graph,
        *,
        dst: Tensor,
        src: Tensor,
        mean: bool = False,
        widen: bool = False,
        backend: str = "",
    ) -> "Sddmm":
        """A call on a graph that is at hand."""
        return cls(
            dst=dst,
            src=src,
            graph=graph.number,
            edges=graph.num_edges,
            mean=mean,
            widen=widen,
            backend=backend,
        )


class SddmmGradients(NamedTuple):
    """Gradients to the operands of :class:`Sddmm`; None where not wanted."""

    dst: Tensor | None = None
    src: Tensor | None = None
