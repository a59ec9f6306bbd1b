"""Sum and mean: their call, and a naive ``onehop.aggregate``, which also has max and min."""

from typing import NamedTuple

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.reference.calls import edges_of, shares_of, wide


class Aggregate(NamedTuple):
    """Sum or mean over each row's edges.

    ``out[i] = dst_scale[i] * sum over e = (j -> i) of weight[e] * src_scale[j] * x[j]``

    Attributes:
        x: [num_src, F].
        weight: acc [E] in the caller's edge order; or acc [E, H], in which each column weighs one H-th of the
            columns of ``x``. None means 1. "acc" is the accumulator's dtype.
        src_scale: acc [num_src], contiguous; None means 1.
        dst_scale: acc [num_dst], contiguous; None means 1.
        graph: Number of the graph.
        rows: num_dst.
        transposed: Run on the graph with every edge reversed, so that sources and destinations are swapped.
        mean: Divide every message by the number of edges of its destination. In the transposed graph, divide
            by the number of edges of the destination in the original graph, so that this is the derivative of
            the mean.
        widen: Return acc, the accumulator's dtype, instead of the dtype of ``x``.
        backend: Name of the backend; empty means the best backend that can run the call.

    Returns:
        [rows, F].
    """

    x: Tensor
    weight: Tensor | None = None
    src_scale: Tensor | None = None
    dst_scale: Tensor | None = None
    graph: int = -1
    rows: int = -1
    transposed: bool = False
    mean: bool = False
    widen: bool = False
    backend: str = ""


class AggregateGradients(NamedTuple):
    """Gradients with respect to the operands of :class:`Aggregate`; None if not requested."""

    x: Tensor | None = None
    weight: Tensor | None = None
    src_scale: Tensor | None = None
    dst_scale: Tensor | None = None


def run_aggregate(graph: Graph, call: Aggregate) -> Tensor:
    """Run a call by its formula."""
    x, weight, edge_index = call.x, call.weight, edges_of(graph, call.x)
    values = wide(x)
    if weight is not None and weight.dim() == 2:
        values = values.view(x.size(0), weight.size(1), x.size(1) // weight.size(1))
    if call.mean:
        share = shares_of(graph, x).index_select(0, edge_index[1])
        weight = share if weight is None else weight * share.view(-1, *[1] * (weight.dim() - 1))
    if call.transposed:
        edge_index = edge_index.flip(0)
    out = aggregate(edge_index, values, call.rows, weight, "sum", call.src_scale, call.dst_scale).reshape(
        call.rows, x.size(1)
    )
    return out if call.widen else out.to(x.dtype)


def aggregate(
    edge_index: Tensor,
    x: Tensor,
    num_dst: int,
    weight: Tensor | None = None,
    reduce: str = "sum",
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
    multiply: str = "mul",
    node_dim: int = 0,
) -> Tensor:
    """Gather the sources' rows, scale them, and reduce them over each destination.

    Args:
        edge_index: [2, E], with sources in row 0 and destinations in row 1.
        x: [num_src, F], or [num_src, H, D]; with ``node_dim``, signal dimensions come first.
        num_dst: Number of destinations.
        weight: [E], or [E, H] for x with heads; None means 1.
        reduce: "sum", "mean" (divided by the number of edges), "max" or "min". Destinations without edges get
            0. Gradients of max and min equal the gradients of ``torch.Tensor.scatter_reduce`` on zeros: they
            are split evenly over the edges that tie; if the extremum is exactly 0, the output's initial zero
            counts as one more tie.
        src_scale: [num_src], multiplies the rows of x.
        dst_scale: [num_dst], multiplies the rows of the result.
        multiply: How the weight w acts on a row m: "mul" w * m, "add" m + w, "sub" m - w, "copy" m, "sigmoid"
            sigmoid(w) * m.
        node_dim: The dimension of the nodes in ``x``; the signals are aggregated one after another.

    Returns:
        [num_dst, F] or [num_dst, H, D], with the signal dimensions first, in the promoted dtype of x, weight
        and scales.
    """
    leading = node_dim % x.dim()
    if leading:
        factors = (weight, reduce, src_scale, dst_scale, multiply)
        signals = x.flatten(0, leading - 1)
        outs = [aggregate(edge_index, signal, num_dst, *factors) for signal in signals]
        return torch.stack(outs).reshape(*x.shape[:leading], num_dst, *x.shape[leading + 1 :])
    source, target = edge_index[0].long(), edge_index[1].long()
    message = x.index_select(0, source)
    if src_scale is not None:
        message = message * _like_rows(src_scale.index_select(0, source), message)
    if weight is not None:
        message = _with_weight(message, _like_rows(weight, message), multiply)
    index = _like_rows(target, message).expand_as(message)
    zeros = message.new_zeros(num_dst, *x.shape[1:])
    if reduce in ("sum", "mean"):
        out = zeros.scatter_add(0, index, message)
        if reduce == "mean":
            degree = torch.bincount(target, minlength=num_dst).clamp(min=1).to(out.dtype)
            out = out / _like_rows(degree, out)
    else:
        out = zeros.scatter_reduce(0, index, message, reduce=f"a{reduce}", include_self=False)
    return out if dst_scale is None else out * _like_rows(dst_scale, out)


def _with_weight(message: Tensor, weight: Tensor, multiply: str) -> Tensor:
    if multiply == "mul":
        return message * weight
    if multiply == "add":
        return message + weight
    if multiply == "sub":
        return message - weight
    return message * weight.sigmoid() if multiply == "sigmoid" else message


def _like_rows(vector: Tensor, rows: Tensor) -> Tensor:
    """Append dimensions of size 1 to ``vector``, so that it has as many dimensions as ``rows``."""
    return vector.reshape(*vector.shape, *[1] * (rows.dim() - vector.dim()))
