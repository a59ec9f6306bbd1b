"""Naive ``onehop.gat``, ``onehop.gatv2`` and ``onehop.attention``."""

import math

from torch import Tensor
from torch.nn.functional import leaky_relu

from onehop.reference.dropout import dropout_mask
from onehop.reference.edge_softmax import edge_softmax

Edge = Tensor | tuple[Tensor, Tensor]


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
