"""Max and min, whose gradient is split among the edges that tie."""

from typing import NamedTuple

from torch import Tensor

from onehop.graph import Graph


class Extremum(NamedTuple):
    """Max or min over each row's edges, and the number of edges that reach it.

    Attributes:
        x: [num_src, F].
        weight: acc [E], in the caller's edge order; None means 1.
        graph: Number of the graph.
        rows: num_dst.
        edges: E.
        reduce: "max" or "min".
        adds: Messages are ``weight + x`` instead of ``weight * x``.
        widen: Return the accumulator's dtype instead of that of ``x``.
        with_ties: Return the numbers of edges too.
        backend: Name of the backend; empty means the best that can.

    Returns:
        [rows, F], and acc [rows, F]: how many edges reach the extremum, 0 where it is NaN; an empty tensor
        without ``with_ties``. Where a single edge does, a backend may return ``-1 - p`` instead of 1, with p
        the edge's position in its row, for its own gradient to read.
    """

    x: Tensor
    weight: Tensor | None
    graph: int
    rows: int
    edges: int
    reduce: str
    adds: bool
    widen: bool
    with_ties: bool
    backend: str

    @classmethod
    def of(
        cls,
        graph: Graph,
        x: Tensor,
        reduce: str,
        *,
        weight: Tensor | None = None,
        adds: bool = False,
        widen: bool = False,
        with_ties: bool = False,
        backend: str = "",
    ) -> "Extremum":
        """A call on a graph that is at hand."""
        return cls(
            x=x,
            weight=weight,
            graph=graph.number,
            rows=graph.num_dst,
            edges=graph.num_edges,
            reduce=reduce,
            adds=adds,
            widen=widen,
            with_ties=with_ties,
            backend=backend,
        )


class ExtremumGrad(NamedTuple):
    """The gradient of :class:`Extremum`, split evenly among the edges that tie.

    Attributes:
        call: The call.
        extremum: Its first result.
        ties: Its second result, of the backend that computes the gradient.
        grad: [num_dst, F], to its first result.
        wanted: For each field of :class:`ExtremumGradients`, whether it is wanted.

    Returns:
        acc [num_src, F] and acc [E]; empty tensors where not wanted.
    """

    call: Extremum
    extremum: Tensor
    ties: Tensor
    grad: Tensor
    wanted: list[bool]

    @property
    def graph(self) -> int:
        """Number of the graph."""
        return self.call.graph

    @property
    def backend(self) -> str:
        """Name of the backend; empty means the best that can."""
        return self.call.backend


class ExtremumGradients(NamedTuple):
    """Gradients to the operands of :class:`Extremum`; None where not wanted."""

    x: Tensor | None = None
    weight: Tensor | None = None
