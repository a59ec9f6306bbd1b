"""Sums, means and extrema over few edges, without a graph: one native call, on the calling thread.

For a hundred edges, making and recognising a graph takes longer than the aggregation. These functions read
the edges in the given order, and autograd saves the edges, as in PyG's gathers. Attention over few edges is
in :mod:`onehop.ops.few_attention`.
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from onehop.errors import IndexRangeError
from onehop.graph.lending import read_address
from onehop.native import DTYPE_CODES, WithoutMemoryError, address, extension
from onehop.ops.batching import for_each
from onehop.ops.contexts import in_memory

MOST_EDGES = 1 << 12
_KINDS = {
    name: kind for kind, name in enumerate(("sum", "mean", "max", "min", "gat", "gatv2", "dot", "softmax"))
}
EXTREMA = ("max", "min")
_grad_is_enabled = torch.is_grad_enabled


class FewEdges(NamedTuple):
    """A list of edges.

    Attributes:
        listed: [2, E], int64, on the CPU: the ends of the edges.
        num_src: Number of source rows.
        num_dst: Number of rows of the result.
        sending: The row of ``listed`` with the sources.
    """

    listed: Tensor
    num_src: int
    num_dst: int
    sending: int

    @property
    def num_edges(self) -> int:
        """E."""
        return self.listed.size(1)

    def alias(self) -> "FewEdges":
        """Return the same edges in another tensor object, which is saved even if the user swaps his."""
        return self._replace(listed=self.listed.detach())

    def ends(self) -> tuple[Tensor, Tensor]:
        """Return the sources and the destinations, [E] each."""
        return self.listed[self.sending], self.listed[1 - self.sending]

    def call(self, kind: str, dtype: torch.dtype) -> Any:
        """Return the native call over these edges for rows of a dtype; the rows' sizes are not set."""
        call, (row, step), begin = _call(kind, dtype), self.listed.stride(), place_of(self.listed)
        sending = self.sending
        call.edges, call.sources, call.targets = self.listed.size(1), self.num_src, self.num_dst
        call.source_ends, call.target_ends = begin + 8 * row * sending, begin + 8 * row * (1 - sending)
        call.stride = step
        return call


class FewRows(NamedTuple):
    """Rows that are reduced to rows of a result; that is, edges with a separate source each.

    Attributes:
        listed: [E], int64, on the CPU: for each row, the row of the result.
        num_dst: Number of rows of the result.
    """

    listed: Tensor
    num_dst: int

    @property
    def num_src(self) -> int:
        """E."""
        return self.listed.size(0)

    @property
    def num_edges(self) -> int:
        """E."""
        return self.listed.size(0)

    def alias(self) -> "FewRows":
        """Return the same rows with a separate tensor object; see :meth:`FewEdges.alias`."""
        return self._replace(listed=self.listed.detach())

    def ends(self) -> tuple[Tensor, Tensor]:
        """Return the numbers of the rows, and of their rows of the result, [E] each."""
        return torch.arange(self.num_edges, device="cpu"), self.listed

    def call(self, kind: str, dtype: torch.dtype) -> Any:
        """Return the native call over these rows; see :meth:`FewEdges.call`."""
        call, count = _call(kind, dtype), self.listed.size(0)
        call.edges, call.sources, call.targets = count, count, self.num_dst
        call.target_ends, call.stride = place_of(self.listed), self.listed.stride(0)
        return call


Few = FewEdges | FewRows


def _call(kind: str, dtype: torch.dtype) -> Any:
    call = extension.FewCall()
    call.dtype, call.kind = DTYPE_CODES[dtype], _KINDS[kind]
    return call


def aggregate(edges: Few, x: Tensor, weight: Tensor | None, reduce: str) -> Tensor:
    """Reduce the neighbours' features.

    Args:
        edges: The edges.
        x: [num_src, F], float32 or float64, contiguous. Differentiable; so is ``weight``.
        weight: [E], of the same dtype, contiguous, only for sums and means; None means 1.
        reduce: "sum", "mean", "max" or "min".

    Returns:
        [num_dst, F].

    Raises:
        IndexRangeError: An end of an edge is not the number of a row.
    """
    if _grad_is_enabled() and (x.requires_grad or (weight is not None and weight.requires_grad)):
        edges = edges.alias()
        out: Tensor = _Sum.apply(edges, reduce, edges.listed, x, weight)
        return out
    return _summed(edges, x, weight, reduce)


def _rows_call(edges: Few, reduce: str, like: Tensor) -> Any:
    call = edges.call(reduce, like.dtype)
    call.heads, call.columns = 1, like.size(1)
    return call


def _summed(edges: Few, x: Tensor, weight: Tensor | None, reduce: str) -> Tensor:
    call = _rows_call(edges, reduce, x)
    out = torch.empty(edges.num_dst, x.size(1), dtype=x.dtype, device="cpu")
    call.values, call.out = read(x), out.data_ptr()
    if weight is not None:
        call.weight = read(weight)
    check_range(extension.few_edges(call))
    return out


def place_of(listed: Tensor) -> int:
    """Return the address of a list of edges for reading; a lent copy keeps sharing its memory.

    Raises:
        WithoutMemoryError: The tensor has entries but no memory.
    """
    return read_address(listed) or address(listed)


def read(operand: Tensor) -> int:
    """Return the address of an operand; raise unless it is contiguous and its numbers are in memory."""
    if operand.is_neg() or not operand.is_contiguous():
        raise WithoutMemoryError("an operand is a view of other numbers.")
    return address(operand)


def check_range(in_range: bool) -> None:
    """Raises an IndexRangeError if native code has found an end of an edge that is out of range."""
    if not in_range:
        raise IndexRangeError("edge_index: expected numbers of nodes.")


class _Sum(torch.autograd.function._SingleLevelFunction):
    apply: ClassVar[Any]

    @staticmethod
    def forward(ctx: Any, edges: Few, reduce: str, index: Tensor, x: Tensor, weight: Tensor | None) -> Tensor:
        out, is_extremum = _summed(edges, x, weight, reduce), reduce in EXTREMA
        *_, to_x, to_weight = ctx.needs_input_grad
        # Operands that no gradient reads are not saved, so they may be written to and freed.
        saved_x, saved_weight = (x if is_extremum or to_weight else None), (weight if to_x else None)
        ctx.save_for_backward(index, saved_x, saved_weight, out if is_extremum else None)
        ctx.of = edges, reduce
        ctx.set_materialize_grads(False)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 5
        (edges, reduce), (index, x, weight, out) = ctx.of, ctx.saved_tensors
        needs, edges = ctx.needs_input_grad[3:], edges._replace(listed=index)
        if torch.is_grad_enabled():
            if out is not None:
                return None, None, None, _extremum_again(edges, x, out, grad), None
            return (None, None, None, *_sum_again(edges, reduce, x, weight, grad, needs))
        gradients = iter(for_each(partial(_sum_gradients, edges, reduce, needs, x, weight, out), grad))
        return None, None, None, *(next(gradients) if wants else None for wants in needs)


def _sum_gradients(
    edges: Few,
    reduce: str,
    needs: tuple[bool, bool],
    x: Tensor | None,
    weight: Tensor | None,
    out: Tensor | None,
    grad: Tensor,
) -> tuple[Tensor, ...]:
    """Return the needed gradients to ``x`` and ``weight``; operands that they do not read may be None."""
    grad = in_memory(grad).contiguous()
    call, gradients = _rows_call(edges, reduce, grad), []
    if x is not None:
        call.values = x.data_ptr()
    call.grad = grad.data_ptr()
    if out is not None:
        call.out = out.data_ptr()
    if weight is not None:
        call.weight = weight.data_ptr()
    if needs[0]:
        gradients.append(torch.empty(edges.num_src, grad.size(1), dtype=grad.dtype, device="cpu"))
        call.grad_values = gradients[-1].data_ptr()
    if needs[1]:
        gradients.append(torch.empty(edges.num_edges, dtype=grad.dtype, device="cpu"))
        call.grad_weight = gradients[-1].data_ptr()
    check_range(extension.few_edges_grad(call))
    return tuple(gradients)


# Gradients of gradients are computed by torch's own operators, which autograd records.


def _sum_again(
    edges: Few,
    reduce: str,
    x: Tensor | None,
    weight: Tensor | None,
    grad: Tensor,
    needs: tuple[bool, bool],
) -> tuple[Tensor | None, ...]:
    source, target = edges.ends()
    if reduce == "mean":
        counts = torch.bincount(target, minlength=edges.num_dst).clamp(min=1)
        grad = grad / counts.to(grad.dtype).unsqueeze(1)
    rows, of_x, of_weight = grad.index_select(0, target), None, None
    if needs[0]:
        messages = rows if weight is None else rows * weight.unsqueeze(1)
        of_x = grad.new_zeros(edges.num_src, grad.size(1)).index_add(0, source, messages)
    if needs[1]:
        assert x is not None
        of_weight = (rows * x.index_select(0, source)).sum(1)
    return of_x, of_weight


def _extremum_again(edges: Few, x: Tensor, out: Tensor, grad: Tensor) -> Tensor:
    source, target = edges.ends()
    ties = x.index_select(0, source) == out.index_select(0, target)
    count = (out == 0).to(x.dtype).index_add(0, target, ties.to(x.dtype))
    shares = ties * (grad / count).index_select(0, target)
    return torch.zeros_like(x).index_add(0, source, shares)
