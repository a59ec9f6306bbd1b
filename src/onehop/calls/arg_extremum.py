"""Max and min with the winner of every entry, whose gradient goes to the winner alone."""

from typing import NamedTuple

from torch import Tensor

from onehop.graph import Graph


class ArgExtremum(NamedTuple):
    """Max or min over each row's edges, and the edge that each entry is taken from. NaN never wins.

    Attributes:
        x: [num_src, F], float32 or float64.
        weight: [E] in the caller's edge order, or [E, H], whose columns weigh one H-th of the columns of
            ``x`` each, of the dtype of ``x``; None means 1.
        graph: Number of the graph, which has fewer than 2^31 edges.
        rows: num_dst.
        reduce: "max" or "min".
        last: Of the edges that tie the last one wins, else the first.
        backend: Name of the backend; empty means the best that can.

    Returns:
        [rows, F], infinite where nothing wins; and int32 [rows, F], the winner's place in the graph's own
        edge order, -1 where nothing wins.
    """

    x: Tensor
    weight: Tensor | None
    graph: int
    rows: int
    reduce: str
    last: bool
    backend: str

    @classmethod
    def of(
        cls,
        graph: Graph,
        x: Tensor,
        reduce: str,
        *,
        weight: Tensor | None = None,
        last: bool = False,
        backend: str = "",
    ) -> "ArgExtremum":
        """A call on a graph that is at hand."""
        return cls(
            x=x,
            weight=weight,
            graph=graph.number,
            rows=graph.num_dst,
            reduce=reduce,
            last=last,
            backend=backend,
        )


class ArgExtremumGrad(NamedTuple):
    """The gradient of :class:`ArgExtremum`, all of which goes to the winners.

    Attributes:
        call: The call.
        winner: Its second result.
        grad: [num_dst, F], to its first result.
        wanted: For each field of :class:`ArgExtremumGradients`, whether it is wanted.

    Returns:
        [num_src, F], and a tensor of the shape of the weight; empty tensors where not wanted.
    """

    call: ArgExtremum
    winner: Tensor
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


class ArgExtremumGradients(NamedTuple):
    """Gradients to the operands of :class:`ArgExtremum`; None where not wanted."""

    x: Tensor | None = None
    weight: Tensor | None = None
