"""torch's own gathers and scatters: rows by an index, and back, over the graph of the index.

Served are ``index_select``, ``gather``, ``index_add``, ``scatter_add`` and ``scatter_reduce``, as functions
and as methods, in place and not, along the first dimension. Where torch takes an index of entries, it must be
an index of rows that is expanded. The methods of ``torch.Tensor`` are replaced, so calls from C++ run torch's
code. ``x[index]`` is torch's: a ``__getitem__`` in Python makes a sequence of every tensor, and then
``torch.tensor`` refuses lists of numbers that are tensors.

Checks delay every call, so those of types come first, then those of sizes, then all others.
"""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.jit import _builtins
from torch.nn.parameter import Parameter

from onehop import thresholds
from onehop.errors import IndexRangeError
from onehop.graph import Graph
from onehop.integrations import rows as patch_table
from onehop.integrations.rows import Row
from onehop.ops.checks import FLOATS
from onehop.ops.contexts import context_reason, is_memory
from onehop.ops.rows import gathered, graph_of_index, scattered
from onehop.reference.independent import running

_PLAIN = (Tensor, Parameter)
_INTEGERS = (torch.int64, torch.int32)
_REDUCE = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min"}

# torch spends at least so many times as long on the gradients of gathers, means and extrema as on sums.
_COST = 4

Body = Callable[..., Tensor | None]


def rows() -> list[Row]:
    """The rows of the patch table."""
    found = []
    for name, body in _FUNCTIONS.items():
        found += [_row(owner, name, body) for owner in (Tensor, torch)]
    for name, body in _IN_PLACE.items():
        found.append(_row(Tensor, f"{name}_", body))
    return found


def _row(owner: Any, name: str, body: Body) -> Row:
    held = inspect.getattr_static(owner, name)
    inherited = isinstance(owner, type) and name not in vars(owner)
    return Row(owner, name, _before(getattr(owner, name), body), held, inherited)


@functools.cache  # TorchScript knows it by its id, so it must never be freed
def _before(theirs: Any, body: Body) -> Any:
    """A function that passes for ``theirs``, a builtin; it runs ``body`` first, which may return None."""
    is_compiling, modes, bounds = torch.compiler.is_compiling, torch._C._len_torch_function_stack, thresholds
    told, count = theirs.__name__, patch_table

    def may_pay(x: Any, index: Any) -> bool:
        # A row has at most all numbers of x.
        return (
            not is_compiling()
            and (type(x) is Tensor or type(x) is Parameter)
            and index.numel() * x.numel() * _COST >= bounds.now.index_numbers
            and x.dtype in FLOATS
            and index.dtype in _INTEGERS
            # Before anything is computed, which a trace would see. Not whether gradients come in batches:
            # checkpoints run a forward pass again then, as it ran before.
            and context_reason() is None
            and not running.specification
        )

    # Types come first, and modes before sizes: they would see whatever is looked at.
    def ours(*args, **kwargs):  # type: ignore[no-untyped-def]
        index = args[2] if len(args) > 2 else kwargs.get("index")
        enough = type(index) is Tensor and not modes() and index.numel() >= bounds.now.index_entries
        if enough and may_pay(args[0] if args else None, index):
            out = body(*args, **kwargs)
            if count.counter is not None:
                count.counter[told, out is not None] += 1
            if out is not None:
                return out
        return theirs(*args, **kwargs)

    # Where it is found, as pickle looks it up.
    place = "Tensor." if inspect.ismethoddescriptor(theirs) else ""
    ours.__module__, ours.__qualname__ = "torch", place + theirs.__name__
    ours.__name__, ours.__doc__ = theirs.__name__, theirs.__doc__
    ours.onehop_theirs = theirs  # type: ignore[attr-defined]
    # TorchScript finds a builtin operator by the function.
    operator = _builtins._find_builtin(theirs)
    if operator is not None:
        _builtins._register_builtin(ours, operator)
    return ours


def pays(numbers: int, costly: bool = False) -> bool:
    """Return whether a gather or scatter of so many numbers is worth the graph of a new index.

    Args:
        numbers: How many are gathered or scattered.
        costly: Whether torch would differentiate a gather, a mean or an extremum.
    """
    return numbers * (_COST if costly else 1) >= thresholds.now.index_numbers


def is_recorded(x: Tensor) -> bool:
    """Return whether a gradient to the tensor is wanted."""
    return x.requires_grad and torch.is_grad_enabled()


# Gathers


def index_select(x: Any, dim: Any = None, index: Any = None, **others: Any) -> Tensor | None:
    """``x.index_select(0, index)``."""
    if others or dim != 0 or type(index) is not Tensor or index.dim() != 1:
        return None
    graph = _graph(x, index)
    return None if graph is None else gathered(graph, x)


def gather(x: Any, dim: Any = None, index: Any = None, **others: Any) -> Tensor | None:
    """``x.gather(0, index)``, for an index of rows that is expanded."""
    if others or dim != 0 or type(index) is not Tensor or not pays(index.numel(), is_recorded(x)):
        return None
    of_rows = _of_rows(x, index)
    return None if of_rows is None else index_select(x, 0, of_rows)


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
    """``x.index_add(0, index, source)``."""
    if others or dim != 0 or type(source) not in _PLAIN:
        return None
    if not pays(source.numel()) or type(alpha) is not int or alpha != 1:
        return None
    graph = _graph_of_target(x, index, source)
    return None if graph is None else _plus(x, scattered(graph, source, "sum"), in_place)


def scatter_add(
    x: Any, dim: Any = None, index: Any = None, src: Any = None, *, in_place: bool = False, **others: Any
) -> Tensor | None:
    """``x.scatter_add(0, index, src)``, for an index of rows that is expanded."""
    if others or dim != 0 or type(src) not in _PLAIN or not pays(src.numel()):
        return None
    graph = _graph_of_entries(x, index, src)
    return None if graph is None else _plus(x, scattered(graph, src, "sum"), in_place)


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
    """``x.scatter_reduce(0, index, src, reduce)``, likewise; its products are torch's."""
    if (
        others
        or dim != 0
        or type(src) not in _PLAIN
        or not pays(src.numel(), reduce != "sum" and is_recorded(src))
    ):
        return None
    if type(reduce) is not str or reduce not in _REDUCE or type(include_self) is not bool:
        return None
    graph = _graph_of_entries(x, index, src)
    if graph is None:
        return None
    if reduce == "sum" and include_self:
        return _plus(x, scattered(graph, src, "sum"), in_place)
    is_extremum = reduce in ("amax", "amin")
    # The gradient of an extremum is shared with what is in x, and our kernels know of zeros alone.
    if is_extremum and torch.is_grad_enabled() and (x.requires_grad or (src.requires_grad and bool(x.any()))):
        return None
    entries = graph.in_degrees.view(-1, *[1] * (x.dim() - 1))
    if reduce == "mean" and include_self:
        out = (x + scattered(graph, src, "sum")) / (entries + 1)
    else:
        out = scattered(graph, src, _REDUCE[reduce])
        stays = entries == 0
        if is_extremum and include_self:
            # NaN stays too.
            stays = stays | (out < x if reduce == "amax" else out > x) | x.isnan()
        out = torch.where(stays, x, out)
    result: Tensor = x.copy_(out) if in_place else out
    return result


def _plus(x: Tensor, total: Tensor, in_place: bool) -> Tensor:
    return x.add_(total) if in_place else total.add_(x)


def _in_place(body: Body) -> Body:
    def function(x: Any, *args: Any, **kwargs: Any) -> Tensor | None:
        # A leaf that needs a gradient must not be written to: torch says so.
        if type(x) not in _PLAIN or (x.requires_grad and x.is_leaf and torch.is_grad_enabled()):
            return None
        return body(x, *args, **kwargs, in_place=True)

    return function


_FUNCTIONS: dict[str, Body] = {
    "index_select": index_select,
    "gather": gather,
    "index_add": index_add,
    "scatter_add": scatter_add,
    "scatter_reduce": scatter_reduce,
}
_IN_PLACE: dict[str, Body] = {
    name: _in_place(_FUNCTIONS[name]) for name in ("index_add", "scatter_add", "scatter_reduce")
}


# The graph of an index


def _graph(x: Any, index: Tensor) -> Graph | None:
    """The graph of an index into the rows of ``x``; None where torch's code has to run."""
    count, numbers = index.numel(), x.numel()
    if not x.dim() or not numbers or not count or not pays(count * numbers // x.size(0), is_recorded(x)):
        return None
    return _of(index, x.size(0)) if is_memory(x) and x.is_contiguous() else None


def _graph_of_target(x: Any, index: Any, source: Tensor) -> Graph | None:
    """The graph of an index of rows of ``x``, into which ``source`` is reduced; None likewise."""
    if type(x) not in _PLAIN or type(index) is not Tensor or x.dtype is not source.dtype:
        return None
    if index.dim() != 1 or not x.dim() or source.shape != (index.size(0), *x.shape[1:]) or not source.numel():
        return None
    if not (is_memory(x) and is_memory(source) and x.is_contiguous()):
        return None
    # torch refuses tensors that overlap.
    overlaps = x.untyped_storage()._cdata == source.untyped_storage()._cdata
    return None if overlaps else _of(index, x.size(0))


def _graph_of_entries(x: Any, index: Any, src: Tensor) -> Graph | None:
    """The same of an index of entries."""
    if type(x) not in _PLAIN or type(index) is not Tensor or index.shape != src.shape:
        return None
    of_rows = _of_rows(x, index)
    return None if of_rows is None else _graph_of_target(x, of_rows, src)


def _of_rows(x: Any, index: Tensor) -> Tensor | None:
    """The index of rows that an index of entries repeats in each column; None if it is another one."""
    dims = index.dim()
    if not dims or type(x) not in _PLAIN or index.shape[1:] != x.shape[1:]:
        return None
    if dims == 1:
        return index
    shape, strides = index.shape[1:], index.stride()[1:]
    if any(size > 1 and stride for size, stride in zip(shape, strides, strict=True)) or not math.prod(shape):
        return None
    while index.dim() > 1:
        index = index.select(1, 0)
    return index


def _of(index: Tensor, count: int) -> Graph | None:
    if not is_memory(index):
        return None
    try:
        found = graph_of_index(index, count)
    except IndexRangeError:
        return None  # negative numbers count from the end, and others are torch's error
    return found if isinstance(found, Graph) else None
