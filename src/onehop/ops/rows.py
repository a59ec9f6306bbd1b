"""Rows by an index, and the reverse: ``gather`` and ``scatter``.

Both are aggregations over the graph of the index (:mod:`onehop.graph.index`), and each is the gradient of the
other.
"""

import math
from typing import Any

import torch
from torch import Tensor

from onehop.calls import Aggregate
from onehop.errors import ArgumentError, integer
from onehop.graph import Graph
from onehop.graph.handle import GraphInProgram, handle_of
from onehop.graph.identity import remembered
from onehop.ops.aggregate import AGGREGATE, REDUCTIONS, Reduce, reduce_rows
from onehop.ops.checks import FLOATS, not_dense
from onehop.ops.extremum import TIES, Ties, extremum
from onehop.ops.namespace import define

# A reshape that autograd does not treat as a view.
_unsafe_view = torch.ops.aten._unsafe_view.default
_length_of_modes = torch._C._len_torch_dispatch_stack


def gather(x: Tensor, index: Tensor, *, backend: str | None = None) -> Tensor:
    """Gather rows: ``out[e] = x[index[e]]``.

    The gradient adds up the rows that are gathered several times, in an order that does not depend on the
    number of threads.

    Args:
        x: [N, ...], float32, float64, bfloat16 or float16. Differentiable.
        index: [E], int32 or int64, from 0 to N - 1. The graph made from it is cached while it is unchanged.
        backend: Name of the backend; None means the best available one.

    Returns:
        [E, ...].

    Raises:
        ArgumentError: A shape, dtype or device does not fit.
        BackendError: No backend runs on such tensors.
        IndexRangeError: An entry of ``index`` is negative or too large.

    Examples:
        >>> import onehop, torch
        >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        >>> rows = onehop.gather(x, torch.tensor([1, 0, 1]))
        >>> rows.tolist()
        [[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]
        >>> rows.sum().backward()
        >>> x.grad  # row 1 was gathered twice
        tensor([[1., 1.],
                [2., 2.]])
    """
    _check("x", x, index)
    return gathered(graph_of_index(index, x.size(0)), x, backend or "")


def scatter(
    values: Tensor,
    index: Tensor,
    num_rows: int | None = None,
    reduce: Reduce = "sum",
    *,
    ties: Ties = "share",
    empty: float = 0.0,
    backend: str | None = None,
) -> Tensor:
    """Reduce the values of each row: ``out[i] = reduce over entries e with index[e] = i of values[e]``.

    An ascending index need not be sorted. The order of a sum does not depend on the number of threads, and
    16-bit values are added up in float32.

    Args:
        values: [E, ...], float32, float64, bfloat16 or float16. Differentiable.
        index: [E], int32 or int64, from 0 to ``num_rows`` - 1. The graph made from it is cached while it is
            unchanged.
        num_rows: Number of rows of the result; None means one more than the largest entry of ``index``.
        reduce: "sum" (or "add"), "mean", "max" or "min". NaN wins over every number.
        ties: Which entries get the gradient of a max or min if several entries tie: "share" splits it evenly,
            as in PyG and torch; "first" and "last" give it to the first or last of them, as in torch_scatter,
            and skip NaN. "first" and "last" require float32 or float64.
        empty: The max and min of rows without entries; 0 as in PyG. Their sum and mean is 0.
        backend: Name of the backend; None means the best available one.

    Returns:
        [num_rows, ...].

    Raises:
        ArgumentError: A shape, dtype or device does not fit, or ``reduce`` or ``ties`` is unknown.
        BackendError: No backend runs on such tensors.
        IndexRangeError: An entry of ``index`` is negative or too large.

    Examples:
        >>> import onehop, torch
        >>> values, index = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([2, 0, 2])
        >>> onehop.scatter(values, index, 3)  # row 2 has the first and the last value, row 1 has none
        tensor([[2.],
                [0.],
                [5.]])
        >>> onehop.scatter(values, index, 3, "max").flatten().tolist()
        [2.0, 0.0, 4.0]
    """
    _check("values", values, index)
    if values.shape[:1] != index.shape:
        raise ArgumentError(
            f"values: expected a row for each of the {index.numel()} entries of index, got shape "
            f"{list(values.shape)}."
        )
    reduce = "sum" if reduce == "add" else reduce
    if reduce not in REDUCTIONS:
        raise ArgumentError(f"reduce: expected one of {', '.join(REDUCTIONS)}, got {reduce!r}.")
    if ties not in TIES:
        raise ArgumentError(f"ties: expected one of {', '.join(TIES)}, got {ties!r}.")
    if num_rows is None:
        num_rows = int(index.max()) + 1 if index.numel() else 0
    elif type(num_rows) is not int:
        num_rows = integer("num_rows", num_rows)
    graph: Any = graph_of_index(index, num_rows)
    if reduce == "sum" or reduce == "mean" or (ties == "share" and not empty):
        return scattered(graph, values, reduce, backend or "")
    out = extremum(graph, _as_matrix(values), reduce=reduce, ties=ties, backend=backend)
    without = torch.bincount(index, minlength=num_rows).unsqueeze(1) == 0
    return torch.where(without, empty, out).view(num_rows, *values.shape[1:])


def gathered(graph: Any, x: Tensor, backend: str = "") -> Tensor:
    """Run :func:`gather` on a graph of :func:`graph_of_index`, with checked operands."""
    call = Aggregate(
        x=_as_matrix(x), graph=graph.number, rows=graph.num_src, transposed=True, backend=backend
    )
    out: Tensor = AGGREGATE(call, graph)
    return out if x.dim() == 2 else _unsafe_view(out, (graph.num_src, *x.shape[1:]))


def scattered(graph: Any, values: Tensor, reduce: str, backend: str = "", *, widen: bool = False) -> Tensor:
    """Run :func:`scatter` on a graph, with 0 in rows without entries; ties share the gradient.

    ``widen`` leaves the result of 16-bit values in float32.
    """
    out = reduce_rows(graph, _as_matrix(values), reduce=reduce, backend=backend, widen=widen)
    if values.dim() == 2:
        return out
    shape = (graph.num_dst, *values.shape[1:])
    # Gradients of extrema read the result, so it is a normal view: autograd notices writes to it.
    return _unsafe_view(out, shape) if reduce in ("sum", "mean") else out.view(shape)


def graph_of_index(index: Tensor, rows: int, blocks: int = 1) -> Graph | GraphInProgram:
    """Return the cached graph of an index; in a program and under a mode, its handle.

    The whole index is compared before a cached graph is used, because indices are often overwritten, also
    through NumPy.

    Args:
        index: [E].
        rows: The number of rows.
        blocks: Number of consecutive blocks of ``rows`` rows. The index applies to every block; 1 in a
            program.

    Raises:
        ArgumentError, IndexRangeError: See :meth:`onehop.Graph.from_index`.
    """
    if torch.compiler.is_compiling() or _length_of_modes():
        handle = torch.ops.onehop.find_index(index, rows)
        return GraphInProgram(handle, index.size(0), rows, index.size(0))
    return remembered(
        index, key=("index", rows, blocks), make=lambda: _new_graph(index, rows, blocks), whole=True
    )


def _new_graph(index: Tensor, rows: int, blocks: int) -> Graph:
    if blocks == 1:
        return Graph.from_index(index, rows)
    # A number that is out of range in the first and the last block is out of range in the joint index.
    firsts = torch.arange(blocks, dtype=torch.int64, device=index.device).mul_(rows)
    return Graph.from_index((firsts.unsqueeze(1) + index).flatten(), blocks * rows)


def _as_matrix(rows: Tensor) -> Tensor:
    """Return rows [N, ...] as a matrix [N, F]."""
    return rows if rows.dim() == 2 else rows.reshape(rows.size(0), math.prod(rows.shape[1:]))


def _check(name: str, rows: Tensor, index: Tensor) -> None:
    if not isinstance(rows, Tensor) or rows.layout is not torch.strided or rows.dtype not in FLOATS:
        raise not_dense(name, rows)
    if not rows.dim():
        raise ArgumentError(f"{name}: expected at least one dimension, got a number.")
    if not isinstance(index, Tensor):
        raise ArgumentError(f"index: expected a tensor, got {type(index).__name__}.")
    if rows.device != index.device:
        raise ArgumentError(f"index: expected one on {rows.device}, where {name} is, got {index.device}.")


def _find_index(index: Tensor, rows: int) -> Tensor:
    """Looks up or makes the graph when a program runs."""
    graph = remembered(index, key=("index", rows, 1), make=lambda: _new_graph(index, rows, 1), whole=True)
    return handle_of(graph)


define("find_index", _find_index, lambda index, rows: torch.empty(1, dtype=torch.int64, device="cpu"))
