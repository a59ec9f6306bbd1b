"""Neighbour aggregation over several processes."""

import torch
from torch import Tensor

from onehop.distributed.checks import check_part, check_sources
from onehop.distributed.graph import DistributedGraph
from onehop.distributed.loops import separated
from onehop.distributed.splits import EdgeSplit
from onehop.errors import ArgumentError
from onehop.ops.aggregate import REDUCTIONS, Reduce, aggregate as aggregate_here
from onehop.ops.checks import check_vector

# 16-bit partial sums would be rounded once more than a single sum.
_EXACT = (torch.float32, torch.float64)


def aggregate(
    graph: DistributedGraph,
    x: Tensor,
    weight: Tensor | None = None,
    reduce: Reduce = "sum",
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
) -> Tensor:
    """Aggregate into every node that this process owns, over sources on all processes.

    This computes :func:`onehop.aggregate` over the whole graph, and each process computes its own rows. Sums
    and means first add the owned sources, while the halo rows are in transit, and then the halo. Max and min
    first compute the rows that need no halo. The same partition gives bitwise equal results; another number
    of processes adds in another order.

    Args:
        graph: This process's part.
        x: [m, F] or [m, ...], a row for each of ``graph.owned_sources``. Differentiable: gradients of
            sent rows are returned to this process.
        weight: [e], an entry for each of ``graph.owned_edges``; None means 1. Differentiable.
        reduce: "sum" (or "add", as PyG spells it), "mean", "max" or "min".
        src_scale: [m]; None means 1. Differentiable.
        dst_scale: [n]; None means 1. Differentiable.

    Returns:
        [n, F] or [n, ...].

    Raises:
        ArgumentError: A shape or dtype does not fit.
        CommunicationError: Another process ended or did not answer.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> from onehop import distributed
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # without torchrun
        >>> graph = distributed.DistributedGraph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]))
        >>> x = torch.tensor([[1.0], [10.0], [5.0]])[graph.owned_sources]
        >>> distributed.aggregate(graph, x)  # a row for each of graph.owned_nodes
        tensor([[ 0.],
                [ 1.],
                [11.]])
        >>> dist.destroy_process_group()
    """
    check_part(graph)
    check_sources("x", x, graph)
    if reduce == "add":
        reduce = "sum"
    if reduce not in REDUCTIONS:
        raise ArgumentError(f"reduce: expected one of {', '.join(REDUCTIONS)}, got {reduce!r}.")
    if weight is not None:
        check_vector("weight", weight, graph.num_edges, "edges that end in owned nodes", x)
    ends = (("src_scale", src_scale, graph.num_sources), ("dst_scale", dst_scale, graph.num_nodes))
    for name, scale, rows_of_end in ends:
        if scale is not None:
            check_vector(name, scale, rows_of_end, "owned nodes", x)
    rows = x.flatten(1)
    if src_scale is not None and torch.promote_types(x.dtype, src_scale.dtype) in _EXACT:
        rows, src_scale = rows * src_scale.unsqueeze(-1), None
    if reduce in ("sum", "mean") and rows.dtype in _EXACT:
        out = _summed(graph, rows, weight, reduce == "mean", dst_scale)
    else:
        out = _by_rows(graph, rows, weight, reduce, src_scale, dst_scale)
    return out if x.dim() == 2 else out.reshape(len(out), *x.shape[1:])


def _summed(
    graph: DistributedGraph, x: Tensor, weight: Tensor | None, mean: bool, dst_scale: Tensor | None
) -> Tensor:
    """Return the sum over owned sources plus the sum over halo sources."""
    split = graph.splits.by_source
    if mean:
        share = graph.derived(("mean", x.dtype), lambda: _inverse_degrees(graph, x))
        dst_scale = share if dst_scale is None else share * dst_scale
    of_loops = None
    if graph.loops and weight is not None:
        weight, of_loops = separated(graph.part.rowptr, weight)
    first, second = _by_source(graph, weight)
    pending = graph.exchange.begin(x)
    here = aggregate_here(split.first, x, first, dst_scale=dst_scale)
    if graph.loops:
        here = here + _scaled(_scaled(x, of_loops), dst_scale)
    halo = pending.end()
    return here + aggregate_here(split.second, halo, second, dst_scale=dst_scale)


def _scaled(x: Tensor, scale: Tensor | None) -> Tensor:
    return x if scale is None else x * scale.unsqueeze(-1)


def _by_source(graph: DistributedGraph, weight: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Return the values of edges from owned rows, and the values of edges from halo rows."""
    if weight is None:
        return None, None
    near = graph.splits.is_near
    first, second = (each.nonzero().squeeze(1) for each in (near, ~near))
    return weight.index_select(0, first), weight.index_select(0, second)


def _by_rows(
    graph: DistributedGraph,
    x: Tensor,
    weight: Tensor | None,
    reduce: Reduce,
    src_scale: Tensor | None,
    dst_scale: Tensor | None,
) -> Tensor:
    """Reduce the rows without halo sources, and then the other rows; each row is reduced in one step.

    The kernels apply the scales: if they were multiplied here, 16-bit rows would be rounded once more.
    """
    split = graph.splits.by_row(graph.loops)
    first, second = split_by_row(split, weight)
    pending = graph.exchange.begin(x)
    scales = None if src_scale is None else graph.exchange.begin(src_scale.unsqueeze(-1))
    inner_scale = outer_scale = None
    if dst_scale is not None:
        inner_scale, outer_scale = dst_scale.split([split.first.num_dst, split.second.num_dst])
    inner = aggregate_here(split.first, x, first, reduce, src_scale, inner_scale)
    rows = torch.cat([x, pending.end()])
    if src_scale is not None and scales is not None:
        src_scale = torch.cat([src_scale, scales.end().squeeze(-1)])
    return torch.cat([inner, aggregate_here(split.second, rows, second, reduce, src_scale, outer_scale)])


def split_by_row(split: EdgeSplit, values: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Split the values of edges between the two graphs that :meth:`Splits.by_row` made."""
    if values is None:
        return None, None
    first, second = values.split([split.first.num_edges, split.second.num_edges])
    return first, second


def _inverse_degrees(graph: DistributedGraph, like: Tensor) -> Tensor:
    return graph.in_degrees.clamp_(min=1).to(like.dtype).reciprocal_()
