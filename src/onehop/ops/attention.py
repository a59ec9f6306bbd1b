"""Attention over each destination's edges: the scores of GAT, of GATv2 and of graph transformers."""

import math
from functools import partial
from typing import Any, Literal, Unpack, overload

import torch
from torch import Tensor

from onehop.calls import SCORES, Attention, AttentionGrad, AttentionGradients, Edge, accumulator
from onehop.errors import ArgumentError
from onehop.graph import Graph, by_number
from onehop.ops.attention_checks import (
    OPTIONS,
    AttentionOptions,
    OptionsOfCalls,
    check_mask,
    check_operands,
    seeds_of,
)
from onehop.ops.checks import check_graph
from onehop.ops.gradients import GradientOperator, by_formula
from onehop.ops.held_edges import with_edges
from onehop.ops.library import Context, Operator, run
from onehop.reference.attention import attention_formula


@overload
def gat(
    graph: Graph,
    x: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    *,
    edge_score: Tensor | None = None,
    return_attention_weights: Literal[False] = False,
    **options: Unpack[OptionsOfCalls],
) -> Tensor: ...
@overload
def gat(
    graph: Graph,
    x: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    *,
    edge_score: Tensor | None = None,
    return_attention_weights: Literal[True],
    **options: Unpack[OptionsOfCalls],
) -> tuple[Tensor, Tensor]: ...
@overload
def gat(
    graph: Graph,
    x: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    *,
    edge_score: Tensor | None = None,
    return_attention_weights: bool,
    **options: Unpack[OptionsOfCalls],
) -> Tensor | tuple[Tensor, Tensor]: ...
def gat(
    graph: Graph,
    x: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    *,
    edge_score: Tensor | None = None,
    **options: Unpack[AttentionOptions],
) -> Tensor | tuple[Tensor, Tensor]:
    """Graph attention with scores that are sums of numbers of both nodes (Velickovic et al., 2018).

    ``score[e] = leaky_relu(score_src[j] + score_dst[i] + edge_score[e])`` for each edge e = (j -> i) and
    head, ``weight`` is its softmax over the edges of i, and ``out[i] = sum over e of weight[e] * x[j]``.

    No tensor of size edges times width is made, forward or backward. Destinations without edges get 0. A
    score of -inf has weight 0; if all scores are -inf, or one is NaN or inf, the row is NaN, as with torch's
    softmax. Second derivatives need memory for a row for each edge.

    Args:
        graph: The graph.
        x: [num_src, H, D], float32, float64, bfloat16 or float16. Differentiable.
        score_src: [num_src, H]. Differentiable.
        score_dst: [num_dst, H]. Differentiable.
        negative_slope: Slope of the leaky relu.
        dropout: Probability, in [0, 1), of setting a weight to 0; the others are divided by 1 - dropout.
        edge_score: [E, H], in the caller's edge order; None means 0. Differentiable.
        **options: See :class:`AttentionOptions`.

    Returns:
        [num_dst, H, D], of the promoted dtype of all operands but ``edge_mask``; with
        ``return_attention_weights`` also the weights [E, H], in the caller's edge order, differentiable.

    Raises:
        ArgumentError: A shape, dtype, device or number does not fit.
        BackendError: No backend runs on such tensors.

    Examples:
        >>> import onehop, torch
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 1, 2], [3, 3, 3]]))  # 0->3, 1->3, 2->3
        >>> x = torch.tensor([2.0, 4.0, 9.0, 0.0]).reshape(4, 1, 1)  # one head of one column
        >>> scores = torch.tensor([[0.0], [0.0], [-1000.0], [0.0]])  # node 2 is not to be attended to
        >>> out, weight = onehop.gat(graph, x, scores, scores, return_attention_weights=True)
        >>> weight.flatten().tolist()
        [0.5, 0.5, 0.0]
        >>> out[3].item()  # the mean of 2 and 4
        3.0
    """
    return _attend("gat", graph, (x, score_src, score_dst), edge_score, negative_slope, dropout, options)


@overload
def gatv2(
    graph: Graph,
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    *,
    edge: Edge | None = None,
    return_attention_weights: Literal[False] = False,
    **options: Unpack[OptionsOfCalls],
) -> Tensor: ...
@overload
def gatv2(
    graph: Graph,
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    *,
    edge: Edge | None = None,
    return_attention_weights: Literal[True],
    **options: Unpack[OptionsOfCalls],
) -> tuple[Tensor, Tensor]: ...
@overload
def gatv2(
    graph: Graph,
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    *,
    edge: Edge | None = None,
    return_attention_weights: bool,
    **options: Unpack[OptionsOfCalls],
) -> Tensor | tuple[Tensor, Tensor]: ...
def gatv2(
    graph: Graph,
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    *,
    edge: Edge | None = None,
    **options: Unpack[AttentionOptions],
) -> Tensor | tuple[Tensor, Tensor]:
    """Graph attention whose scores depend on both ends jointly (Brody et al., 2022).

    ``score[e] = att . leaky_relu(x_src[j] + x_dst[i] + edge[e])`` for every edge e = (j -> i) and head,
    ``weight`` is its softmax over the edges of i, and ``out[i] = sum over e of weight[e] * x_src[j]``.

    Memory, rows without edges, infinite scores and second derivatives are as in :func:`gat`, but the gradient
    of an ``edge`` of shape [E, H, D] has that size itself.

    Args:
        graph: The graph.
        x_src: [num_src, H, D], float32, float64, bfloat16 or float16. Differentiable.
        x_dst: [num_dst, H, D]. Differentiable.
        att: [H, D]. Differentiable.
        negative_slope: Slope of the leaky relu.
        dropout: See :func:`gat`.
        edge: Features of the edges, in the caller's edge order: [E, H, D], or a pair of features [E, K] and
            weight [H * D, K], whose product is computed edge by edge inside the kernel. None means 0.
            Differentiable.
        **options: See :class:`AttentionOptions`.

    Returns:
        [num_dst, H, D], of the promoted dtype of all operands but ``edge_mask``; with
        ``return_attention_weights`` also the weights [E, H], in the caller's edge order, differentiable.

    Raises:
        ArgumentError: A shape, dtype, device or number does not fit.
        BackendError: No backend runs on such tensors.

    Examples:
        >>> import onehop, torch
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 1, 2], [3, 3, 3]]))  # 0->3, 1->3, 2->3
        >>> x = torch.tensor([[2.0, 4.0], [4.0, 2.0], [-900.0, -900.0], [0.0, 0.0]]).unsqueeze(1)  # one head
        >>> out, weight = onehop.gatv2(graph, x, x, torch.ones(1, 2), return_attention_weights=True)
        >>> weight.flatten().tolist()  # 2 + 4 and 4 + 2 are the same score, that of node 2 is far lower
        [0.5, 0.5, 0.0]
        >>> out[3].tolist()
        [[3.0, 3.0]]
    """
    return _attend("gatv2", graph, (x_src, x_dst, att), edge, negative_slope, dropout, options)


@overload
def attention(
    graph: Graph,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float | None = None,
    dropout: float = 0.0,
    *,
    edge: Edge | None = None,
    return_attention_weights: Literal[False] = False,
    **options: Unpack[OptionsOfCalls],
) -> Tensor: ...
@overload
def attention(
    graph: Graph,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float | None = None,
    dropout: float = 0.0,
    *,
    edge: Edge | None = None,
    return_attention_weights: Literal[True],
    **options: Unpack[OptionsOfCalls],
) -> tuple[Tensor, Tensor]: ...
@overload
def attention(
    graph: Graph,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float | None = None,
    dropout: float = 0.0,
    *,
    edge: Edge | None = None,
    return_attention_weights: bool,
    **options: Unpack[OptionsOfCalls],
) -> Tensor | tuple[Tensor, Tensor]: ...
def attention(
    graph: Graph,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float | None = None,
    dropout: float = 0.0,
    *,
    edge: Edge | None = None,
    **options: Unpack[AttentionOptions],
) -> Tensor | tuple[Tensor, Tensor]:
    """Dot-product attention over a graph's edges, as in graph transformers (Shi et al., 2021).

    ``score[e] = scale * query[i] . (key[j] + edge[e])`` for every edge e = (j -> i) and head, ``weight``
    is its softmax over the edges of i, and ``out[i] = sum over e of weight[e] * (value[j] + edge[e])``.
    Weights are returned before dropout and mask, as PyG's TransformerConv returns them.

    Memory, rows without edges, infinite scores and second derivatives are as in :func:`gat`, but the gradient
    of an ``edge`` of shape [E, H, D] has that size itself.

    Args:
        graph: The graph.
        query: [num_dst, H, D], float32, float64, bfloat16 or float16. Differentiable.
        key: [num_src, H, D]. Differentiable.
        value: [num_src, H, V]; V must be D if there are edge features. Differentiable.
        scale: None means 1 / sqrt(D).
        dropout: See :func:`gat`.
        edge: See :func:`gatv2`.
        **options: See :class:`AttentionOptions`.

    Returns:
        [num_dst, H, V], of the promoted dtype of all operands but ``edge_mask``; with
        ``return_attention_weights`` also the weights [E, H], in the caller's edge order, differentiable.

    Raises:
        ArgumentError: A shape, dtype, device or number does not fit.
        BackendError: No backend runs on such tensors.

    Examples:
        >>> import onehop, torch
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 1, 2], [3, 3, 3]]))  # 0->3, 1->3, 2->3
        >>> query = torch.ones(4, 1, 1)  # one head of one column
        >>> key = torch.tensor([5.0, 5.0, -900.0, 0.0]).reshape(4, 1, 1)  # node 2 is not to be attended to
        >>> value = torch.tensor([2.0, 4.0, 9.0, 0.0]).reshape(4, 1, 1)
        >>> onehop.attention(graph, query, key, value)[3].item()  # the mean of 2 and 4
        3.0
    """
    return _attend("attention", graph, (query, key, value), edge, scale, dropout, options)


def _attend(
    operator: str,
    graph: Graph,
    operands: tuple[Tensor, ...],
    edge: Edge | None,
    factor: float | None,
    dropout: float,
    options: AttentionOptions,
) -> Tensor | tuple[Tensor, Tensor]:
    """Check the arguments of an operator, convert its operands to common dtypes and call it.

    Raises:
        ArgumentError: An argument cannot be used.
        TypeError: There is no such option.
    """
    if type(graph) is not Graph:
        check_graph(graph)
    score = SCORES[operator]
    fields = check_operands(score, graph, operands, edge)
    if factor is None and score.rule == "dot":
        factor = 1 / math.sqrt(operands[0].size(2))
    elif not isinstance(factor, (int, float)):
        raise ArgumentError(f"{score.factor}: expected a number, got {type(factor).__name__}.")
    for name in options:
        if name not in OPTIONS:
            raise TypeError(
                f"got an unexpected keyword argument {name!r}; the options are {', '.join(sorted(OPTIONS))}."
            )
    value, edge_mask, seed = fields["value"], options.get("edge_mask"), options.get("seed")
    with_weights = options.get("return_attention_weights", False)
    seeds = None
    if dropout != 0 or seed is not None:
        seeds = seeds_of(dropout, edge_mask, seed)
    if edge_mask is not None:
        check_mask(edge_mask, graph, value)
    dtype, is_mixed = value.dtype, False
    # A loop, because a comprehension is a call, and small graphs notice.
    for operand in fields.values():
        if operand.dtype is not dtype:
            dtype, is_mixed = torch.promote_types(dtype, operand.dtype), True
    acc = torch.float64 if dtype is torch.float64 else torch.float32
    if is_mixed or dtype is not acc:
        features = ("value",) if score.rule == "gat" else ("value", "key", "query", "edge")
        fields = {field: x.to(dtype if field in features else acc) for field, x in fields.items()}
    tensors: dict[str, Any] = {"key": None, **fields}
    out, _, weights = ATTENTION(
        Attention(
            **tensors,
            mask=None if edge_mask is None else edge_mask.to(acc),
            seeds=seeds,
            graph=graph.number,
            rows=graph.num_dst,
            edges=graph.num_edges,
            rule=score.rule,
            factor=float(factor),
            dropout=float(dropout),
            with_weights=with_weights,
            backend=options.get("backend") or "",
        ),
        graph,
    )
    return (out, weights.to(dtype)) if with_weights else out


_OPERANDS = AttentionGradients._fields


class _Attention(Operator[Attention]):
    call = Attention
    results = 3
    edge_fields = ("edge", "mask")
    gradients_of = AttentionGradients

    def fake(self, call: Attention) -> tuple[Tensor, Tensor, Tensor]:
        value, acc, heads = call.value, accumulator(call.value.dtype), call.heads
        return (
            value.new_empty((call.rows, heads, value.size(2))),
            value.new_empty((call.rows, 2, heads), dtype=acc),
            value.new_empty((call.edges, heads) if call.with_weights else (0,), dtype=acc),
        )

    def padded(self, call: Attention, results: Any) -> Any:
        out, softmax, weights = results
        return out, softmax, with_edges(weights, call.edges) if call.with_weights else weights

    def constant(self, call: Attention, results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return results[1:2] if call.with_weights else results[1:]

    def saved(
        self, call: Attention, results: Any, needs: tuple[str, ...]
    ) -> tuple[Attention, tuple[Tensor, ...]]:
        return call, results if call.with_weights else results[:2]

    def gradients(self, context: Context[Attention], *grads: Tensor | None) -> AttentionGradients:
        call, (grad, _, grad_weights) = context.call, grads
        needs = [name in context.needs for name in _OPERANDS]
        if grad is None:
            # The weights depend on the values only in gatv2, where the values are also the keys.
            needs[0] = needs[0] and call.key is None and call.rule != "gat"
        if torch.is_grad_enabled():
            names = [name for name, want in zip(_OPERANDS, needs, strict=True) if want]
            formula = partial(attention_formula, by_number(call.graph))
            return AttentionGradients(**by_formula(formula, call, names, (grad, grad_weights)))
        out, softmax, *weights = context.results
        gradients = run(
            AttentionGrad(
                call=call,
                out=out,
                softmax=softmax,
                weights=weights[0] if call.with_weights else None,
                grad=torch.zeros_like(out) if grad is None else grad,
                grad_weights=grad_weights,
                wanted=needs,
            )
        )
        return AttentionGradients(*(g if want else None for g, want in zip(gradients, needs, strict=True)))


class _AttentionGrad(GradientOperator[AttentionGrad]):
    call = AttentionGrad
    of = AttentionGradients
    edge_fields = ("weights", "grad_weights")


ATTENTION = _Attention()
ATTENTION_GRAD = _AttentionGrad()
