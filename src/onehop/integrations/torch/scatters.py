"""torch_scatter's functions along the first dimension: rows by an index or between bounds, and back.

Served are ``scatter_sum``, ``scatter_mean``, ``scatter_max``, ``scatter_min``, the sums and means of
``segment_coo`` and ``segment_csr``, ``gather_coo`` and ``gather_csr``, and what calls these in torch_scatter,
such as ``scatter`` and ``scatter_softmax``. They are replaced where torch_scatter has been imported when the
patch is made; PyG imports it. Everything else is torch_scatter's: tensors of one dimension, ``out``, an index
that differs between columns, and extrema of segments, whose entries it leaves undefined where all are NaN.
"""

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import Parameter

from onehop.graph import Graph
from onehop.integrations.rows import Row, everywhere, replacing
from onehop.integrations.torch.indexing import COST, cost_of, pays
from onehop.integrations.torch.segments import graph_of_ascending, graph_of_bounds, graph_of_rows
from onehop.loading import imported
from onehop.ops.arg_extremum import arg_extremum
from onehop.ops.checks import FLOATS
from onehop.ops.contexts import context_reason, is_memory
from onehop.ops.rows import gathered, scattered

_PACKAGE = "torch_scatter"
_PLAIN = (Tensor, Parameter)
_EXACT = (torch.float32, torch.float64)
_MATRIX = 2
_OF_SEGMENTS = {"sum": "sum", "add": "sum", "mean": "mean"}


def rows() -> list[Row]:
    """The rows of the patch table; none where torch_scatter has not been imported."""
    package: Any = imported(_PACKAGE)
    return everywhere(
        replacing(package, name, body, told=f"{_PACKAGE}.{name}")
        for name, body in _FUNCTIONS.items()
        # Functions that TorchScript compiled, as in older releases, stay.
        if type(getattr(package, name, None)) is FunctionType
    )


# The functions: the replaced one comes first, and runs where the result is None


def _scatter(
    reduce: str, _: Any, src: Any, index: Any, dim: Any = -1, out: Any = None, dim_size: Any = None
) -> Tensor | None:
    # Without a size, torch_scatter looks for the largest entry of an index of all numbers, which costs more.
    if out is not None or not _suits(src, costly=dim_size is None):
        return None
    graph = _graph_of_entries(src, index, dim, dim_size)
    return None if graph is None else scattered(graph, src, reduce)


def _extremum(
    reduce: str, _: Any, src: Any, index: Any, dim: Any = -1, out: Any = None, dim_size: Any = None
) -> tuple[Tensor, Tensor] | None:
    if out is not None or not _suits(src, costly=True) or src.dtype not in _EXACT:
        return None
    graph = _graph_of_entries(src, index, dim, dim_size)
    if graph is None:
        return None
    found, winner = arg_extremum(graph, src, reduce=reduce)
    # Where torch_scatter begins: what is no better counts as no entry.
    bound = torch.finfo(src.dtype)
    is_empty = found <= bound.min if reduce == "max" else found >= bound.max
    entry = graph.col.index_select(0, winner.clamp(min=0).view(-1)).long().view(found.shape)
    return torch.where(is_empty, 0, found), torch.where(is_empty, src.size(0), entry)


def _segment_coo(
    reduce: str, _: Any, src: Any, index: Any, out: Any = None, dim_size: Any = None
) -> Tensor | None:
    if out is not None or not _suits(src) or not _is_vector(index):
        return None
    graph = _graph_of_entries(src, index, 0, dim_size, graph_of_ascending)
    return None if graph is None else scattered(graph, src, reduce)


def _segment_csr(reduce: str, _: Any, src: Any, indptr: Any, out: Any = None) -> Tensor | None:
    if out is not None or not _suits(src) or not _is_vector(indptr):
        return None
    graph = graph_of_bounds(indptr, src.size(0))
    return None if graph is None else scattered(graph, src, reduce)


def _gather_coo(_: Any, src: Any, index: Any, out: Any = None) -> Tensor | None:
    if out is not None or not _is_vector(index) or not _suits(src, entries=index.numel()):
        return None
    graph = graph_of_ascending(index, src.size(0))
    return None if graph is None else gathered(graph, src)


def _gather_csr(_: Any, src: Any, indptr: Any, out: Any = None) -> Tensor | None:
    if out is not None or not _is_vector(indptr) or not indptr.numel():
        return None
    entries = int(indptr[-1])
    if not _suits(src, entries=entries) or src.size(0) != indptr.numel() - 1:
        return None
    graph = graph_of_bounds(indptr, entries)
    return None if graph is None else gathered(graph, src)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"scatter_{each}": partial(_scatter, each) for each in ("sum", "mean")},
    **{f"scatter_{each}": partial(_extremum, each) for each in ("max", "min")},
    **{f"segment_{name}_coo": partial(_segment_coo, reduce) for name, reduce in _OF_SEGMENTS.items()},
    **{f"segment_{name}_csr": partial(_segment_csr, reduce) for name, reduce in _OF_SEGMENTS.items()},
    "gather_coo": _gather_coo,
    "gather_csr": _gather_csr,
}


def _suits(src: Any, costly: bool = False, entries: int | None = None) -> bool:
    """Return whether rows of several numbers are in memory, enough of them, and nothing observes their use.

    Args:
        src: The rows.
        costly: Whether it costs torch_scatter as much as torch's gradients do, though none is wanted.
        entries: How many are gathered; None means that all are scattered.
    """
    return (
        type(src) in _PLAIN
        # Before sizes, which a trace would see.
        and context_reason() is None
        and src.dim() >= _MATRIX
        and src.numel() > 0
        and pays(
            src.numel() if entries is None else entries * src.numel() // src.size(0),
            COST if costly else cost_of(src),
        )
        and src.dtype in FLOATS
        and is_memory(src)
    )


def _is_vector(index: Any) -> bool:
    return type(index) is Tensor and index.dim() == 1 and index.dtype is torch.int64 and is_memory(index)


def _graph_of_entries(
    src: Tensor,
    index: Any,
    dim: Any,
    num_rows: Any,
    graph_of: Callable[[Tensor, int | None], Graph | None] = graph_of_rows,
) -> Graph | None:
    """The graph of an index that torch_scatter repeats for each number of a row; None if it is another."""
    if type(index) is not Tensor or not 1 <= index.dim() <= src.dim() or index.size(0) != src.size(0):
        return None
    repeats = zip(index.shape[1:], index.stride()[1:], src.shape[1:], strict=False)
    if any(size != 1 and (stride or size != want) for size, stride, want in repeats):
        return None
    while index.dim() > 1:
        index = index.select(1, 0)
    fits = dim in (0, -src.dim()) and (num_rows is None or type(num_rows) is int) and _is_vector(index)
    return graph_of(index, num_rows) if fits else None
