"""Sums, means and attention over few edges, without a graph: one native call, on the calling thread.

A graph of a hundred edges takes longer to make and to recognise than to use. These read the edges in the
order in which they come, and autograd saves them as PyG's gathers do.
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from onehop.errors import IndexRangeError
from onehop.native import DTYPE_CODES, WithoutMemoryError, address, extension
from onehop.ops.batching import for_each
from onehop.ops.contexts import in_memory

MOST_EDGES = 1 << 12
_KINDS = {name: kind for kind, name in enumerate(("sum", "mean", "max", "min", "gat", "gatv2", "dot"))}
EXTREMA = ("max", "min")
_grad_is_enabled = torch.is_grad_enabled


class FewEdges(NamedTuple):
    """A list of edges.

    Attributes:
        edge_index: [2, E], int64, on the CPU.
        num_src: Number of rows that are gathered.
        num_dst: Number of rows of a result.
        sending: The row of ``edge_index`` with the sources.
    """

    edge_index: Tensor
    num_src: int
    num_dst: int
    sending: int

    @property
    def num_edges(self) -> int:
        """E."""
        return self.edge_index.size(1)

    def alias(self) -> "FewEdges":
        """The same edges as a tensor of its own, which autograd may save while the user swaps his."""
        return self._replace(edge_index=self.edge_index.detach())

    def call(self, kind: str, like: Tensor) -> Any:
        """The native call over these edges, for rows like those of a tensor: [any, F], or [any, H, C]."""
        index, call = self.edge_index, extension.FewCall()
        row, step = index.stride()
        begin, sending = address(index), self.sending
        call.dtype, call.kind = DTYPE_CODES[like.dtype], _KINDS[kind]
        call.edges, call.sources, call.targets = index.size(1), self.num_src, self.num_dst
        call.source_ends, call.target_ends = begin + 8 * row * sending, begin + 8 * row * (1 - sending)
        call.stride, shape = step, like.shape
        call.heads, call.columns = (1, shape[1]) if len(shape) == 2 else shape[1:]
        return call


def aggregate(edges: FewEdges, x: Tensor, weight: Tensor | None, reduce: str) -> Tensor:
    """Reduces the neighbours' features.

    Args:
        edges: The edges.
        x: [num_src, F], float32 or float64, without gaps. Differentiable; so is ``weight``.
        weight: [E], of the same dtype, without gaps, or None; of sums and means alone.
        reduce: "sum", "mean", "max" or "min".

    Returns:
        [num_dst, F].

    Raises:
        IndexRangeError: An end of an edge is no row.
    """
    if _grad_is_enabled() and (x.requires_grad or (weight is not None and weight.requires_grad)):
        edges = edges.alias()
        out: Tensor = _Sum.apply(edges, reduce, edges.edge_index, x, weight)
        return out
    return _summed(edges, x, weight, reduce)


def _summed(edges: FewEdges, x: Tensor, weight: Tensor | None, reduce: str) -> Tensor:
    call = edges.call(reduce, x)
    out = torch.empty(edges.num_dst, x.size(1), dtype=x.dtype, device="cpu")
    call.values, call.out = _read(x), out.data_ptr()
    if weight is not None:
        call.weight = _read(weight)
    _run(extension.few_edges(call))
    return out


def attend(
    edges: FewEdges,
    kind: str,
    values: Tensor,
    of_source: Tensor,
    of_target: Tensor,
    att: Tensor | None,
    factor: float,
) -> Tensor:
    """Adds up the neighbours' values, weighted by a softmax of scores over each destination's edges.

    Args:
        edges: The edges.
        kind: "gat", whose scores are ``leaky_relu(of_source + of_target)``; "gatv2", the sum over columns of
            ``att * leaky_relu(of_source + of_target)``; or "dot", ``factor`` times the sum over columns of
            ``of_source * of_target``.
        values: [num_src, H, C], float32 or float64, without gaps. Differentiable; so are the others.
        of_source: [num_src, H] for "gat", else [num_src, H, C]; ``values`` for "gatv2".
        of_target: The same of destinations.
        att: [H, C] for "gatv2", else None.
        factor: The slope of ``leaky_relu``, or the factor of "dot".

    Returns:
        [num_dst, H, C].

    Raises:
        IndexRangeError: An end of an edge is no row.
    """
    if _grad_is_enabled():
        for operand in (values, of_source, of_target, att):
            if operand is not None and operand.requires_grad:
                edges = edges.alias()
                own, index = None if kind == "gatv2" else of_source, edges.edge_index
                out: Tensor = _Attention.apply(edges, kind, factor, index, values, own, of_target, att)
                return out
    return _attended(edges, kind, values, of_source, of_target, att, factor)[0]


def _attention_call(
    edges: FewEdges,
    kind: str,
    values: Tensor,
    of_source: Tensor,
    of_target: Tensor,
    att: Tensor | None,
    factor: float,
) -> Any:
    call = edges.call(kind, values)
    call.values = _read(values)
    call.of_source, call.of_target, call.factor = _read(of_source), _read(of_target), factor
    if att is not None:
        call.att = _read(att)
    return call


def _attended(
    edges: FewEdges,
    kind: str,
    values: Tensor,
    of_source: Tensor,
    of_target: Tensor,
    att: Tensor | None,
    factor: float,
) -> tuple[Tensor, Tensor]:
    """The result, and the weights of edges, [E, H]."""
    call = _attention_call(edges, kind, values, of_source, of_target, att, factor)
    heads, dtype = values.size(1), values.dtype
    out = torch.empty(edges.num_dst, heads, values.size(2), dtype=dtype, device="cpu")
    alpha = torch.empty(edges.num_edges, heads, dtype=dtype, device="cpu")
    call.out, call.alpha = out.data_ptr(), alpha.data_ptr()
    _run(extension.few_edges(call))
    return out, alpha


def _read(operand: Tensor) -> int:
    """The address of an operand, which has no gaps, and whose numbers are in memory as they are."""
    if operand.is_neg() or not operand.is_contiguous():
        raise WithoutMemoryError("an operand is a view of other numbers.")
    return address(operand)


def _run(in_range: bool) -> None:
    if not in_range:
        raise IndexRangeError("edge_index: expected numbers of nodes.")


class _Sum(torch.autograd.function._SingleLevelFunction):
    apply: ClassVar[Any]

    @staticmethod
    def forward(
        ctx: Any, edges: FewEdges, reduce: str, index: Tensor, x: Tensor, weight: Tensor | None
    ) -> Tensor:
        out, is_extremum = _summed(edges, x, weight, reduce), reduce in EXTREMA
        *_, to_x, to_weight = ctx.needs_input_grad
        # What a gradient does not read may be written to, and is not kept alive.
        kept_x, kept_weight = (x if is_extremum or to_weight else None), (weight if to_x else None)
        ctx.save_for_backward(index, kept_x, kept_weight, out if is_extremum else None)
        ctx.of = edges, reduce
        ctx.set_materialize_grads(False)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 5
        (edges, reduce), (index, x, weight, out) = ctx.of, ctx.saved_tensors
        wanted, edges = ctx.needs_input_grad[3:], edges._replace(edge_index=index)
        if torch.is_grad_enabled():
            if out is not None:
                return None, None, None, _extremum_again(edges, x, out, grad), None
            return (None, None, None, *_sum_again(edges, reduce, x, weight, grad, wanted))
        gradients = iter(for_each(partial(_sum_gradients, edges, reduce, wanted, x, weight, out), grad))
        return None, None, None, *(next(gradients) if wants else None for wants in wanted)


def _sum_gradients(
    edges: FewEdges,
    reduce: str,
    wanted: tuple[bool, bool],
    x: Tensor | None,
    weight: Tensor | None,
    out: Tensor | None,
    grad: Tensor,
) -> tuple[Tensor, ...]:
    """The gradients that are wanted, to ``x`` and ``weight``; operands that they do not read may be None."""
    grad = in_memory(grad).contiguous()
    call, made = edges.call(reduce, grad), []
    if x is not None:
        call.values = x.data_ptr()
    call.grad = grad.data_ptr()
    if out is not None:
        call.out = out.data_ptr()
    if weight is not None:
        call.weight = weight.data_ptr()
    if wanted[0]:
        made.append(torch.empty(edges.num_src, grad.size(1), dtype=grad.dtype, device="cpu"))
        call.grad_values = made[-1].data_ptr()
    if wanted[1]:
        made.append(torch.empty(edges.num_edges, dtype=grad.dtype, device="cpu"))
        call.grad_weight = made[-1].data_ptr()
    _run(extension.few_edges_grad(call))
    return tuple(made)


class _Attention(torch.autograd.function._SingleLevelFunction):
    apply: ClassVar[Any]

    @staticmethod
    def forward(
        ctx: Any,
        edges: FewEdges,
        kind: str,
        factor: float,
        index: Tensor,
        values: Tensor,
        of_source: Tensor | None,
        of_target: Tensor,
        att: Tensor | None,
    ) -> Tensor:
        scored = values if of_source is None else of_source
        out, alpha = _attended(edges, kind, values, scored, of_target, att, factor)
        ctx.save_for_backward(index, values, of_source, of_target, att, alpha)
        ctx.of = edges, kind, factor
        ctx.set_materialize_grads(False)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 8
        edges, kind, factor = ctx.of
        index, values, of_source, of_target, att, alpha = ctx.saved_tensors
        if torch.is_grad_enabled():
            operands = (values, of_source, of_target, att)
            again = _attention_again(edges, kind, factor, operands, grad, ctx.needs_input_grad[4:])
            return None, None, None, None, *again
        edges, scored = edges._replace(edge_index=index), values if of_source is None else of_source
        function = partial(_attention_gradients, edges, kind, factor, values, scored, of_target, att, alpha)
        gradients = for_each(function, grad)
        # For "gatv2" the values are the scored rows of the sources too; only "gatv2" has ``att``.
        places = (0, 2, 3) if kind == "gatv2" else (0, 2, 1)
        made = dict(zip(places, gradients, strict=True))
        wanted = enumerate(ctx.needs_input_grad[4:])
        return None, None, None, None, *(made.get(at) if wants else None for at, wants in wanted)


def _attention_gradients(
    edges: FewEdges,
    kind: str,
    factor: float,
    values: Tensor,
    of_source: Tensor,
    of_target: Tensor,
    att: Tensor | None,
    alpha: Tensor,
    grad: Tensor,
) -> tuple[Tensor, ...]:
    """The gradients to ``values`` and ``of_target``, and to the others where they are operands."""
    grad = in_memory(grad).contiguous()
    call = _attention_call(edges, kind, values, of_source, of_target, att, factor)
    made = [torch.empty_like(values), torch.empty_like(of_target)]
    call.alpha, call.grad = alpha.data_ptr(), grad.data_ptr()
    call.grad_values, call.grad_of_target = (each.data_ptr() for each in made)
    call.grad_of_source = call.grad_values
    if of_source is not values:
        made.append(torch.empty_like(of_source))
        call.grad_of_source = made[-1].data_ptr()
    if att is not None:
        made.append(torch.empty_like(att))
        call.grad_att = made[-1].data_ptr()
    _run(extension.few_edges_grad(call))
    return tuple(made)


# Gradients of gradients, by torch's own operators: what they need is recorded.


def _sum_again(
    edges: FewEdges,
    reduce: str,
    x: Tensor | None,
    weight: Tensor | None,
    grad: Tensor,
    wanted: tuple[bool, bool],
) -> tuple[Tensor | None, ...]:
    source, target = _ends(edges)
    if reduce == "mean":
        counts = torch.bincount(target, minlength=edges.num_dst).clamp(min=1)
        grad = grad / counts.to(grad.dtype).unsqueeze(1)
    rows, of_x, of_weight = grad.index_select(0, target), None, None
    if wanted[0]:
        messages = rows if weight is None else rows * weight.unsqueeze(1)
        of_x = grad.new_zeros(edges.num_src, grad.size(1)).index_add(0, source, messages)
    if wanted[1]:
        assert x is not None
        of_weight = (rows * x.index_select(0, source)).sum(1)
    return of_x, of_weight


def _extremum_again(edges: FewEdges, x: Tensor, out: Tensor, grad: Tensor) -> Tensor:
    source, target = _ends(edges)
    ties = x.index_select(0, source) == out.index_select(0, target)
    count = (out == 0).to(x.dtype).index_add(0, target, ties.to(x.dtype))
    shares = ties * (grad / count).index_select(0, target)
    return torch.zeros_like(x).index_add(0, source, shares)


def _attention_again(
    edges: FewEdges,
    kind: str,
    factor: float,
    operands: tuple[Tensor | None, ...],
    grad: Tensor,
    wanted: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    # As objects of their own: one operand may be another, or made of another, and each gets its own part.
    operands = tuple(None if each is None else each.view_as(each) for each in operands)
    values, of_source, of_target, att = operands
    assert values is not None
    assert of_target is not None
    (source, target), scored = _ends(edges), values if of_source is None else of_source
    pair = scored.index_select(0, source), of_target.index_select(0, target)
    if kind == "dot":
        score = factor * (pair[0] * pair[1]).sum(-1)
    else:
        score = torch.nn.functional.leaky_relu(pair[0] + pair[1], factor)
        score = score if att is None else (score * att).sum(-1)
    spread = target.unsqueeze(1).expand_as(score)
    most = score.detach().new_full((edges.num_dst, score.size(1)), -torch.inf)
    most = most.scatter_reduce(0, spread, score.detach(), "amax")
    power = (score - most.index_select(0, target)).exp()
    total = torch.zeros_like(most).index_add(0, target, power) + 1e-16
    alpha = power / total.index_select(0, target)
    messages = alpha.unsqueeze(-1) * values.index_select(0, source)
    out = messages.new_zeros(edges.num_dst, *values.shape[1:]).index_add(0, target, messages)
    needed = [each for each, wants in zip(operands, wanted, strict=True) if wants and each is not None]
    gradients = iter(torch.autograd.grad(out, needed, grad, create_graph=True, allow_unused=True))
    return tuple(next(gradients) if wants else None for wants in wanted)


def _ends(edges: FewEdges) -> tuple[Tensor, Tensor]:
    return edges.edge_index[edges.sending], edges.edge_index[1 - edges.sending]
