"""Attention and softmax over few edges, without a graph; see :mod:`onehop.ops.few`."""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from onehop.native import extension
from onehop.ops.batching import for_each
from onehop.ops.contexts import in_memory
from onehop.ops.few import Few, FewRows, check_range, read

_grad_is_enabled = torch.is_grad_enabled


class Scores(NamedTuple):
    """The operands of attention.

    Attributes:
        kind: "gat", whose scores are ``leaky_relu(of_source + of_target)``; "gatv2", the sum over columns of
            ``att * leaky_relu(of_source + of_target)``; or "dot", ``factor`` times the sum over columns of
            ``of_source * of_target``.
        factor: The slope of ``leaky_relu``, or the factor of "dot".
        values: [num_src, H, C], float32 or float64, contiguous; so are the other tensors.
        of_source: The sources' operand: [num_src, H] for "gat", [num_src, H, C] for "dot", None for "gatv2",
            which uses ``values``.
        of_target: The destinations' operand: [num_dst, H] for "gat", else [num_dst, H, C].
        att: [H, C] for "gatv2", else None.
    """

    kind: str
    factor: float
    values: Tensor
    of_source: Tensor | None
    of_target: Tensor
    att: Tensor | None

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Return the tensors, in the order of the attributes."""
        return self[2:]

    def needs_gradients(self) -> bool:
        """Return whether one of the tensors needs a gradient."""
        return any(each is not None and each.requires_grad for each in self.tensors())

    def call(self, edges: Few) -> Any:
        """Return the native call over edges; its results are not set."""
        call = edges.call(self.kind, self.values.dtype)
        _, call.heads, call.columns = self.values.shape
        call.values = call.of_source = read(self.values)
        if self.of_source is not None:
            call.of_source = read(self.of_source)
        call.of_target, call.factor = read(self.of_target), self.factor
        if self.att is not None:
            call.att = read(self.att)
        return call


def attend(edges: Few, scores: Scores) -> Tensor:
    """Add up the neighbours' values, weighted by a softmax of scores over each destination's edges.

    Args:
        edges: The edges.
        scores: The scores and the values. Differentiable.

    Returns:
        [num_dst, H, C].

    Raises:
        IndexRangeError: An end of an edge is not the number of a row.
    """
    if _grad_is_enabled() and scores.needs_gradients():
        edges = edges.alias()
        out: Tensor = _Attention.apply(edges, scores.kind, scores.factor, edges.listed, *scores.tensors())
        return out
    return _attended(edges, scores)[0]


def _attended(edges: Few, scores: Scores) -> tuple[Tensor, Tensor]:
    """Return the result, and the weights of edges, [E, H]."""
    call, values = scores.call(edges), scores.values
    heads, dtype = values.size(1), values.dtype
    out = torch.empty(edges.num_dst, heads, values.size(2), dtype=dtype, device="cpu")
    alpha = torch.empty(edges.num_edges, heads, dtype=dtype, device="cpu")
    call.out, call.alpha = out.data_ptr(), alpha.data_ptr()
    check_range(extension.few_edges(call))
    return out, alpha


class _Attention(torch.autograd.function._SingleLevelFunction):
    apply: ClassVar[Any]

    @staticmethod
    def forward(
        ctx: Any, edges: Few, kind: str, factor: float, index: Tensor, *tensors: Tensor | None
    ) -> Tensor:
        out, alpha = _attended(edges, Scores(kind, factor, *tensors))  # type: ignore[arg-type]
        ctx.save_for_backward(index, alpha, *tensors)
        ctx.of = edges, kind, factor
        ctx.set_materialize_grads(False)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 8
        (edges, kind, factor), (index, alpha, *tensors) = ctx.of, ctx.saved_tensors
        edges, needs = edges._replace(listed=index), ctx.needs_input_grad[4:]
        if torch.is_grad_enabled():
            again = _attention_again(edges, Scores(kind, factor, *tensors), grad, needs)
            return None, None, None, None, *again
        function = partial(_attention_gradients, edges, Scores(kind, factor, *tensors), alpha)
        gradients = iter(for_each(function, grad))
        there = [None if each is None else next(gradients) for each in tensors]
        return None, None, None, None, *(g if wants else None for g, wants in zip(there, needs, strict=True))


def _attention_gradients(edges: Few, scores: Scores, alpha: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients to the tensors that are not None, in order."""
    grad = in_memory(grad).contiguous()
    call = scores.call(edges)
    call.alpha, call.grad = alpha.data_ptr(), grad.data_ptr()
    gradients = [None if each is None else torch.empty_like(each) for each in scores.tensors()]
    places = [0 if each is None else each.data_ptr() for each in gradients]
    call.grad_values, call.grad_of_source, call.grad_of_target, call.grad_att = places
    # For "gatv2", the values are also the sources' rows in the scores.
    call.grad_of_source = places[1] or places[0]
    check_range(extension.few_edges_grad(call))
    return tuple(each for each in gradients if each is not None)


def _attention_again(
    edges: Few, scores: Scores, grad: Tensor, needs: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Return the gradients, computed by torch's own operators so that they are differentiable."""
    # Views make them separate tensors: an operand may be another operand, or made from one, and each needs
    # its own gradient.
    operands = tuple(None if each is None else each.view_as(each) for each in scores.tensors())
    values, of_source, of_target, att = operands
    assert values is not None
    assert of_target is not None
    (source, target), scored = edges.ends(), values if of_source is None else of_source
    pair = scored.index_select(0, source), of_target.index_select(0, target)
    if scores.kind == "dot":
        score = scores.factor * (pair[0] * pair[1]).sum(-1)
    else:
        score = torch.nn.functional.leaky_relu(pair[0] + pair[1], scores.factor)
        score = score if att is None else (score * att).sum(-1)
    spread = target.unsqueeze(1).expand_as(score)
    most = score.detach().new_full((edges.num_dst, score.size(1)), -torch.inf)
    most = most.scatter_reduce(0, spread, score.detach(), "amax")
    power = (score - most.index_select(0, target)).exp()
    total = torch.zeros_like(most).index_add(0, target, power) + 1e-16
    alpha = power / total.index_select(0, target)
    messages = alpha.unsqueeze(-1) * values.index_select(0, source)
    out = messages.new_zeros(edges.num_dst, *values.shape[1:]).index_add(0, target, messages)
    needed = [each for each, wants in zip(operands, needs, strict=True) if wants and each is not None]
    gradients = iter(torch.autograd.grad(out, needed, grad, create_graph=True, allow_unused=True))
    return tuple(next(gradients) if wants else None for wants in needs)


def softmax(rows: FewRows, scores: Tensor) -> Tensor:
    """Compute the softmax of scores over the rows that belong to the same row of a result.

    Args:
        rows: The rows.
        scores: [E, ...], float32 or float64, contiguous, E at least 1. Differentiable.

    Returns:
        [E, ...].

    Raises:
        IndexRangeError: The row of the result is out of range for one of the rows.
    """
    if scores.requires_grad and _grad_is_enabled():
        rows = rows.alias()
        out: Tensor = _Softmax.apply(rows, rows.listed, scores)
        return out
    return _normalised(rows, scores)


def _softmax_call(rows: FewRows, values: Tensor, alpha: Tensor) -> Any:
    call = rows.call("softmax", alpha.dtype)
    call.heads, call.columns = alpha.numel() // alpha.size(0), 1
    call.values, call.alpha = read(values), read(alpha)
    return call


def _normalised(rows: FewRows, scores: Tensor) -> Tensor:
    alpha = torch.empty_like(scores)
    check_range(extension.few_edges(_softmax_call(rows, scores, alpha)))
    return alpha


class _Softmax(torch.autograd.function._SingleLevelFunction):
    apply: ClassVar[Any]

    @staticmethod
    def forward(ctx: Any, rows: FewRows, index: Tensor, scores: Tensor) -> Tensor:
        alpha = _normalised(rows, scores)
        ctx.save_for_backward(index, alpha)
        ctx.num_dst = rows.num_dst
        ctx.set_materialize_grads(False)
        return alpha

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return None, None, None
        index, alpha = ctx.saved_tensors
        if torch.is_grad_enabled():
            shares = alpha * grad
            total = shares.new_zeros(ctx.num_dst, *shares.shape[1:]).index_add(0, index, shares)
            return None, None, shares - alpha * total.index_select(0, index)
        function = partial(_softmax_gradient, FewRows(index, ctx.num_dst), alpha)
        return None, None, for_each(function, grad)[0]


def _softmax_gradient(rows: FewRows, alpha: Tensor, grad: Tensor) -> tuple[Tensor]:
    grad = in_memory(grad).contiguous()
    call, out = _softmax_call(rows, alpha, alpha), torch.empty_like(alpha)
    call.grad, call.grad_values = grad.data_ptr(), out.data_ptr()
    check_range(extension.few_edges_grad(call))
    return (out,)
