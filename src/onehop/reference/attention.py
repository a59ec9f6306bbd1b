"""Attention over each destination's edges: its calls, and naive ``gat``, ``gatv2`` and ``attention``."""

import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from onehop.graph import Graph
from onehop.reference.calls import edges_of, wide
from onehop.reference.dropout import dropout_mask
from onehop.reference.edge_softmax import edge_softmax

Edge = Tensor | tuple[Tensor, Tensor]
Rule = Literal["gat", "gatv2", "dot"]
RULES: dict[str, Rule] = {"gat": "gat", "gatv2": "gatv2", "attention": "dot"}
"""The rule of each attention operator."""
OPERATORS: dict[str, str] = {rule: operator for operator, rule in RULES.items()}
"""The operator of each rule; tuned plans have the operator's name."""


class Attention(NamedTuple):
    """Weighted sums of sources' values; the weights are the softmax of scores.

    The scores are, for an edge with source j and destination i:

    - "gat": leaky_relu(key[j] + query[i] + edge)
    - "gatv2": att . leaky_relu(value[j] + query[i] + edge)
    - "dot": factor * query[i] . (key[j] + edge); the edge's features are added to value[j] too

    All features have one dtype; tensors marked "acc" have its accumulator's dtype.

    Attributes:
        value: [num_src, H, V].
        key: gat: acc [num_src, H]; dot: [num_src, H, D]; gatv2: None.
        query: gat: acc [num_dst, H]; else [num_dst, H, D].
        att: gatv2: acc [H, D], else None.
        edge: gat: acc [E, H]; else [E, H, D], or [E, K] with ``edge_weight``; None means 0.
        edge_weight: acc [H * D, K], which projects ``edge``; or None.
        mask: acc [E, H], multiplies the softmaxed weights; None means 1.
        seeds: int64 [1], the seed of the dropout, in [0, 2^63). It is a tensor, because a compiled program
            would treat a number as a constant. None means no dropout.
        graph: Number of the graph.
        rows: num_dst.
        edges: E.
        rule: The rule that computes the scores.
        factor: The leaky relu's slope, or the scale of dot products.
        dropout: Probability of dropping a weight.
        with_weights: Whether to return the weights too.
        backend: Name of the backend; empty means the best backend that can run the call.

    Returns:
        [num_dst, H, V]; acc [num_dst, 2, H], which has for each row the largest score, and one divided by the
        sum of exp(score - largest score); and acc [E, H], the weights, which is empty without
        ``with_weights``.
    """

    value: Tensor
    key: Tensor | None
    query: Tensor
    att: Tensor | None = None
    edge: Tensor | None = None
    edge_weight: Tensor | None = None
    mask: Tensor | None = None
    seeds: Tensor | None = None
    graph: int = -1
    rows: int = -1
    edges: int = -1
    rule: str = "dot"
    factor: float = 1.0
    dropout: float = 0.0
    with_weights: bool = False
    backend: str = ""

    @property
    def heads(self) -> int:
        """H, the number of heads."""
        return self.value.size(1)

    @property
    def seed(self) -> int:
        """The seed of the dropout; 0 if there is no dropout."""
        return 0 if self.seeds is None else int(self.seeds)

    @property
    def masks_returned_weights(self) -> bool:
        """Return whether dropout and mask are applied to the returned weights, as in PyG's layers."""
        return self.rule != "dot"


class AttentionGradients(NamedTuple):
    """Gradients with respect to the operands of :class:`Attention`; None if not requested."""

    value: Tensor | None = None
    key: Tensor | None = None
    query: Tensor | None = None
    att: Tensor | None = None
    edge: Tensor | None = None
    edge_weight: Tensor | None = None


class AttentionGrad(NamedTuple):
    """The gradients of :class:`Attention`.

    Attributes:
        call: The call.
        out: The first result of the call.
        softmax: The second result of the call.
        weights: The third result of the call; None without ``grad_weights``.
        grad: [num_dst, H, V], the gradient with respect to the first result.
        grad_weights: [E, H], the gradient with respect to the third result, or None.
        wanted: For each field of :class:`AttentionGradients`, whether it is requested.

    Returns:
        A tensor for each field of :class:`AttentionGradients`; an empty tensor if not requested.
    """

    call: Attention
    out: Tensor
    softmax: Tensor
    weights: Tensor | None
    grad: Tensor
    grad_weights: Tensor | None
    wanted: list[bool]

    @property
    def graph(self) -> int:
        """Number of the graph."""
        return self.call.graph

    @property
    def backend(self) -> str:
        """Name of the backend; empty means the best backend that can run the call."""
        return self.call.backend


def attention_grad(
    call: Attention, results: tuple[Tensor, ...], grad: Tensor, grad_weights: Tensor | None = None
) -> AttentionGrad:
    """Create the call that computes all gradients of a call.

    Args:
        call: The call.
        results: The results of the call.
        grad: The gradient with respect to the first result.
        grad_weights: The gradient with respect to the weights, or None.
    """
    out, softmax, weights = results
    return AttentionGrad(
        call=call,
        out=out,
        softmax=softmax,
        weights=weights if call.with_weights else None,
        grad=grad,
        grad_weights=grad_weights,
        wanted=[getattr(call, name) is not None for name in AttentionGradients._fields],
    )


def run_attention(graph: Graph, call: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """Run a call by its formula, with zeros as softmax, which this gradient does not need."""
    out, weights = attention_formula(graph, call)
    softmax = weights.new_zeros(graph.num_dst, 2, call.heads)
    return out.to(call.value.dtype), softmax, weights if call.with_weights else weights.new_empty(0)


def run_attention_grad(graph: Graph, grad: AttentionGrad) -> tuple[Tensor, ...]:
    """Compute gradients by torch's own derivative of the formula, without results of the forward pass."""
    names = [name for name, want in zip(AttentionGradients._fields, grad.wanted, strict=True) if want]
    call = _wide_operands(grad.call)
    leaves = {name: getattr(call, name).detach().requires_grad_() for name in names}
    with torch.enable_grad():
        again, again_weights = attention_formula(graph, call._replace(**leaves))
        target = (again * grad.grad).sum()
        if grad.grad_weights is not None:
            target = target + (again_weights * grad.grad_weights).sum()
        found = torch.autograd.grad(target, list(leaves.values()))
    grads = {name: value.to(getattr(grad.call, name).dtype) for name, value in zip(names, found, strict=True)}
    return tuple(grads.get(name, grad.call.value.new_empty(0)) for name in AttentionGradients._fields)


def attention_formula(graph: Graph, call: Attention) -> tuple[Tensor, Tensor]:
    """Compute output and weights in the accumulator's dtype; torch can differentiate them."""
    call = _wide_operands(call)
    edge_index, value, query = edges_of(graph, call.value), call.value, call.query
    settings: dict[str, Any] = {"edge_mask": call.mask, "seed": call.seed}
    if call.rule == "gat":
        assert call.key is not None
        scores = call.key, query, call.factor, call.dropout
        return gat(edge_index, value, *scores, edge_score=call.edge, **settings)
    edge: Edge | None = call.edge
    if call.edge is not None and call.edge_weight is not None:
        edge = (call.edge, call.edge_weight)
    if call.rule == "gatv2":
        assert call.att is not None
        rows = value, query, call.att
        return gatv2(edge_index, *rows, call.factor, call.dropout, edge=edge, **settings)
    assert call.key is not None
    return attention(edge_index, query, call.key, value, call.factor, call.dropout, edge=edge, **settings)


def _wide_operands(call: Attention) -> Attention:
    return call._replace(
        value=wide(call.value),
        key=None if call.key is None else wide(call.key),
        query=wide(call.query),
        edge=None if call.edge is None else wide(call.edge),
    )


def gat(
    edge_index: Tensor,
    x: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    *,
    edge_score: Tensor | None = None,
    edge_mask: Tensor | None = None,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Compute GAT: the scores are sums of per-node (and per-edge) scores, followed by a leaky relu.

    Args:
        edge_index: [2, E], with sources in row 0 and destinations in row 1.
        x: [num_src, H, D].
        score_src: [num_src, H].
        score_dst: [num_dst, H].
        negative_slope: Slope of the leaky relu.
        dropout: Probability of dropping a weight.
        edge_score: [E, H]; None means 0.
        edge_mask: [E, H], multiplies the weights; None means 1.
        seed: Seed of the dropout.

    Returns:
        The output [num_dst, H, D] and the weights [E, H], after dropout and mask.
    """
    source, target = edge_index[0].long(), edge_index[1].long()
    score = score_src.index_select(0, source) + score_dst.index_select(0, target)
    if edge_score is not None:
        score = score + edge_score
    weight = edge_softmax(edge_index, leaky_relu(score, negative_slope), score_dst.size(0))
    weight = weight * _mask(weight, dropout, edge_mask, seed)
    return _sum(target, weight, x.index_select(0, source), score_dst.size(0)), weight


def gatv2(
    edge_index: Tensor,
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    *,
    edge: Edge | None = None,
    edge_mask: Tensor | None = None,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Compute GATv2: the scores are ``att . leaky_relu(x_src[j] + x_dst[i] + edge)``.

    Args:
        edge_index: [2, E], with sources in row 0 and destinations in row 1.
        x_src: [num_src, H, D].
        x_dst: [num_dst, H, D].
        att: [H, D].
        negative_slope: Slope of the leaky relu.
        dropout: Probability of dropping a weight.
        edge: [E, H, D], or a pair of tensors [E, K] and [H * D, K] with this product; None means 0.
        edge_mask: [E, H], multiplies the weights; None means 1.
        seed: Seed of the dropout.

    Returns:
        The output [num_dst, H, D] and the weights [E, H], after dropout and mask.
    """
    source, target = edge_index[0].long(), edge_index[1].long()
    value = x_src.index_select(0, source)
    z = value + x_dst.index_select(0, target)
    if edge is not None:
        z = z + _projected(edge, value)
    weight = edge_softmax(edge_index, (leaky_relu(z, negative_slope) * att).sum(-1), x_dst.size(0))
    weight = weight * _mask(weight, dropout, edge_mask, seed)
    return _sum(target, weight, value, x_dst.size(0)), weight


def attention(
    edge_index: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float | None = None,
    dropout: float = 0.0,
    *,
    edge: Edge | None = None,
    edge_mask: Tensor | None = None,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Compute attention with scores ``scale * query[i] . (key[j] + edge)``; values get ``edge`` too.

    Args:
        edge_index: [2, E], with sources in row 0 and destinations in row 1.
        query: [num_dst, H, D].
        key: [num_src, H, D].
        value: [num_src, H, V]; V = D if there are edge features.
        scale: Factor of the scores; None means 1 / sqrt(D).
        dropout: Probability of dropping a weight.
        edge: [E, H, D], or a pair of tensors [E, K] and [H * D, K] with this product; None means 0.
        edge_mask: [E, H], multiplies the weights; None means 1.
        seed: Seed of the dropout.

    Returns:
        The output [num_dst, H, V] and the weights [E, H], before dropout and mask.
    """
    source, target = edge_index[0].long(), edge_index[1].long()
    factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    left, right = key.index_select(0, source), value.index_select(0, source)
    if edge is not None:
        features = _projected(edge, left)
        left, right = left + features, right + features
    score = (query.index_select(0, target) * left).sum(-1) * factor
    weight = edge_softmax(edge_index, score, query.size(0))
    return _sum(target, weight * _mask(weight, dropout, edge_mask, seed), right, query.size(0)), weight


def _projected(edge: Edge, like: Tensor) -> Tensor:
    if isinstance(edge, Tensor):
        return edge
    features, weight = edge
    return (features @ weight.t()).view(-1, *like.shape[1:])


def _mask(weight: Tensor, dropout: float, edge_mask: Tensor | None, seed: int) -> Tensor | float:
    if edge_mask is not None:
        return edge_mask.to(weight.dtype)
    if dropout:
        return dropout_mask(weight.size(0), weight.size(1), dropout, seed, weight.dtype).to(weight.device)
    return 1.0


def _sum(target: Tensor, weight: Tensor, value: Tensor, num_dst: int) -> Tensor:
    message = weight.unsqueeze(-1) * value
    return message.new_zeros(num_dst, *message.shape[1:]).index_add(0, target, message)
