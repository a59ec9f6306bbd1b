"""Signals on one graph: features with dimensions before the nodes, such as [batch, time, nodes, F]."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph


def on_signals(graph: Graph, run: Callable[[Tensor], Tensor], x: Any, weight: Any, node_dim: Any) -> Tensor:
    """Run an aggregation of rows once for all signals, which become further columns of a row.

    Args:
        graph: The graph.
        run: Aggregates [num_src, ...]; with a weight for each head, [num_src, H, D].
        x: The features of all signals; ``run`` checks what it gets.
        weight: The weight of the aggregation; its shape shows whether a row has heads.
        node_dim: The dimension of ``x`` that indexes the nodes; the signals are the dimensions before it.

    Raises:
        ArgumentError: ``x`` has no dimension ``node_dim``, another number of nodes, or no heads although the
            weight has.
    """
    if not isinstance(x, Tensor) or not x.dim():
        return run(x)
    dims = x.dim()
    if type(node_dim) is not int or not -dims <= node_dim < dims:
        raise ArgumentError(
            f"node_dim: expected a dimension of x, which has {dims}, from {-dims} to {dims - 1}, "
            f"got {node_dim!r}."
        )
    leading = node_dim % dims
    if x.size(leading) != graph.num_src:
        raise ArgumentError(
            f"x: expected the {graph.num_src} sources in dimension {leading}, got shape {list(x.shape)}."
        )
    rows = x.movedim(leading, 0)
    if not (isinstance(weight, Tensor) and weight.dim() == 2):
        return run(rows).movedim(0, leading)
    if dims != leading + 3:
        raise ArgumentError(
            f"weight: a weight for each edge and head, {list(weight.shape)}, needs x of shape "
            f"[..., num_src, {weight.size(1)}, D], got {list(x.shape)} with nodes in dimension {leading}."
        )
    # The columns of a head, for all signals, are consecutive.
    by_head = rows.movedim(-2, 1)
    out = run(by_head.flatten(2))
    return out.reshape(out.size(0), *by_head.shape[1:]).movedim(1, -2).movedim(0, leading)
