"""Max, min and attention part by part, as the cores see the graph, then joined as the host joins them.

A row of a part belongs to one tasklet (in COO, neighbours' extrema are joined exactly), so within a part the
host's kernels make the same numbers from the same edges.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from onehop.calls import Attention, Extremum
from onehop.graph import Graph
from onehop.kernels.cpu.attention import PreparedAttention
from onehop.kernels.cpu.extremum import PreparedExtremum
from onehop.machines.pim.counted import GraphShapes
from onehop.plans import CpuPlan
from onehop.plans.pim import PimPlan


class _Part(NamedTuple):
    """A block of columns.

    Attributes:
        graph: Its edges; sources are counted from ``first``.
        first: Its first source.
        last: One past its last.
        edges: [edges of the part], int64: their places in the caller's edge order.
    """

    graph: Graph
    first: int
    last: int
    edges: Tensor


def extremum(plan: PimPlan, shapes: GraphShapes, call: Extremum) -> Tensor:
    """Max or min of each row's edges, [num_dst, F]; 0 for rows without edges. NaN propagates.

    Args:
        plan: Its sparse parts are made one by one.
        shapes: The graph's counts.
        call: The call, with CPU tensors of float32 or float64.
    """
    none = -torch.inf if call.reduce == "max" else torch.inf
    joined = torch.full((shapes.num_dst, call.x.size(1)), none, dtype=call.x.dtype, device="cpu")
    join = torch.maximum if call.reduce == "max" else torch.minimum
    for part in _parts(plan, shapes) if call.x.numel() else ():
        own = call._replace(
            x=call.x[part.first : part.last].contiguous(),
            weight=None if call.weight is None else call.weight[part.edges],
            graph=part.graph.number,
            edges=part.graph.num_edges,
            with_ties=False,
        )
        found = PreparedExtremum(part.graph, CpuPlan(), own).run(own)[0]
        filled = part.graph.in_degrees > 0
        joined[filled] = join(joined[filled], found[filled].to(joined.dtype))
    return joined.masked_fill_((shapes.graph.in_degrees == 0).unsqueeze(1), 0)


def attention(plan: PimPlan, shapes: GraphShapes, call: Attention) -> tuple[Tensor, Tensor]:
    """Attention over each row's edges.

    Args:
        plan: Its sparse parts are made one by one.
        shapes: The graph's counts.
        call: The call, with CPU tensors of float32 or float64, without dropout.

    Returns:
        The first two results of the call: [num_dst, H, V], and [num_dst, 2, H].
    """
    value = call.value
    shape = (shapes.num_dst, call.heads, value.size(2))
    out = torch.zeros(shape, dtype=value.dtype, device="cpu")
    largest = torch.full(shape[:2], -torch.inf, dtype=value.dtype, device="cpu")
    sums = torch.zeros(shape[:2], dtype=value.dtype, device="cpu")
    if not value.numel():
        # Kernels have at least one column.
        return out, value.new_zeros(shape[0], 2, shape[1])
    for part in _parts(plan, shapes):
        sources = slice(part.first, part.last)
        own = call._replace(
            value=value[sources].contiguous(),
            key=None if call.key is None else call.key[sources].contiguous(),
            edge=None if call.edge is None else call.edge[part.edges],
            mask=None if call.mask is None else call.mask[part.edges],
            graph=part.graph.number,
            edges=part.graph.num_edges,
            with_weights=False,
        )
        averages, softmax, _ = PreparedAttention(part.graph, CpuPlan(), own).run(own)
        filled = part.graph.in_degrees > 0
        top, own_sums = softmax[filled, 0], 1 / softmax[filled, 1]
        # Both sides to the larger of the two; what has no edges yet has none to scale.
        higher = torch.maximum(largest[filled], top)
        before, now = sums[filled] * torch.exp(largest[filled] - higher), own_sums * torch.exp(top - higher)
        both = before + now
        out[filled] = out[filled] * (before / both).unsqueeze(-1) + averages[filled] * (now / both).unsqueeze(
            -1
        )
        largest[filled], sums[filled] = higher, both
    empty = (shapes.graph.in_degrees == 0).unsqueeze(1)
    return out, torch.stack([largest.masked_fill_(empty, 0), (1 / sums).masked_fill_(empty, 0)], 1)


def _parts(plan: PimPlan, shapes: GraphShapes) -> Iterator[_Part]:
    """The parts that have edges."""
    number, perm = plan.sp * plan.block_rounds, shapes.graph.perm
    cut = shapes.parts(number, plan.column_cut)
    col, origin = shapes.columns(number, plan.column_cut, True)
    assert origin is not None
    for part in range(number):
        first, last = int(cut.bounds[part]), int(cut.bounds[part + 1])
        positions = torch.from_numpy(cut.positions[part])
        begin, end = int(positions[0]), int(positions[-1])
        if begin == end:
            continue
        graph = Graph.from_csr(positions - begin, col[begin:end], last - first)
        places = origin[begin:end]
        yield _Part(graph, first, last, places if perm is None else perm.long()[places])
