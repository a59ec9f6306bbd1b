"""Max and min whose gradient goes to one winner: their calls, and a naive ``onehop.ops.arg_extremum``."""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class ArgExtremum(NamedTuple):
    """Max or min over each row's edges, and the edge from which each entry is taken; NaN never wins.

    Attributes:
        x: [num_src, F], float32 or float64.
        weight: [E] in the caller's edge order, or [E, H], in which each column weighs one H-th of the columns
            of ``x``; in the dtype of ``x``. None means 1.
        graph: Number of the graph, which has fewer than 2^31 edges.
        rows: num_dst.
        reduce: "max" or "min".
        last: Whether the last of the edges that tie wins; if not, the first wins.
        backend: Name of the backend; empty means the best backend that can run the call.

    Returns:
        [rows, F], infinite if no edge wins; and int32 [rows, F], the winner's position in the graph's own
        edge order, -1 if no edge wins.
    """

    x: Tensor
    weight: Tensor | None = None
    graph: int = -1
    rows: int = -1
    reduce: str = "max"
    last: bool = False
    backend: str = ""


class ArgExtremumGrad(NamedTuple):
    """The gradient of :class:`ArgExtremum`, all of which goes to the winners.

    Attributes:
        call: The call.
        winner: The second result of the call.
        grad: [num_dst, F], the gradient with respect to the first result.
        wanted: For each field of :class:`ArgExtremumGradients`, whether it is requested.

    Returns:
        [num_src, F], and a tensor of the weight's shape; empty tensors for gradients that are not requested.
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
        """Name of the backend; empty means the best backend that can run the call."""
        return self.call.backend


class ArgExtremumGradients(NamedTuple):
    """Gradients with respect to the operands of :class:`ArgExtremum`; None if not requested."""

    x: Tensor | None = None
    weight: Tensor | None = None


def arg_extremum(
    edge_index: Tensor,
    x: Tensor,
    num_dst: int,
    weight: Tensor | None = None,
    reduce: str = "max",
    last: bool = False,
) -> tuple[Tensor, Tensor]:
    """Compute max or min, taking each entry from one edge, which gets the whole gradient.

    Args:
        edge_index: [2, E], with sources in row 0 and destinations in row 1.
        x: [num_src, F], or [num_src, H, D].
        num_dst: Number of destinations.
        weight: [E], or [E, H] for x with heads; None means 1.
        reduce: "max" or "min".
        last: Whether the tied edge with the highest number wins; if not, the one with the lowest.

    Returns:
        [num_dst, F] or [num_dst, H, D]: the extrema, which ignore NaN; minus infinity (plus infinity for min)
        if no edge wins. And the winners, int64, of the same shape: edge numbers, -1 for none. Without
        ``last``, a message must be larger than minus infinity to win (for min, smaller than infinity).
    """
    source, target = edge_index[0].long(), edge_index[1].long()
    message = x.index_select(0, source)
    if weight is not None:
        message = message * weight.reshape(*weight.shape, *[1] * (message.dim() - weight.dim()))
    sign = 1 if reduce == "max" else -1
    with torch.no_grad():
        value = (sign * message).nan_to_num(-math.inf, math.inf, -math.inf)
        index = target.reshape(-1, *[1] * (message.dim() - 1)).expand_as(message)
        shape = (num_dst, *x.shape[1:])
        best = value.new_full(shape, -math.inf).scatter_reduce(0, index, value, "amax")
        wins = (value == best.gather(0, index)) & ~message.isnan()
        if not last:
            wins &= value > -math.inf
        number = torch.arange(len(target), device=target.device)
        number = number.reshape(-1, *[1] * (message.dim() - 1)).expand_as(message)
        none = -1 if last else len(target)
        winner = number.new_full(shape, none).scatter_reduce(
            0, index, torch.where(wins, number, none), "amax" if last else "amin"
        )
        winner = torch.where(winner == none, -1, winner)
    if not len(target):
        return x.sum() * 0 + x.new_full(shape, -sign * math.inf), winner
    taken = message.gather(0, winner.clamp(min=0))
    return torch.where(winner < 0, -sign * math.inf, taken), winner
