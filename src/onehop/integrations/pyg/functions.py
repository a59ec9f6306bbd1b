"""PyG's functions that models call directly: ``scatter``, ``segment``, ``softmax`` and ``spmm``.

Read-outs, aggregation modules and users' own layers reduce rows by an index, or between bounds. Both are
treated as graphs (:mod:`onehop.graph.index`), so no intermediate of the size of the rows is made. onehop runs
the softmax if the index ascends, as a batch vector does.
"""

import math
from typing import Any

import torch
import torch_geometric.typing
import torch_geometric.utils
from torch import Tensor

from onehop import thresholds
from onehop.graph import Graph
from onehop.integrations import session
from onehop.integrations.pyg import few_rows
from onehop.integrations.pyg.aggregation import WEIGHTED, Aggregation
from onehop.integrations.pyg.edges.matrix import adjacency_of
from onehop.integrations.pyg.edges.sizes import is_too_small
from onehop.integrations.pyg.edges.writes import watch
from onehop.integrations.pyg.leave import are_features, are_numbers
from onehop.integrations.rows import Function, Row, replacing
from onehop.integrations.torch.indexing import COST_OF_EXTREMA, PLAIN, cost_of, is_recorded, pays
from onehop.integrations.torch.segments import graph_of_ascending, graph_of_bounds, graph_of_rows
from onehop.ops import edge_softmax
from onehop.ops.aggregate import reduce_rows
from onehop.ops.by_index import Along, added, extremum, segmented
from onehop.ops.contexts import context_reason

_OF_PRODUCTS = {"sum": "sum", "add": "sum", "mean": "mean", "max": "max", "min": "min"}
_OF_SEGMENTS = ("sum", "mean", "max", "min")
_OF_SCATTER = {**_OF_PRODUCTS, "amax": "max", "amin": "min"}
_MATRIX = 2

# PyG spends at least as much time on an entry of a softmax, or of a differentiated extremum, as on this many
# entries of a sum.
_COST = 8


def rows() -> list[Row]:
    """Return the rows of the patch table."""
    return replacing_utils(scatter, segment, softmax, spmm)


def replacing_utils(*bodies: Function) -> list[Row]:
    """Return rows that replace functions of ``torch_geometric.utils`` by the bodies with the same names."""
    return [
        replacing(torch_geometric.utils, body.__name__, body, counted_as=body.__name__) for body in bodies
    ]


def scatter(
    _: Any, src: Any, index: Any, dim: Any = 0, dim_size: Any = None, reduce: Any = "sum"
) -> Tensor | None:
    """Reduces rows by an index; None if PyG's code has to run."""
    if type(src) not in PLAIN or type(reduce) is not str or reduce not in _OF_SCATTER:
        return None
    # COST_OF_EXTREMA is the highest cost of a reduction, as a multiple of a sum's cost.
    if src.numel() * COST_OF_EXTREMA < thresholds.now.index_numbers:
        by = _OF_SCATTER[reduce]
        # PyG's sums of few rows are as fast.
        return None if by == "sum" else few_rows.reduced(src, index, dim, dim_size, by)
    # PyG computes a mean as a sum that is divided.
    by = "sum" if reduce == "mean" else _OF_SCATTER[reduce]
    if not pays(src.numel(), cost_of(src, by)) or src.dim() < _MATRIX:
        return None
    if dim not in (0, -src.dim()) or not _has_index(src, index, dim_size):
        return None
    graph = graph_of_rows(index, dim_size)
    if graph is None:
        return None
    along, by = Along(torch.Size((graph.num_dst, *src.shape[1:])), 0), _OF_SCATTER[reduce]
    if by in ("max", "min"):
        return extremum(graph, src, index, along, by)
    if by == "mean" and is_recorded(src):
        # As in PyG, autograd keeps the counts for the backward pass, and not the index.
        total = added(graph, src, index, along, widen=True)
        count = graph.in_degrees.clamp_(min=1).view(-1, *[1] * (src.dim() - 1))
        return (total / count.to(total.dtype)).to(src.dtype)
    return added(graph, src, index, along, mean=by == "mean")


def segment(_: Any, src: Any, ptr: Any, reduce: Any = "sum") -> Tensor | None:
    """Reduces the rows between bounds; None if PyG's code has to run."""
    if type(src) not in PLAIN or type(reduce) is not str or reduce not in _OF_SEGMENTS:
        return None
    if src.numel() * _COST < thresholds.now.direct_numbers or src.dim() < _MATRIX:
        return None
    is_extremum = reduce in ("max", "min")
    # The gradient of segment's extrema differs from scatter's if entries tie at 0.
    if (is_extremum and src.requires_grad and torch.is_grad_enabled()) or not _has_bounds(src, ptr):
        return None
    graph = graph_of_bounds(ptr, src.size(0))
    if graph is None:
        return None
    out = _reduced(graph, src, reduce) if is_extremum else segmented(graph, src, reduce == "mean")
    watch(ptr, out)
    # As in PyG, infinite extrema, such as those of empty segments, become 0.
    return torch.where(out.isinf(), 0, out) if is_extremum else out


def softmax(
    _: Any, src: Any, index: Any = None, ptr: Any = None, num_nodes: Any = None, dim: Any = 0
) -> Tensor | None:
    """Computes the softmax over a sorted index, or between bounds; None if PyG's code has to run."""
    if type(src) not in PLAIN:
        return None
    if src.numel() * _COST < thresholds.now.direct_numbers:
        return few_rows.softmax(src, index, ptr, num_nodes, dim)
    if not 1 <= src.dim() <= _MATRIX or dim not in (0, -src.dim()):
        return None
    if ptr is None:
        graph = graph_of_ascending(index, num_nodes) if _has_index(src, index, num_nodes) else None
    else:
        # PyG replaces infinite extrema of segments with 0.
        suits = _has_bounds(src, ptr) and math.isfinite(float(src.detach().sum()))
        graph = graph_of_bounds(ptr, src.size(0)) if suits else None
    if graph is None:
        return None
    out = edge_softmax(graph, src)
    watch(index if ptr is None else ptr, out)
    return out


def spmm(_: Any, src: Any, other: Any, reduce: Any = "sum") -> Tensor | None:
    """Multiplies a sparse matrix by features, as fused layers of PyG do; None if PyG's code has to run."""
    if type(other) not in PLAIN or type(reduce) is not str or reduce not in _OF_PRODUCTS:
        return None
    adjacency = adjacency_of(src)
    if adjacency is None or other.dim() != _MATRIX or other.size(0) != src.size(1):
        return None
    if is_too_small(src, other) or not applies(other):
        return None
    adjacency.check()
    reduce = _OF_PRODUCTS[reduce]
    graph, weight, scale, first = adjacency.factors(other, reduce)
    return Aggregation(WEIGHTED, reduce, graph, other, weight, scale, first=first).run()


def _reduced(graph: Graph, src: Tensor, reduce: str) -> Tensor:
    out = reduce_rows(graph, src.flatten(1), reduce=reduce)
    # PyG's result is not a view; autograd treats views differently.
    return out if src.dim() == _MATRIX else torch.ops.aten._unsafe_view(out, (graph.num_dst, *src.shape[1:]))


def _has_index(src: Tensor, index: Any, num_rows: Any) -> bool:
    """Return whether rows of a plain tensor can be reduced by an index into ``num_rows`` rows."""
    return (
        (num_rows is None or type(num_rows) is int)
        and applies(src, index)
        and index.shape == src.shape[:1]
        and src.numel() > 0
    )


def _has_bounds(src: Tensor, ptr: Any) -> bool:
    """Return whether a plain tensor can be reduced between bounds, and PyG has no extension for it."""
    return (
        not (torch_geometric.typing.WITH_TORCH_SCATTER or torch_geometric.typing.WITH_SOFTMAX)
        and applies(src, ptr)
        and ptr.dim() == 1
        and ptr.numel() > 1
        and src.numel() > 0
    )


def applies(x: Tensor, index: Any = None) -> bool:
    """Return whether onehop's function may run now, and takes the features and the index (None: no index)."""
    return serves_functions() and are_features(x, dims=None) and (index is None or are_numbers(index))


def serves_functions() -> bool:
    """Return whether the patch and the context allow onehop to run PyG's functions."""
    return session.now.serves_functions and context_reason() is None
