"""Naive ``onehop.ops.arg_extremum``."""

import math

import torch
from torch import Tensor


def arg_extremum(
    edge_index: Tensor,
    x: Tensor,
    num_dst: int,
    weight: Tensor | None = None,
    reduce: str = "max",
    last: bool = False,
) -> tuple[Tensor, Tensor]:
    """Max or min, taken from one edge for each destination and column, to which the whole gradient goes.

    Args:
        edge_index: [2, E], sources above destinations.
        x: [num_src, F], or [num_src, H, D].
        num_dst: Number of destinations.
        weight: [E], or [E, H] for x with heads; None means 1.
        reduce: "max" or "min".
        last: Whether the tied edge with the highest number wins, else the one with the lowest.

    Returns:
        [num_dst, F] or [num_dst, H, D]: the extrema, which ignore NaN; minus infinity (plus, for min) where
        nothing wins. And the winners, int64, of the same shape: numbers of edges, -1 for none. Without
        ``last`` a message must be larger than minus infinity to win.
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
