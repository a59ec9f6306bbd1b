"""Gathers and scatters of rows by an index, and their gradients, over the graph of the index.

Each function has the arguments of torch's CPU kernel, and returns None if torch's kernel has to run. An
in-place function returns the tensor that it has written to. :mod:`onehop.integrations.torch.kernels` calls
the functions below autograd, which does not record what they do. If torch's operator takes an index for each
entry, only an expanded index of rows is served.
"""

import functools
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import Parameter

from onehop import thresholds
from onehop.errors import IndexRangeError
from onehop.graph import Graph, build
from onehop.integrations.torch.segments import graph_of_bounds, graph_of_lengths
from onehop.integrations.torch.served import Body, Served
from onehop.kernels.cpu.rows import add_rows
from onehop.native import WithoutMemoryError, empty, threads
from onehop.ops import masked
from onehop.ops.by_index import Along, reduced_to, rows_at
from onehop.ops.checks import FLOATS
from onehop.ops.contexts import is_numbers
from onehop.ops.rows import gathered, scattered
from onehop.reference.independent import runs_specification

PLAIN = (Tensor, Parameter)
_REDUCE = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min"}

_INTEGERS = (torch.int64, torch.int32)
EXACT = (torch.float32, torch.float64)
_MATRIX = 2
# torch's codes for the reductions of embedding bags.
_BAGS = {"sum": 0, "mean": 1}
# If a row has at least this many numbers, only the rows that a mask selects are read and written.
_WIDE = 8
# torch's results for empty segments.
_OF_NOTHING = {"sum": 0.0, "mean": math.nan, "max": -math.inf, "min": math.inf}

# In torch, gradients of gathers and means (COST) and of extrema take at least this many times as long as
# sums.
COST, COST_OF_EXTREMA = 4, 12


def pays(numbers: int, cost: int = 1) -> bool:
    """Return whether a gather or scatter is large enough to be worth the graph of a new index.

    Args:
        numbers: How many numbers are gathered or scattered.
        cost: torch's time for one of them, as a multiple of its time for one number of a sum.
    """
    return numbers * cost >= thresholds.now.index_numbers


def cost_of(x: Tensor, reduce: str | None = None) -> int:
    """Return torch's cost (see :func:`pays`) of one number that is gathered (``reduce`` None) or reduced."""
    if reduce == "sum" or not is_recorded(x):
        return 1
    return COST if reduce in (None, "mean") else COST_OF_EXTREMA


def is_recorded(x: Tensor) -> bool:
    """Return whether autograd records operations on the tensor."""
    return x.requires_grad and torch.is_grad_enabled()


def _left_to_torch(body: Body) -> Body:
    """Wraps ``body`` so that it also returns None if an index is out of range or a tensor has no memory.

    torch then runs: in a subscript, it counts negative numbers from the end, and raises its own error for
    other numbers out of range.
    """

    @functools.wraps(body)
    def function(*args: Any, **kwargs: Any) -> Tensor | None:
        try:
            suits = all(is_numbers(argument) for argument in args if isinstance(argument, Tensor))
            return body(*args, **kwargs) if suits and not runs_specification.get() else None
        except (IndexRangeError, WithoutMemoryError):
            return None

    return function


# Gathers


@_left_to_torch
def subscript(x: Tensor, dim: int, index: Tensor) -> Tensor | None:
    """Compute ``x[index]`` for an index or a mask along a dimension."""
    if index.dtype is torch.bool:
        suits = index.dim() and x.shape[dim : dim + index.dim()] == index.shape and x.is_contiguous()
        return masked.taken(x, index, dim) if suits else None
    # If the index is a single number, torch makes a view of one row.
    return _taken(x, dim, index) if index.dim() else None


@_left_to_torch
def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor | None:
    """Compute ``x.index_select(dim, index)``."""
    along = _along(x, dim, index) if index.dim() == 1 else None
    return None if along is None or not _are_wide(along, COST) else rows_at(x, index, along)


@_left_to_torch
def gather(x: Tensor, dim: int, index: Tensor) -> Tensor | None:
    """Compute ``x.gather(dim, index)`` for an expanded index of rows."""
    rows = _of_rows(x, dim, index)
    return None if rows is None else _taken(x, dim, rows)


def _taken(x: Tensor, dim: int, index: Tensor) -> Tensor | None:
    along = _along(x, dim, index)
    return None if along is None else rows_at(x, index, along)


# Scatters


@_left_to_torch
def subscript_add(x: Tensor, dim: int, index: Tensor, values: Tensor) -> Tensor | None:
    """Compute ``x.index_put_((index,), values, accumulate=True)``; the index or mask is along a dimension."""
    if index.dtype is torch.bool:
        return _put(x, dim, index, values)
    along = _along(x, dim, index) if index.dim() else None
    if along is None or values.shape != along.chosen(index):
        return None
    return _plus(x, index, values, along, in_place=True, cost=COST)


def _put(x: Tensor, dim: int, mask: Tensor, values: Tensor) -> Tensor | None:
    first, last = x.shape[:dim], x.shape[dim + mask.dim() :]
    if not mask.dim() or x.shape[dim : dim + mask.dim()] != mask.shape or not x.is_contiguous():
        return None
    if values.dtype is not x.dtype or values.dim() != len(first) + 1 + len(last) or _overlap(x, values):
        return None
    if values.shape != (*first, values.size(dim), *last):
        return None
    if not first and math.prod(last) >= _WIDE and x.dtype in EXACT:
        index = mask.clone().flatten().nonzero().squeeze(1)  # a copy of the mask, for the reason below
        if len(index) == len(values):
            add_rows(x.view(-1, *values.shape[1:]), index, values)
            return x
    rows = masked.put(values, mask, dim, x.shape)
    if rows is not None:
        return x.add_(rows)
    # The number of true entries differs from the number of values: torch broadcasts the values, or raises. It
    # gets a copy of the mask, because it reads a mask several times, and another thread may write to it.
    x = torch.ops.aten._index_put_impl_(x, [*[None] * dim, mask.clone()], values, True, True)
    return x


@_left_to_torch
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, in_place: bool = False) -> Tensor | None:
    """Compute ``x.index_add(dim, index, source)``."""
    along = _along(x, dim, index) if index.dim() == 1 else None
    if along is None or source.shape != along.chosen(index):
        return None
    return _plus(x, index, source, along, in_place)


@_left_to_torch
def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor, in_place: bool = False) -> Tensor | None:
    """Compute ``x.scatter_add(dim, index, src)`` for an expanded index of rows."""
    rows, along = _of_entries(x, dim, index, src)
    return None if along is None else _plus(x, rows, src, along, in_place)


@_left_to_torch
def scatter_value(x: Tensor, dim: int, index: Tensor, value: int) -> Tensor | None:
    """Compute ``x.scatter(dim, index, value)`` for an integer value and an expanded index of rows."""
    rows = _of_rows(x, dim, index)
    along = None if rows is None else _along(x, dim, rows)
    if rows is None or along is None:
        return None
    return torch.where(_entries(along.graph(rows), along) == 0, x, value)


@_left_to_torch
def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool, in_place: bool = False
) -> Tensor | None:
    """Compute ``x.scatter_reduce(dim, index, src, reduce)`` for an expanded index of rows.

    torch runs the reduction "prod".
    """
    rows, along = _of_entries(x, dim, index, src)
    if along is None or reduce not in _REDUCE or _overlap(x, src):
        return None
    if reduce == "sum" and include_self:
        return _plus(x, rows, src, along, in_place)
    if not _are_wide(along, 1 if reduce == "sum" else COST):
        return None
    graph = along.graph(rows)
    entries = _entries(graph, along)
    if reduce == "mean" and include_self:
        total = reduced_to(graph, src, along, "sum", widen=True).add_(x)
        out = (total / (entries + 1).to(total.dtype)).to(x.dtype)
    else:
        out = reduced_to(graph, src, along, _REDUCE[reduce])
        stays = entries == 0
        if reduce in ("amax", "amin") and include_self:
            # A NaN in x stays too.
            stays = stays | (out < x if reduce == "amax" else out > x) | x.isnan()
        out = torch.where(stays, x, out)
    return x.copy_(out) if in_place else out


@_left_to_torch
def embedding_grad(grad: Tensor, index: Tensor, rows: int, padding: int) -> Tensor | None:
    """Compute the gradient, [rows, D], to an embedding's weight; 0 in row ``padding`` (-1: no such row)."""
    along = Along(torch.Size((rows, grad.size(-1))), 0)
    if not grad.numel() or rows > build.MOST_NODES or grad.shape != (*index.shape, grad.size(-1)):
        return None
    total = reduced_to(along.graph(index), grad.reshape(-1, grad.size(-1)), along, "sum")
    if padding >= 0:
        total[padding] = 0
    return total


@_left_to_torch
def bags_grad(
    grad: Tensor,
    index: Tensor,
    bags: Tensor,
    sizes: Tensor,
    rows: int,
    mode: int,
    weights: Tensor | None,
    padding: int,
) -> Tensor | None:
    """Compute the gradient, [rows, D], to the weight of an embedding bag.

    Args:
        grad: [B, D], the gradient to the bags' results.
        index: [n], the row of each entry.
        bags: [n], the bag of each entry.
        sizes: [B], the number of entries of each bag.
        rows: Number of rows of the weight.
        mode: 0 for sums, 1 for means; torch runs other modes.
        weights: [n], the weight of each entry; None means 1.
        padding: The row that gets no gradient; -1 means that every row gets one.
    """
    if (
        mode not in _BAGS.values()
        or grad.dtype not in EXACT
        or grad.dim() != _MATRIX
        or bags.dtype is not index.dtype
    ):
        return None
    if index.dim() != 1 or bags.shape != index.shape or not grad.numel():
        return None
    if weights is not None and (weights.dtype is not grad.dtype or weights.shape != index.shape):
        return None
    if mode == _BAGS["mean"]:
        if sizes.shape != grad.shape[:1]:
            return None
        grad = grad / sizes.clamp(min=1).to(grad.dtype).unsqueeze(1)
    total = empty((rows, grad.size(1)), grad.dtype).zero_()
    weights = None if weights is None else weights.contiguous()
    add_rows(total, index.contiguous(), grad, bags.contiguous(), weights)
    if padding >= 0:
        total[padding] = 0
    return total


# Segments


@_left_to_torch
def segment_reduce(
    data: Tensor, reduce: str, lengths: Tensor | None, offsets: Tensor | None, axis: int
) -> Tensor | None:
    """Compute ``torch.segment_reduce(data, reduce)`` along the first dimension, without an initial value."""
    graph = _segments(data, reduce, lengths, offsets, axis)
    if graph is None:
        return None
    out = scattered(graph, data, reduce)
    entries = graph.in_degrees.view(-1, *[1] * (data.dim() - 1))
    return out if reduce == "sum" else torch.where(entries == 0, _OF_NOTHING[reduce], out)


@_left_to_torch
def segment_reduce_grad(
    grad: Tensor, data: Tensor, reduce: str, lengths: Tensor | None, offsets: Tensor | None, axis: int
) -> Tensor | None:
    """Compute the gradient of sums and means of segments to the data; torch computes it for extrema."""
    graph = _segments(data, reduce, lengths, offsets, axis) if reduce in ("sum", "mean") else None
    if graph is None or grad.shape != (graph.num_dst, *data.shape[1:]) or grad.dtype is not data.dtype:
        return None
    if reduce == "mean":
        grad = grad / graph.in_degrees.clamp(min=1).to(grad.dtype).view(-1, *[1] * (data.dim() - 1))
    return gathered(graph, grad.contiguous())


def _segments(
    data: Tensor, reduce: str, lengths: Tensor | None, offsets: Tensor | None, axis: int
) -> Graph | None:
    bounds = offsets if lengths is None else lengths
    if reduce not in _OF_NOTHING or axis != 0 or bounds is None or bounds.dim() != 1:
        return None
    if bounds.dtype not in _INTEGERS:
        return None
    if (lengths is not None and offsets is not None) or data.dtype not in FLOATS:
        return None
    if not (data.dim() and data.numel() and bounds.numel() and data.is_contiguous()):
        return None
    return (graph_of_bounds if lengths is None else graph_of_lengths)(bounds, data.size(0))


def _entries(graph: Graph, along: Along) -> Tensor:
    """Return the number of entries of each row, in a shape that broadcasts over the tensor."""
    return graph.in_degrees.view(*along.shape[: along.dim + 1], *[1] * (len(along.shape) - along.dim - 1))


def _of_entries(x: Tensor, dim: int, index: Tensor, src: Tensor) -> tuple[Tensor, Along | None]:
    """Return the index of rows that an index of entries expands, and the rows (None for another index)."""
    rows = _of_rows(x, dim, index) if index.shape == src.shape else None
    return (index, None) if rows is None else (rows, _along(x, dim, rows))


def _plus(
    x: Tensor, index: Tensor, values: Tensor, along: Along, in_place: bool, cost: int = 1
) -> Tensor | None:
    """Adds the sums of ``values`` by ``index`` to ``x``. 16-bit results are rounded once, at the end."""
    if values.dtype is not x.dtype or _overlap(x, values) or not _are_wide(along, cost):
        return None
    total = reduced_to(along.graph(index), values, along, "sum", widen=True)
    return x.add_(total) if in_place else total.add_(x).to(x.dtype)


def _overlap(x: Tensor, values: Tensor) -> bool:
    """Return whether two tensors share a storage; torch raises an error if they overlap."""
    return bool(x.untyped_storage()._cdata == values.untyped_storage()._cdata)


def _in_place(body: Body) -> Body:
    return functools.partial(body, in_place=True)


SERVED = {
    "index": Served(subscript, "x[index]"),
    "_index_put_impl_": Served(subscript_add, "index_put"),
    "index_select": Served(index_select, "index_select"),
    "gather": Served(gather, "gather"),
    "index_add": Served(index_add, "index_add"),
    "index_add_": Served(_in_place(index_add), "index_add"),
    "scatter_add": Served(scatter_add, "scatter_add"),
    "scatter_add_": Served(_in_place(scatter_add), "scatter_add"),
    "scatter": Served(scatter_value, "scatter"),
    "scatter_reduce": Served(scatter_reduce, "scatter_reduce"),
    "scatter_reduce_": Served(_in_place(scatter_reduce), "scatter_reduce"),
    "embedding_dense_backward": Served(embedding_grad, "embedding_dense_backward"),
    "_embedding_bag_dense_backward": Served(bags_grad, "_embedding_bag_dense_backward"),
    "segment_reduce": Served(segment_reduce, "segment_reduce"),
    "_segment_reduce_backward": Served(segment_reduce_grad, "segment_reduce_backward"),
}
"""The functions that run instead of operators, by the operator's name."""


# Indices


def _along(x: Tensor, dim: int, index: Tensor) -> Along | None:
    """Return the rows along a dimension; None if the tensor or the index is not supported."""
    if not (-x.dim() <= dim < x.dim() and x.numel() and index.numel() and x.is_contiguous()):
        return None
    along = Along(x.shape, dim % x.dim())
    most = max(x.size(dim), index.numel()) * along.blocks
    suits = x.dtype in FLOATS and most <= build.MOST_NODES and (index.dim() == 1 or index.is_contiguous())
    return along if suits else None


def _are_wide(along: Along, cost: int) -> bool:
    """Return whether rows are so wide that our threads are faster than one loop over all numbers.

    Args:
        along: The rows.
        cost: torch's time for one number, as a multiple of its time for one number of a sum.
    """
    columns = math.prod(along.shape[along.dim + 1 :])
    return columns * threads() * cost >= thresholds.now.index_columns


def _of_rows(x: Tensor, dim: int, index: Tensor) -> Tensor | None:
    """Return the index of rows that an index of entries expands; None for any other index."""
    if index.dim() != x.dim() or index.dtype is not torch.int64 or not -x.dim() <= dim < x.dim():
        return None
    dim %= x.dim()
    for other, (size, stride) in enumerate(zip(index.shape, index.stride(), strict=True)):
        if other != dim and (size != x.size(other) or not size or (size > 1 and stride)):
            return None
    for _ in range(dim):
        index = index.select(0, 0)
    while index.dim() > 1:
        index = index.select(1, 0)
    return index
