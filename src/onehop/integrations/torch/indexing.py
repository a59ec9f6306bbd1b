"""torch's own gathers and scatters: rows by an index, and back, over the graph of the index.

Served are ``x[index]`` with one index or mask in any position, ``index_select``, ``gather``, ``index_add``,
``scatter_add`` and ``scatter_reduce``, as functions and as methods, in place and not, along any dimension,
and ``segment_reduce``. Where torch takes an index of entries, it must be an index of rows that is expanded.
Each function here has the arguments of torch's, and returns None where torch's code has to run.
:mod:`onehop.integrations.torch.indexing_rows` calls them.
"""

import math
from collections.abc import Callable
from types import EllipsisType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.parameter import Parameter

from onehop import thresholds
from onehop.errors import IndexRangeError
from onehop.graph import Graph, build
from onehop.integrations.torch.segments import graph_of_bounds, graph_of_lengths
from onehop.ops import masked
from onehop.ops.by_index import (
    ENTRIES,
    REDUCED,
    SELECT,
    SUBSCRIPT,
    Along,
    Theirs,
    added,
    divided,
    extremum,
    segmented,
    taken,
)
from onehop.ops.checks import FLOATS
from onehop.ops.contexts import context_reason, is_memory
from onehop.ops.rows import scattered
from onehop.reference.independent import runs_specification

PLAIN = (Tensor, Parameter)
_INTEGERS = (torch.int64, torch.int32)
_ALL = slice(None)
# What torch's segments without entries are reduced to.
_OF_NOTHING = {"sum": 0.0, "mean": math.nan, "max": -math.inf, "min": math.inf}
_REDUCE = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min"}

# torch spends at least so many times as long on gradients of gathers and means, and of extrema, as on sums.
COST, COST_OF_EXTREMA = 4, 12
# So many times sooner than an index, a mask pays.
_COST_OF_MASKS = 64

Body = Callable[..., Tensor | None]


def may_pay(x: Any, index: Any, masks: bool = False) -> bool:
    """Return whether a call may be served: what is seen at once, by types first.

    Args:
        x: The rows.
        index: The index.
        masks: Whether the index may be a mask.
    """
    if torch.compiler.is_compiling() or type(x) not in PLAIN:
        return False
    numbers, least = x.numel(), thresholds.now.index_numbers
    if masks and index.dtype is torch.bool:
        # A mask has no graph that would have to be made. Recorded, it takes longer by a function of Python's.
        is_enough = numbers * (_COST_OF_MASKS if is_recorded(x) else 4 * _COST_OF_MASKS) >= least
    else:
        # A row has at most all numbers of x.
        is_enough = index.numel() * numbers * COST >= least and x.dtype in FLOATS and index.dtype in _INTEGERS
    # Before anything is computed, which a trace would see. Not whether gradients come in batches: checkpoints
    # run a forward pass again then, as it ran before.
    return is_enough and context_reason() is None and not runs_specification.get()


def pays(numbers: int, cost: int = 1) -> bool:
    """Return whether a gather or scatter of so many numbers is worth the graph of a new index.

    Args:
        numbers: How many are gathered or scattered.
        cost: What torch spends on one of them, in that of a number of a sum.
    """
    return numbers * cost >= thresholds.now.index_numbers


def cost_of(x: Tensor, reduce: str | None = None) -> int:
    """Return the cost of a number that is gathered, where ``reduce`` is None, or reduced."""
    if reduce == "sum" or not is_recorded(x):
        return 1
    return COST if reduce in (None, "mean") else COST_OF_EXTREMA


def is_recorded(x: Tensor) -> bool:
    """Return whether a gradient to the tensor is wanted."""
    return x.requires_grad and torch.is_grad_enabled()


# Gathers


def subscript(x: Tensor, key: Any, index: Tensor) -> Tensor | None:
    """``x[key]`` for a key of one index or mask, and of whole dimensions else, such as ``x[:, index]``."""
    dim, is_mask = 0, index.dtype is torch.bool
    chosen = index.dim() if is_mask else 1
    if type(key) is tuple:
        dim = next(place for place, each in enumerate(key) if each is index)
        kinds = [type(each) for each in (*key[:dim], *key[dim + 1 :])]
        slices = [each for each in key if type(each) is slice]
        # Of the others each is a slice, but for one ellipsis.
        if len(kinds) - len(slices) > kinds.count(EllipsisType) or kinds.count(EllipsisType) > 1:
            return None
        if len(slices) + chosen > x.dim() or any(each != _ALL for each in slices):
            return None
        if EllipsisType in kinds[:dim]:
            dim += x.dim() - len(key) + 1 - chosen
    if is_mask:
        return _masked(x, dim, index)
    # torch makes a view of one row where the index is a number.
    return _taken(x, dim, index, SUBSCRIPT) if index.dim() else None


def _masked(x: Tensor, dim: int, mask: Tensor) -> Tensor | None:
    """The rows along the dimensions of a mask where it is true; None where torch's code has to run."""
    if not mask.dim() or x.shape[dim : dim + mask.dim()] != mask.shape:
        return None
    if not (is_memory(x) and is_memory(mask) and x.is_contiguous()):
        return None
    return masked.taken(x, mask, dim)


def index_select(x: Any, dim: Any = None, index: Any = None, **others: Any) -> Tensor | None:
    """``x.index_select(dim, index)``."""
    place = _place(x, dim)
    if others or place is None or type(index) is not Tensor or index.dim() != 1:
        return None
    return _taken(x, place, index, SELECT)


def gather(x: Any, dim: Any = None, index: Any = None, **others: Any) -> Tensor | None:
    """``x.gather(dim, index)``, for an index of rows that is expanded."""
    place = _place(x, dim)
    if others or place is None or type(index) is not Tensor or not pays(index.numel(), cost_of(x)):
        return None
    of_rows = _of_rows(x, place, index)
    return None if of_rows is None else _taken(x, place, of_rows, ENTRIES)


def _taken(x: Tensor, dim: int, index: Tensor, theirs: Theirs) -> Tensor | None:
    """The rows along a dimension at an index of any shape; None where torch's code has to run."""
    count, numbers = index.numel(), x.numel()
    if not x.dim() or not numbers or not count or not pays(count * numbers // x.size(dim), cost_of(x)):
        return None
    if not (is_memory(x) and x.is_contiguous() and _suits(index, x, dim)):
        return None
    try:
        return taken(x, index, dim, theirs)
    except IndexRangeError:
        return None  # negative numbers count from the end, and others are torch's error


def _place(x: Any, dim: Any) -> int | None:
    """A dimension of a tensor, counted from the first; None if it is not one."""
    if type(dim) is not int or type(x) not in PLAIN:
        return None
    dims: int = x.dim()
    return dim % dims if -dims <= dim < dims else None


# Scatters


def index_add(
    x: Any,
    dim: Any = None,
    index: Any = None,
    source: Any = None,
    *,
    alpha: Any = 1,
    in_place: bool = False,
    **others: Any,
) -> Tensor | None:
    """``x.index_add(dim, index, source)``."""
    place = _place(x, dim)
    if others or place is None or type(source) not in PLAIN:
        return None
    if not pays(source.numel()) or type(alpha) is not int or alpha != 1:
        return None
    sums = _Sums.of(x, place, index, source, SELECT)
    return None if sums is None else _plus(x, sums, source, in_place)


def scatter_add(
    x: Any, dim: Any = None, index: Any = None, src: Any = None, *, in_place: bool = False, **others: Any
) -> Tensor | None:
    """``x.scatter_add(dim, index, src)``, for an index of rows that is expanded."""
    place = _place(x, dim)
    if others or place is None or type(src) not in PLAIN or not pays(src.numel()):
        return None
    sums = _Sums.of_entries(x, place, index, src, ENTRIES)
    return None if sums is None else _plus(x, sums, src, in_place)


def scatter_reduce(
    x: Any,
    dim: Any = None,
    index: Any = None,
    src: Any = None,
    reduce: Any = None,
    *,
    include_self: Any = True,
    in_place: bool = False,
    **others: Any,
) -> Tensor | None:
    """``x.scatter_reduce(dim, index, src, reduce)``, likewise; its products are torch's."""
    place = _place(x, dim)
    if (
        others
        or place is None
        or type(src) not in PLAIN
        or type(reduce) is not str
        or reduce not in _REDUCE
        or not pays(src.numel(), cost_of(src, reduce))
        or type(include_self) is not bool
    ):
        return None
    sums = _Sums.of_entries(x, place, index, src, REDUCED)
    if sums is None:
        return None
    if reduce == "sum" and include_self:
        return _plus(x, sums, src, in_place)
    is_extremum = reduce in ("amax", "amin")
    # The gradient of an extremum is shared with what is in x, and our kernels know of zeros alone.
    if is_extremum and torch.is_grad_enabled() and (x.requires_grad or (src.requires_grad and bool(x.any()))):
        return None
    if reduce == "mean" and include_self:
        out = divided(sums.graph, sums.sum(src).add_(x), sums.by, sums.along).to(x.dtype)
    else:
        out = sums.reduced(src, _REDUCE[reduce])
        stays = sums.graph.in_degrees.view(*x.shape[: place + 1], *[1] * (x.dim() - place - 1)) == 0
        if is_extremum and include_self:
            # NaN stays too.
            stays = stays | (out < x if reduce == "amax" else out > x) | x.isnan()
        out = torch.where(stays, x, out)
    result: Tensor = x.copy_(out) if in_place else out
    return result


def segment_reduce(
    data: Any,
    reduce: Any = None,
    *,
    lengths: Any = None,
    offsets: Any = None,
    axis: Any = 0,
    unsafe: Any = False,
    initial: Any = None,
    **others: Any,
) -> Tensor | None:
    """``torch.segment_reduce(data, reduce)`` along the first dimension, without an initial value.

    Extrema are differentiated by torch, whose entries that tie share a positive gradient alone.
    """
    bounds = offsets if lengths is None else lengths
    if others or type(reduce) is not str or reduce not in _OF_NOTHING or axis != 0 or initial is not None:
        return None
    if (lengths is None) == (offsets is None) or type(unsafe) is not bool or bounds.dim() != 1:
        return None
    if not pays(data.numel()) or (reduce in ("max", "min") and is_recorded(data)):
        return None
    if not (data.dim() and data.numel() and bounds.numel() and is_memory(data) and is_memory(bounds)):
        return None
    graph = (graph_of_bounds if lengths is None else graph_of_lengths)(bounds, data.size(0))
    if graph is None:
        return None
    out = (
        scattered(graph, data, reduce)
        if reduce in ("max", "min")
        else segmented(graph, data, reduce == "mean")
    )
    empty = graph.in_degrees.view(-1, *[1] * (data.dim() - 1)) == 0
    return out if reduce == "sum" else torch.where(empty, _OF_NOTHING[reduce], out)


class _Sums(NamedTuple):
    """Rows into which values are reduced.

    Attributes:
        graph: Of the index.
        by: The index.
        along: The rows.
    """

    graph: Graph
    by: Tensor
    along: Along

    @classmethod
    def of(cls, x: Any, dim: int, index: Any, source: Tensor, theirs: Theirs) -> "_Sums | None":
        """The rows along a dimension of ``x``, into which ``source`` is reduced; None as above."""
        if type(index) is not Tensor or x.dtype is not source.dtype or index.dim() != 1 or not source.numel():
            return None
        if source.shape != (*x.shape[:dim], index.size(0), *x.shape[dim + 1 :]):
            return None
        if not (is_memory(x) and is_memory(source) and x.is_contiguous()):
            return None
        # torch refuses tensors that overlap.
        if x.untyped_storage()._cdata == source.untyped_storage()._cdata or not _suits(index, x, dim):
            return None
        along = Along(x.shape, dim, theirs)
        try:
            return cls(along.graph(index), index, along)
        except IndexRangeError:
            return None

    @classmethod
    def of_entries(cls, x: Any, dim: int, index: Any, src: Tensor, theirs: Theirs) -> "_Sums | None":
        """The same of an index of entries."""
        if type(index) is not Tensor or index.shape != src.shape:
            return None
        of_rows = _of_rows(x, dim, index)
        return None if of_rows is None else cls.of(x, dim, of_rows, src, theirs)

    def sum(self, values: Tensor) -> Tensor:
        """The sums of values, of 16 bits in float32."""
        return added(self.graph, values, self.by, self.along, widen=True)

    def reduced(self, values: Tensor, reduce: str) -> Tensor:
        """Their sums, means, maxima or minima."""
        if reduce in ("max", "min"):
            return extremum(self.graph, values, self.by, self.along, reduce)
        return added(self.graph, values, self.by, self.along, mean=reduce == "mean")


def _plus(x: Tensor, sums: _Sums, values: Tensor, in_place: bool) -> Tensor:
    """Adds sums to ``x``. 16-bit results are rounded once, at the end."""
    total = sums.sum(values)
    return x.add_(total) if in_place else total.add_(x).to(x.dtype)


def _in_place(body: Body) -> Body:
    def function(x: Any, *args: Any, **kwargs: Any) -> Tensor | None:
        # A leaf that needs a gradient must not be written to: torch says so.
        if type(x) not in PLAIN or (x.requires_grad and x.is_leaf and torch.is_grad_enabled()):
            return None
        return body(x, *args, **kwargs, in_place=True)

    return function


FUNCTIONS: dict[str, Body] = {
    "index_select": index_select,
    "gather": gather,
    "index_add": index_add,
    "scatter_add": scatter_add,
    "scatter_reduce": scatter_reduce,
}
# Their index has one entry for each number.
OF_ENTRIES = ("gather", "scatter_add", "scatter_reduce")
IN_PLACE: dict[str, Body] = {
    name: _in_place(FUNCTIONS[name]) for name in ("index_add", "scatter_add", "scatter_reduce")
}


# Indices


def _of_rows(x: Tensor, dim: int, index: Tensor) -> Tensor | None:
    """The index along a dimension that an index of entries repeats in the others; None if it is none."""
    if index.dim() != x.dim():
        return None
    for other, (size, stride) in enumerate(zip(index.shape, index.stride(), strict=True)):
        if other != dim and (size != x.size(other) or not size or (size > 1 and stride)):
            return None
    for _ in range(dim):
        index = index.select(0, 0)
    while index.dim() > 1:
        index = index.select(1, 0)
    return index


def _suits(index: Tensor, x: Tensor, dim: int) -> bool:
    """Return whether an index along a dimension is in memory, and its graph not too large."""
    most = max(x.size(dim), index.numel()) * math.prod(x.shape[:dim])
    return is_memory(index) and most <= build.MOST_NODES and (index.dim() == 1 or index.is_contiguous())
