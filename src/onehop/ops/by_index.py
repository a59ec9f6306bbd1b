"""Gathers and scatters of rows along a dimension by an index, with torch's semantics.

:mod:`onehop.ops.rows` has operators that read the index only in the forward pass. Here, as in torch, the
backward pass reads the index again, so a write to it in between has the same effect as in torch. Gradients
are computed by torch's gathers, which the patch may replace.

All functions take an index of any shape, int32 or int64, in CPU memory, and raise an IndexRangeError for a
number outside of [0, rows).
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onehop.calls import Extremum
from onehop.errors import IndexRangeError
from onehop.graph import Graph
from onehop.kernels.cpu.rows import copy_rows
from onehop.native import empty
from onehop.ops.contexts import has_memory
from onehop.ops.extremum import EXTREMUM
from onehop.ops.library import Context
from onehop.ops.rows import graph_of_index, scattered

_aten: Any = torch.ops.aten
_MATRIX = 2


def _of_entries(index: Tensor, like: Tensor) -> Tensor:
    return index.long().view(1, -1, 1).expand(like.size(0), -1, like.size(2))


def _gathered(rows: Tensor, index: Tensor) -> Tensor:
    """Gather rows by torch: from [blocks, rows, F] and an index [E] to [blocks, E, F]."""
    out: Tensor = _aten.gather(rows, 1, _of_entries(index, rows))
    return out


def _scattered(zeros: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """Add values, [blocks, E, F], to rows of ``zeros``, [blocks, rows, F], by an index [E], with torch."""
    out: Tensor = _aten.scatter_add(zeros, 1, _of_entries(index, values), values)
    return out


class Along(NamedTuple):
    """The rows of a tensor along a dimension.

    Attributes:
        shape: The shape of the tensor.
        dim: The dimension.
    """

    shape: torch.Size
    dim: int

    @property
    def blocks(self) -> int:
        """The number of blocks of rows, which is the product of the sizes before the dimension."""
        return math.prod(self.shape[: self.dim])

    def graph(self, index: Tensor) -> Graph:
        """Return the graph of an index with its current contents."""
        graph = graph_of_index(index.flatten(), self.shape[self.dim], self.blocks)
        assert isinstance(graph, Graph)
        return graph

    def chosen(self, index: Tensor) -> tuple[int, ...]:
        """Return the shape of the rows that an index selects."""
        return (*self.shape[: self.dim], *index.shape, *self.shape[self.dim + 1 :])

    def as_blocks(self, rows: Tensor) -> Tensor:
        """Return rows as [blocks, rows or entries, F]."""
        return rows.reshape(self.blocks, -1, math.prod(self.shape[self.dim + 1 :]))


def added(
    graph: Graph,
    values: Tensor,
    index: Tensor,
    along: Along,
    *,
    mean: bool = False,
    widen: bool = False,
) -> Tensor:
    """Return sums or means of values at the rows of an index; differentiable.

    Args:
        graph: The graph of the index.
        values: [..., *index.shape, ...].
        index: The index.
        along: The rows of the result.
        mean: Whether each row is divided by the number of its entries.
        widen: Whether the result of 16-bit values stays in float32.
    """
    if values.requires_grad and torch.is_grad_enabled():
        out: Tensor = _Added.apply(values, index, along, graph, mean, widen)  # type: ignore[no-untyped-call]
        return out
    return reduced_to(graph, values, along, "mean" if mean else "sum", widen=widen)


def segmented(graph: Graph, values: Tensor, mean: bool) -> Tensor:
    """Return sums or means of segments of values, 0 for empty segments as in torch; differentiable.

    Args:
        graph: The graph of the segments, made from an index.
        values: [E, ...].
        mean: Whether sums are divided by the number of entries.
    """
    assert graph.index is not None
    along = Along(torch.Size((graph.num_dst, *values.shape[1:])), 0)
    total = added(graph, values, graph.index.numbers, along, widen=True)
    if mean:
        count = graph.in_degrees.clamp_(min=1).view(-1, *[1] * (values.dim() - 1))
        total = total / count.to(total.dtype)
    return total.to(values.dtype)


def extremum(graph: Graph, values: Tensor, index: Tensor, along: Along, reduce: str) -> Tensor:
    """Return the max or min of values at the rows of an index, 0 without entries; ties share the gradient."""
    if values.requires_grad and torch.is_grad_enabled():
        out: Tensor = _Extremum.apply(values, index, along, graph, reduce)  # type: ignore[no-untyped-call]
        return out
    return reduced_to(graph, values, along, reduce)


def rows_at(x: Tensor, index: Tensor, along: Along) -> Tensor:
    """Return the rows of a contiguous tensor at an index, [..., *index.shape, ...], without a gradient.

    Raises:
        IndexRangeError: A number is not in [0, rows).
    """
    numbers, matrix = index.flatten().contiguous(), _matrix(x, along)
    out = empty((along.blocks * numbers.numel(), matrix.size(1)), x.dtype)
    copy_rows(matrix, numbers, out, along.blocks)
    return _shaped(out, along.chosen(index))


def reduced_to(graph: Graph, values: Tensor, along: Along, reduce: str, *, widen: bool = False) -> Tensor:
    """Return values reduced to the rows of an index, given its graph; see :func:`.scattered`."""
    return _shaped(scattered(graph, _matrix(values, along), reduce, widen=widen), along.shape)


def _shaped(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    # Autograd does not treat the result as a view.
    out: Tensor = rows if rows.shape == shape else _aten._unsafe_view(rows, shape)
    return out


def _matrix(rows: Tensor, along: Along) -> Tensor:
    """Return rows as a matrix, [blocks * rows or entries, F]."""
    is_one = not along.dim and rows.dim() == len(along.shape) == _MATRIX
    return rows if is_one else along.as_blocks(rows).flatten(0, 1)


def _pulled(rows: Tensor, index: Tensor, along: Along) -> Tensor:
    """Return the rows of a gradient at the current contents of the index."""
    return _gathered(along.as_blocks(rows), index.flatten()).reshape(along.chosen(index))


def _entries(index: Tensor, along: Along, like: Tensor) -> Tensor:
    """Count the index's current entries for each row, [rows, 1, ...]; torch raises for other numbers."""
    shape = (along.shape[along.dim], *[1] * (len(along.shape) - along.dim - 1))
    try:
        count = along.graph(index).in_degrees[: along.shape[along.dim]]
    except IndexRangeError:
        ones = torch.ones(1, index.numel(), 1, device="cpu")
        count = _scattered(ones.new_zeros(1, along.shape[along.dim], 1), index.flatten(), ones)
    return count.reshape(shape).to(like.dtype)


class _Added(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        index: Tensor,
        along: Along,
        graph: Graph,
        mean: bool,
        widen: bool,
    ) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(index)
        ctx.along, ctx.mean, ctx.dtype = along, mean, values.dtype
        return reduced_to(graph, values, along, "mean" if mean else "sum", widen=widen)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 6
        (index,) = ctx.saved_tensors
        if ctx.mean:
            grad = grad / _entries(index, ctx.along, grad).clamp(min=1)
        return _pulled(grad, index, ctx.along).to(ctx.dtype), *(None,) * 5


class _Extremum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, index: Tensor, along: Along, graph: Graph, reduce: str) -> Tensor:
        out, ties = EXTREMUM(_call(values, along, graph, reduce), graph)
        # The returned tensor itself is saved, so that autograd notices writes to it.
        out = _shaped(out, along.shape)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(values, index, out, ties)
        ctx.along, ctx.graph, ctx.reduce = along, graph, reduce
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 5
        (values, index, out, ties), along = ctx.saved_tensors, ctx.along
        if has_memory(grad) and _names(index, along, ctx.graph):
            call = _call(values, along, ctx.graph, ctx.reduce)
            context = Context(call, (_matrix(out, along), ties), ("x",), {}, ctx.graph)
            gradient = EXTREMUM.gradients(context, _matrix(grad, along), None).x
            assert gradient is not None
            return gradient.to(values.dtype).reshape(values.shape), *(None,) * 4
        # As in torch, each entry that equals the extremum of its row gets a share, by the index's current
        # contents.
        flat = index.flatten()
        entries, pulled = along.as_blocks(values), along.as_blocks(grad)
        ties = entries == _gathered(along.as_blocks(out), flat)
        shares = _scattered(torch.zeros_like(along.as_blocks(out)), flat, ties.to(out.dtype))
        return (ties * _gathered(pulled / shares, flat)).reshape(values.shape), *(None,) * 4


def _call(values: Tensor, along: Along, graph: Graph, reduce: str) -> Extremum:
    return Extremum(
        x=_matrix(values, along),
        weight=None,
        graph=graph.number,
        rows=graph.num_dst,
        edges=graph.num_edges,
        reduce=reduce,
        adds=False,
        widen=False,
        with_ties=True,
        backend="",
    )


def _names(index: Tensor, along: Along, graph: Graph) -> bool:
    """Return whether an index still has the contents from which a graph was made."""
    try:
        now = along.graph(index)
    except IndexRangeError:
        return False
    if now is graph:
        return True
    assert now.index is not None
    assert graph.index is not None
    return torch.equal(now.index.numbers, graph.index.numbers)
