"""What a weight does to its edge's message: the choices of ``aggregate(multiply=...)``."""

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.ops import linear

MULTIPLY = ("mul", "add", "sub", "copy", "sigmoid")


def check_multiply(multiply: str, weight: Tensor | None) -> None:
    """Raises unless ``multiply`` is known and has the weight that it needs."""
    if multiply not in MULTIPLY:
        raise ArgumentError(f"multiply: expected one of {', '.join(MULTIPLY)}, got {multiply!r}.")
    if weight is None and multiply not in ("mul", "copy"):
        raise ArgumentError(f"multiply: {multiply!r} needs a weight for every edge, and weight is None.")


def factor_or_term(multiply: str, weight: Tensor | None) -> tuple[Tensor | None, bool]:
    """What each message is multiplied by, and whether that is to be added in place of multiplied."""
    if weight is None or multiply == "copy":
        return None, False
    if multiply == "sigmoid":
        return weight.sigmoid(), False
    return (-weight if multiply == "sub" else weight), multiply in ("add", "sub")


def sum_of_terms(
    graph: Graph, weight: Tensor, dst_scale: Tensor | None, mean: bool, columns: int, backend: str
) -> Tensor:
    """What adding a term to every message adds to sums: the same in each column of a head.

    Args:
        graph: The graph.
        weight: [E] or [E, H], of the accumulator's dtype.
        dst_scale: [num_dst] or None.
        mean: Divide by the number of edges.
        columns: F, of all heads together.
        backend: By name.

    Returns:
        [num_dst, F], or [num_dst, 1] where all columns are the same.
    """
    heads = weight.size(1) if weight.dim() == 2 else 1
    ones = torch.ones(graph.num_src, heads, dtype=weight.dtype, device=weight.device)
    total: Tensor = linear.AGGREGATE(
        ones, weight, None, dst_scale, graph.number, graph.num_dst, False, mean, False, backend
    )
    return total if heads == 1 else total.repeat_interleave(columns // heads, 1)
