"""torch_scatter's operators: reductions and gathers of rows, by an index or by segment bounds.

The patch serves ``scatter_max`` and ``scatter_min`` along any dimension, the sums and means of
``segment_coo`` and ``segment_csr``, and ``gather_coo`` and ``gather_csr``, in calls from Python and from
TorchScript. The other functions of torch_scatter call torch's operators, which the patch serves too.
torch_scatter runs everything else: tensors of one dimension, ``out``, an index that differs between columns,
and extrema of segments (torch_scatter does not define their indices if all entries are NaN).

Each function takes the operator's arguments, and returns None if torch_scatter has to run. It runs above
autograd, so autograd records it.
"""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from onehop.errors import IndexRangeError
from onehop.graph import Graph
from onehop.integrations.torch.indexing import COST, EXACT, PLAIN, cost_of, pays
from onehop.integrations.torch.segments import graph_of_ascending, graph_of_bounds, graph_of_rows
from onehop.integrations.torch.served import Body, Served
from onehop.native import WithoutMemoryError
from onehop.ops.arg_extremum import arg_extremum
from onehop.ops.checks import FLOATS
from onehop.ops.contexts import context_reason, is_memory
from onehop.ops.rows import gathered, scattered

PACKAGE = "torch_scatter"
_MATRIX = 2


def _extremum(
    reduce: str, src: Tensor, index: Tensor, dim: int, dim_size: int | None
) -> tuple[Tensor, Tensor] | None:
    if not _suits(src, costly=True) or src.dtype not in EXACT or not -src.dim() <= dim < src.dim():
        return None
    dim %= src.dim()
    rows = src.movedim(dim, 0)
    if index.dim() > 1:
        # If the index has fewer dimensions, the last ones are missing.
        index = index.reshape(*index.shape, *[1] * (src.dim() - index.dim())).movedim(dim, 0)
    graph = _graph_of_entries(rows, index, dim_size)
    if graph is None:
        return None
    extrema, winner = arg_extremum(graph, rows.contiguous(), reduce=reduce)
    # torch_scatter starts from this bound; an entry that is not better counts as no entry.
    bound = torch.finfo(src.dtype)
    is_empty = extrema <= bound.min if reduce == "max" else extrema >= bound.max
    entry = graph.col.index_select(0, winner.clamp(min=0).view(-1)).long().view(extrema.shape)
    results = torch.where(is_empty, 0, extrema), torch.where(is_empty, rows.size(0), entry)
    return tuple(result.movedim(0, dim).contiguous() for result in results)  # type: ignore[return-value]


def _segment_coo(reduce: str, src: Tensor, index: Tensor, dim_size: int | None) -> Tensor | None:
    if not _suits(src) or not _is_vector(index):
        return None
    graph = _graph_of_entries(src, index, dim_size, graph_of_ascending)
    return None if graph is None else scattered(graph, src, reduce)


def _segment_csr(reduce: str, src: Tensor, indptr: Tensor) -> Tensor | None:
    if not _suits(src) or not _is_vector(indptr):
        return None
    graph = graph_of_bounds(indptr, src.size(0))
    return None if graph is None else scattered(graph, src, reduce)


def _gather_coo(src: Tensor, index: Tensor) -> Tensor | None:
    if not _is_vector(index) or not _suits(src, entries=index.numel()):
        return None
    graph = graph_of_ascending(index, src.size(0))
    return None if graph is None else gathered(graph, src)


def _gather_csr(src: Tensor, indptr: Tensor) -> Tensor | None:
    if not _is_vector(indptr) or not indptr.numel():
        return None
    entries = int(indptr[-1])
    if not _suits(src, entries=entries) or src.size(0) != indptr.numel() - 1:
        return None
    graph = graph_of_bounds(indptr, entries)
    return None if graph is None else gathered(graph, src)


def _left_to_package(body: Body) -> Body:
    """Wraps ``body`` so that it also returns None if an index is out of range or a tensor has no memory."""

    @functools.wraps(body)
    def function(*args: Any) -> Any:
        try:
            return body(*args)
        except (IndexRangeError, WithoutMemoryError):
            return None

    return function


_BODIES: dict[str, Callable[..., Any]] = {
    **{f"scatter_{reduce}": partial(_extremum, reduce) for reduce in ("max", "min")},
    **{f"segment_{reduce}_coo": partial(_segment_coo, reduce) for reduce in ("sum", "mean")},
    **{f"segment_{reduce}_csr": partial(_segment_csr, reduce) for reduce in ("sum", "mean")},
    "gather_coo": _gather_coo,
    "gather_csr": _gather_csr,
}
SERVED = {
    f"{PACKAGE}::{name}": Served(_left_to_package(body), f"{PACKAGE}.{name}")
    for name, body in _BODIES.items()
}
"""The functions that run instead of operators, by the operator's name."""


def _suits(src: Tensor, costly: bool = False, entries: int | None = None) -> bool:
    """Return whether onehop reads these rows: several numbers each, enough rows, an allowed context.

    Args:
        src: The rows.
        costly: Whether torch_scatter's operator is as slow as torch's gradients, even without gradients.
        entries: How many rows are gathered; None means that all rows are scattered.
    """
    return (
        type(src) in PLAIN
        # The context is checked before any size is read, because a trace would record the read.
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


def _is_vector(index: Tensor) -> bool:
    return type(index) is Tensor and index.dim() == 1 and index.dtype is torch.int64 and is_memory(index)


def _graph_of_entries(
    src: Tensor,
    index: Tensor,
    num_rows: int | None,
    graph_of: Callable[[Tensor, int | None], Graph | None] = graph_of_rows,
) -> Graph | None:
    """Return the graph of an index that is expanded over each row's numbers; None for any other index."""
    if type(index) is not Tensor or not 1 <= index.dim() <= src.dim() or index.size(0) != src.size(0):
        return None
    repeats = zip(index.shape[1:], index.stride()[1:], src.shape[1:], strict=False)
    if any(size != 1 and (stride or size != want) for size, stride, want in repeats):
        return None
    while index.dim() > 1:
        index = index.select(1, 0)
    return graph_of(index, num_rows) if _is_vector(index) else None
