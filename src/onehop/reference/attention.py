"""Attention over each destination's edges: its calls, and naive ``gat``, ``gatv2`` and ``attention``."""

import math
from collections.abc import Callable
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


class Attention(NamedTuple):
    """Weighted sums of sources' values, with weights that are softmaxed scores.

    Scores, with j an edge's source and i its destination:

    - "gat": leaky_relu(key[j] + query[i] + edge)
    - "gatv2": att . leaky_relu(value[j] + query[i] + edge)
    - "dot": factor * query[i] . (key[j] + edge); the edge's features are added to value[j] too

    Features have one dtype; what is marked "acc" has its accumulator's.

    Attributes:
        value: [num_src, H, V].
        key: gat: acc [num_src, H]; dot: [num_src, H, D]; gatv2: None.
        query: gat: acc [num_dst, H]; else [num_dst, H, D].
        att: gatv2: acc [H, D], else None.
        edge: gat: acc [E, H]; else [E, H, D], or [E, K] with ``edge_weight``; None means 0.
        edge_weight: acc [H * D, K], which projects ``edge``, or None.
        mask: acc [E, H], multiplies the softmaxed weights; None means 1.
        seeds: int64 [1], the seed of the dropout, in [0, 2^63): a tensor, since a number would be frozen into
            a compiled program. None where there is no dropout.
        graph: Number of the graph.
        rows: num_dst.
        edges: E.
        rule: How scores are made.
        factor: The leaky relu's slope, or the scale of dot products.
        dropout: Probability of dropping a weight.
        with_weights: Return the weights too.
        backend: Name of the backend; empty means the best that can.

    Returns:
        [num_dst, H, V]; acc [num_dst, 2, H], for each row the largest score, and one divided by the sum of
        the exponentials of scores less that; and acc [E, H], the weights, an empty tensor without
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
        """H."""
        return self.value.size(1)

    @property
    def seed(self) -> int:
        """The seed of the dropout; 0 where there is none."""
        return 0 if self.seeds is None else int(self.seeds)

    @property
    def masks_returned_weights(self) -> bool:
        """Return whether returned weights are those after dropout and mask, as in PyG's layers."""
        return self.rule != "dot"


class AttentionGradients(NamedTuple):
    """Gradients to the operands of :class:`Attention`, each of its shape and dtype; None where not wanted."""

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
        out: Its first result.
        softmax: Its second result.
        weights: Its third result; None without ``grad_weights``.
        grad: [num_dst, H, V], to its first result.
        grad_weights: [E, H], to its third result, or None.
        wanted: For each field of :class:`AttentionGradients`, whether it is wanted.

    Returns:
        A tensor for each field of :class:`AttentionGradients`; an empty one where not wanted.
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
        """Name of the backend; empty means the best that can."""
        return self.call.backend


def attention_grad(
    call: Attention, results: tuple[Tensor, ...], grad: Tensor, grad_weights: Tensor | None = None
) -> AttentionGrad:
    """Makes the call of all gradients of a call.

    Args:
        call: The call.
        results: Its results.
        grad: The gradient to the first one.
        grad_weights: The gradient to the weights, or None.
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
    """Runs a call by the formula, with zeros for the softmax, which the gradient does without."""
    out, weights = attention_formula(graph, call)
    softmax = weights.new_zeros(graph.num_dst, 2, call.heads)
    return out.to(call.value.dtype), softmax, weights if call.with_weights else weights.new_empty(0)


def run_attention_grad(graph: Graph, grad: AttentionGrad) -> tuple[Tensor, ...]:
    """Runs a call by torch's own derivative of the formula, without the results of the forward pass."""
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
    """Computes output and weights in the accumulator's dtype, differentiable by torch itself."""
    call = _wide_operands(call)
    score = SCORES[OPERATORS[call.rule]]
    edge = call.edge if call.edge_weight is None else (call.edge, call.edge_weight)
    operands = (getattr(call, operand.field) for operand in score.operands)
    settings: dict[str, Any] = {score.edge: edge, "edge_mask": call.mask, "seed": call.seed}
    return score.formula(edges_of(graph, call.value), *operands, call.factor, call.dropout, **settings)


def _wide_operands(call: Attention) -> Attention:
    names = [name for name in ("value", "key", "query", "edge") if getattr(call, name) is not None]
    operands: dict[str, Any] = {name: wide(getattr(call, name)) for name in names}
    return call._replace(**operands)


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
    """GAT: the scores are sums of per-node (and per-edge) scores, through a leaky relu.

    Args:
        edge_index: [2, E], sources above destinations.
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
    """GATv2: the scores are ``att . leaky_relu(x_src[j] + x_dst[i] + edge)``.

    Args:
        edge_index: [2, E], sources above destinations.
        x_src: [num_src, H, D].
        x_dst: [num_dst, H, D].
        att: [H, D].
        negative_slope: Slope of the leaky relu.
        dropout: Probability of dropping a weight.
        edge: [E, H, D], or the pair [E, K] and [H * D, K] whose product it is; None means 0.
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
    """Dot-product attention: the scores are ``scale * query[i] . (key[j] + edge)``; values get ``edge`` too.

    Args:
        edge_index: [2, E], sources above destinations.
        query: [num_dst, H, D].
        key: [num_src, H, D].
        value: [num_src, H, V]; V = D where there are edge features.
        scale: None means 1 / sqrt(D).
        dropout: Probability of dropping a weight.
        edge: [E, H, D], or the pair [E, K] and [H * D, K] whose product it is; None means 0.
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


class Operand(NamedTuple):
    """An operand of attention that belongs to nodes, or to all edges together.

    Attributes:
        name: The name of the argument.
        field: The field of :class:`Attention` that it becomes.
        shape: The names of its extents; the first is "num_src" or "num_dst" where nodes have a row each.
    """

    name: str
    field: str
    shape: tuple[str, ...]


class Score(NamedTuple):
    """An operator of attention: how edges are scored, and its arguments in their order after the graph.

    Attributes:
        rule: The rule of its calls.
        formula: The naive function.
        operands: The operands; the first one's H and D are those of all.
        factor: Name of the number behind them, which becomes ``factor`` of :class:`Attention`.
        edge: Name of the operand of edges.
    """

    rule: Rule
    formula: Callable[..., tuple[Tensor, Tensor]]
    operands: tuple[Operand, ...]
    factor: str
    edge: str


_GAT = (
    Operand("x", "value", ("num_src", "H", "D")),
    Operand("score_src", "key", ("num_src", "H")),
    Operand("score_dst", "query", ("num_dst", "H")),
)
_GATV2 = (
    Operand("x_src", "value", ("num_src", "H", "D")),
    Operand("x_dst", "query", ("num_dst", "H", "D")),
    Operand("att", "att", ("H", "D")),
)
_DOT = (
    Operand("query", "query", ("num_dst", "H", "D")),
    Operand("key", "key", ("num_src", "H", "D")),
    Operand("value", "value", ("num_src", "H", "V")),
)
SCORES = {
    "gat": Score("gat", gat, _GAT, factor="negative_slope", edge="edge_score"),
    "gatv2": Score("gatv2", gatv2, _GATV2, factor="negative_slope", edge="edge"),
    "attention": Score("dot", attention, _DOT, factor="scale", edge="edge"),
}
"""The operators of attention by their names."""
OPERATORS: dict[str, str] = {score.rule: operator for operator, score in SCORES.items()}
"""The operator of each rule: plans that are tuned have its name."""
