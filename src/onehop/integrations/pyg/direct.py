"""PyG's functions that models call themselves: ``scatter``, ``segment``, ``softmax`` and ``spmm``.

Read-outs, aggregation modules and layers of users' own reduce rows by an index, or between bounds. Where an
index ascends, as a batch vector does, its rows lie together, and are reduced as those of a graph: nothing of
the size of the rows is made on the way. An index in another order would have to be sorted first, and is left
to PyG.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.typing
import torch_geometric.utils
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn.aggr import attention, base, basic, set2set
from torch_geometric.nn.pool import glob

from onehop import thresholds
from onehop.integrations import session
from onehop.integrations.pyg.matrices import is_matrix
from onehop.integrations.pyg.matrix_operands import (
    adjacency_reason,
    is_adjacency,
    product_operands,
    tensor_operands,
)
from onehop.integrations.pyg.recognise import OVER_MATRIX
from onehop.integrations.pyg.segments import segments_between, segments_of
from onehop.integrations.pyg.sizes import is_too_small
from onehop.integrations.pyg.tasks import Task
from onehop.integrations.rows import Row, stand_in
from onehop.ops import edge_softmax
from onehop.ops.aggregate import reduce_rows
from onehop.ops.contexts import autocasts, compiling, context_reason, wraps

_DTYPES = (torch.float32, torch.float64)
_PLAIN = (Tensor, Parameter)
_OF_PRODUCTS = {"sum": "sum", "add": "sum", "mean": "mean", "max": "max", "min": "min"}
_OF_SEGMENTS = ("sum", "mean", "max", "min")
_REDUCTIONS = {**_OF_PRODUCTS, "amax": "max", "amin": "min"}
_MATRIX = 2

# PyG spends at least as much on an entry of a softmax, or of an extremum that is differentiated, as on this
# many of a sum.
_COST = 8


def rows() -> list[Row]:
    """The table's rows: where the functions are looked up by PyG's read-outs and by whoever imports them."""
    utils = torch_geometric.utils
    made = {
        "scatter": (scattering(utils.scatter), (utils, glob, base)),
        "segment": (segmenting(utils.segment), (utils, base)),
        "softmax": (normalising(utils.softmax), (utils, basic, attention, set2set)),
        "spmm": (multiplying(utils.spmm), (utils,)),
    }
    return [
        Row(module, name, ours, getattr(module, name))
        for name, (ours, modules) in made.items()
        for module in modules
    ]


def scattering(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """PyG's ``scatter``, over the rows of a sorted index."""
    ours, in_program = _scattered, compiling

    def scatter(src, index, dim=0, dim_size=None, reduce="sum"):  # type: ignore[no-untyped-def]
        out = None if in_program() else ours(src, index, dim, dim_size, reduce)
        return theirs(src, index, dim, dim_size, reduce) if out is None else out

    return stand_in(theirs, scatter)


def segmenting(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """PyG's ``segment``."""
    ours, in_program = _segmented, compiling

    def segment(src, ptr, reduce="sum"):  # type: ignore[no-untyped-def]
        out = None if in_program() else ours(src, ptr, reduce)
        return theirs(src, ptr, reduce) if out is None else out

    return stand_in(theirs, segment)


def normalising(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """PyG's ``softmax``, over the rows of a sorted index, or between bounds."""
    ours, in_program = _normalised, compiling

    def softmax(src, index=None, ptr=None, num_nodes=None, dim=0):  # type: ignore[no-untyped-def]
        out = None if in_program() else ours(src, index, ptr, num_nodes, dim)
        return theirs(src, index, ptr, num_nodes, dim) if out is None else out

    return stand_in(theirs, softmax)


def multiplying(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """PyG's ``spmm``, for torch's own sparse matrices and those of torch_sparse."""
    ours, in_program = _multiplied, compiling

    def spmm(src, other, reduce="sum"):  # type: ignore[no-untyped-def]
        out = None if in_program() else ours(src, other, reduce)
        return theirs(src, other, reduce) if out is None else out

    return stand_in(theirs, spmm)


def _scattered(src: Any, index: Any, dim: Any, dim_size: Any, reduce: Any) -> Tensor | None:
    """The reduced rows; None where PyG's code is to run."""
    if type(src) not in _PLAIN or type(reduce) is not str or reduce not in _REDUCTIONS:
        return None
    costly = reduce[-3:] in ("max", "min") and src.requires_grad and torch.is_grad_enabled()
    if src.numel() * (_COST if costly else 1) < thresholds.now.direct_numbers:
        return None
    if src.dim() < _MATRIX or dim not in (0, -src.dim()) or not _serves(src, index):
        return None
    if dim_size is not None and type(dim_size) is not int:
        return None
    graph = segments_of(index, dim_size)
    if graph is None:
        return None
    out = reduce_rows(graph, src.flatten(1), reduce=_REDUCTIONS[reduce])
    # No view, which autograd would treat otherwise.
    return out if src.dim() == _MATRIX else torch.ops.aten._unsafe_view(out, (graph.num_dst, *src.shape[1:]))


def _segmented(src: Any, ptr: Any, reduce: Any) -> Tensor | None:
    """The reduced rows between bounds; None where PyG's code is to run."""
    if type(src) not in _PLAIN or type(reduce) is not str or reduce not in _OF_SEGMENTS:
        return None
    if src.numel() * _COST < thresholds.now.direct_numbers or src.dim() < _MATRIX:
        return None
    extremum = reduce in ("max", "min")
    # Its gradient is another one than that of scatter's, where ties are at 0.
    if (extremum and src.requires_grad and torch.is_grad_enabled()) or not _bounds_serve(src, ptr):
        return None
    graph = segments_between(ptr, src.size(0))
    if graph is None:
        return None
    out = reduce_rows(graph, src.flatten(1), reduce=reduce)
    if extremum:
        # As PyG does, whose empty segments have an infinite one.
        out = torch.where(out.isinf(), 0, out)
    return out if src.dim() == _MATRIX else torch.ops.aten._unsafe_view(out, (graph.num_dst, *src.shape[1:]))


def _normalised(src: Any, index: Any, ptr: Any, num_nodes: Any, dim: Any) -> Tensor | None:
    """The shares; None where PyG's code is to run."""
    if type(src) not in _PLAIN or src.numel() * _COST < thresholds.now.direct_numbers:
        return None
    if not 1 <= src.dim() <= _MATRIX or dim not in (0, -src.dim()):
        return None
    if ptr is not None:
        # PyG takes infinite extrema of segments for 0.
        if not _bounds_serve(src, ptr) or not math.isfinite(float(src.detach().sum())):
            return None
        graph = segments_between(ptr, src.size(0))
        return None if graph is None else edge_softmax(graph, src)
    if not _serves(src, index):
        return None
    if num_nodes is not None and type(num_nodes) is not int:
        return None
    graph = segments_of(index, num_nodes)
    return None if graph is None else edge_softmax(graph, src)


def _multiplied(matrix: Any, x: Any, reduce: Any) -> Tensor | None:
    """The product, as a layer with a fused path computes it; None where PyG's code is to run."""
    if not is_adjacency(matrix) or type(x) not in _PLAIN or type(reduce) is not str:
        return None
    if reduce not in _OF_PRODUCTS:
        return None
    if not _applies(x) or adjacency_reason(matrix) is not None or x.dim() != _MATRIX:
        return None
    if x.size(0) != matrix.size(1) or is_too_small(matrix, x):
        return None
    sizes: list[int | None] = [matrix.size(1), matrix.size(0)]
    reduce = _REDUCTIONS[reduce]
    operands_of = product_operands if is_matrix(matrix) else tensor_operands
    found = operands_of(matrix, x, sizes, reduce)
    if isinstance(found, str):
        return None
    operands = (found.graph, found.x, found.weight, found.scale)
    return Task(OVER_MATRIX, reduce, *operands, first=found.first).run()


def _serves(src: Tensor, index: Any) -> bool:
    """Return whether rows of a plain tensor can be reduced by this index."""
    return (
        _are_numbers(index)
        and index.shape == src.shape[:1]
        and index.numel() > 0
        and src.numel() > 0
        and _applies(src)
        and not wraps(index)
        and not index.is_inference()
    )


def _bounds_serve(src: Tensor, ptr: Any) -> bool:
    """Return whether rows of a plain tensor can be reduced between these bounds; PyG would do it in torch."""
    return (
        not (torch_geometric.typing.WITH_TORCH_SCATTER or torch_geometric.typing.WITH_SOFTMAX)
        and _are_numbers(ptr)
        and ptr.dim() == 1
        and ptr.numel() > 1
        and src.numel() > 0
        and _applies(src)
        and not wraps(ptr)
        and not ptr.is_inference()
    )


def _are_numbers(index: Any) -> bool:
    return (
        type(index) is Tensor
        and index.dtype is torch.int64
        and index.is_cpu
        and index.layout is torch.strided
    )


def _applies(x: Tensor) -> bool:
    """Return whether the patch and the context allow it, for features on the CPU of more than 16 bits."""
    now = session.now
    return (
        now.pyg
        and now.layers is None
        and not (now.backend or now.machine)
        and context_reason() is None
        and x.is_cpu
        and x.dtype in _DTYPES
        and x.layout is torch.strided
        and not wraps(x)
        and not autocasts(x)
    )
