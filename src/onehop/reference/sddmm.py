"""Sampled dense-dense product, a dot product for every edge: its call, and a naive ``onehop.sddmm``."""

from typing import NamedTuple

from torch import Tensor

from onehop.graph import Graph
from onehop.reference.calls import edges_of, shares_of, wide


class Sddmm(NamedTuple):
    """A dot product for every edge and head: ``out[e] = dst[i] . src[j]`` for e = (j -> i).

    Attributes:
        dst: [num_dst, H, F].
        src: [num_src, H, F], of the same dtype.
        graph: Number of the graph.
        edges: E.
        mean: Whether to divide each product by the number of edges of its destination.
        widen: Return the accumulator's dtype instead of the operands' dtype.
        backend: Name of the backend; empty means the best backend that can run the call.

    Returns:
        [E, H], in the caller's edge order.
    """

    dst: Tensor
    src: Tensor
    graph: int
    edges: int
    mean: bool = False
    widen: bool = False
    backend: str = ""


class SddmmGradients(NamedTuple):
    """Gradients with respect to the operands of :class:`Sddmm`; None if not requested."""

    dst: Tensor | None = None
    src: Tensor | None = None


def run_sddmm(graph: Graph, call: Sddmm) -> Tensor:
    """Run a call by its formula."""
    dst = wide(call.dst)
    if call.mean:
        dst = dst * shares_of(graph, dst).view(-1, 1, 1)
    out = sddmm(edges_of(graph, call.src), dst, wide(call.src))
    return out if call.widen else out.to(call.src.dtype)


def sddmm(edge_index: Tensor, dst: Tensor, src: Tensor) -> Tensor:
    """Compute a dot product for every edge.

    Args:
        edge_index: [2, E], with sources in row 0 and destinations in row 1.
        dst: [num_dst, F] or [num_dst, H, F].
        src: [num_src, F] or [num_src, H, F].

    Returns:
        [E] or [E, H].
    """
    return (dst.index_select(0, edge_index[1].long()) * src.index_select(0, edge_index[0].long())).sum(-1)
