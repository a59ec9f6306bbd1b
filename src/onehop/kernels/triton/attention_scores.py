"""Attention scores and their gradients, edge by edge, for sweeps over the rows of either end.

``operands`` and ``form`` are ``Operands`` and ``AttentionForm`` of :mod:`.attention_call`. One end of the
edges is a tile's row, [rows, 1, heads, columns]; the other one is gathered, [rows, edges, heads, columns].
The functions work for either choice. For "gat", keys and queries are scalars, without columns.
"""

import triton
import triton.language as tl

from onehop.kernels.triton.attention_parts import (
    DOT,
    EDGE_ROWS,
    GAT,
    GATV2,
    NO_EDGE,
    NO_MASK,
    feature_rows,
    head_numbers,
    multipliers,
    number_of_two,
)


@triton.jit
def leaky(x, slope):
    """Return the leaky relu of x."""
    return tl.where(x > 0, x, x * slope)


@triton.jit
def through_leaky(grad, x, slope):
    """Return the gradient to the argument of a leaky relu."""
    return tl.where(x > 0, grad, grad * slope)


@triton.jit
def of_sources(operands, row, inside, head, column, value_column, form: tl.constexpr):
    """Load values and keys; without keys, return values twice."""
    values = feature_rows(operands.value, row, inside, head, value_column, form.H, form.V, form.ACC)
    if form.RULE == GAT:
        return values, head_numbers(operands.key, row, inside, head, form.H, form.ACC)
    elif form.RULE == DOT:
        return values, feature_rows(operands.key, row, inside, head, column, form.H, form.D, form.ACC)
    else:
        return values, values


@triton.jit
def of_destinations(operands, row, inside, head, column, form: tl.constexpr):
    """Load queries."""
    if form.RULE == GAT:
        return head_numbers(operands.query, row, inside, head, form.H, form.ACC)
    else:
        return feature_rows(operands.query, row, inside, head, column, form.H, form.D, form.ACC)


@triton.jit
def of_edges(operands, number, inside, head, column, form: tl.constexpr):
    """Load edge features, as stored or projected by ``edge_weight``."""
    if form.RULE == GAT:
        return head_numbers(operands.edge, number, inside, head, form.H, form.ACC)
    elif form.EDGE == EDGE_ROWS:
        return feature_rows(operands.edge, number, inside, head, column, form.H, form.D, form.ACC)
    else:
        within = head[:, None] * form.D + column[None, :]
        there = (head < form.H)[:, None] & (column < form.D)[None, :]
        total = tl.zeros([number.shape[0], number.shape[1], head.shape[0], column.shape[0]], form.ACC)
        for k in range(form.K):
            feature = tl.load(operands.edge + number * form.K + k, mask=inside, other=0.0).to(form.ACC)
            place = operands.edge_weight + k * (form.H * form.D) + within
            weight = tl.load(place, mask=there, other=0.0)
            total += feature[:, :, None, None] * weight[None, None, :, :]
        return total


@triton.jit
def score_settings(operands, factor, head, column, form: tl.constexpr):
    """Return GATv2's attention vector, [1, 1, heads, columns], and the slope or the scale of products.

    For the other rules, the first is an unused scalar.
    """
    number = number_of_two(factor[0], factor[1], form.ACC)
    vector = number
    if form.RULE == GATV2:
        there = (head < form.H)[:, None] & (column < form.D)[None, :]
        place = operands.att + head[:, None] * form.D + column[None, :]
        vector = tl.load(place, mask=there, other=0.0)[None, None, :, :]
    return vector, number


@triton.jit
def scored(operands, values, keys, queries, settings, number, inside, head, column, form: tl.constexpr):
    """Return values and keys including edge features, the argument of the leaky relu, and scores.

    For the rule without a leaky relu, the score is returned instead of its argument.
    """
    vector, factor = settings
    if form.RULE == DOT:
        if form.EDGE != NO_EDGE:
            extra = of_edges(operands, number, inside, head, column, form)
            keys += extra
            values += extra
        score = tl.sum(keys * queries, 3) * factor
        return values, keys, score, score
    else:
        raw = keys + queries
        if form.EDGE != NO_EDGE:
            raw += of_edges(operands, number, inside, head, column, form)
        if form.RULE == GATV2:
            return values, keys, raw, tl.sum(leaky(raw, factor) * vector, 3)
        else:
            return values, keys, raw, leaky(raw, factor)


@triton.jit
def weights_and_slopes(
    operands,
    grad_weights,
    score,
    normaliser,
    product,
    values,
    grads,
    number,
    inside,
    head,
    dropout,
    form: tl.constexpr,
    WEIGHTS: tl.constexpr,
):
    """Return the weights of the sum over values, and the gradients to scores, [rows, edges, heads].

    ``normaliser`` is the logarithm of the row's sum of exponentials, and ``product`` is the row's sum of
    weights times their gradients.
    """
    valid = inside[:, :, None] & (head < form.H)[None, None, :]
    weight = tl.exp(tl.where(valid, score - normaliser, float("-inf")))
    slope = tl.sum(values * grads, 3)
    masked_weight = weight
    if form.MASK != NO_MASK:
        multiplier = masked(operands, number, inside, head, dropout, form)
        masked_weight = weight * multiplier
        slope *= multiplier
    if WEIGHTS:
        to_weight = head_numbers(grad_weights, number, inside, head, form.H, form.ACC)
        # Returned weights are masked, except for the dot product's.
        if form.MASK != NO_MASK and form.RULE != DOT:
            to_weight *= multiplier
        slope += to_weight
    return masked_weight, tl.where(valid, weight * (slope - product), 0.0)


@triton.jit
def masked(operands, number, inside, head, dropout, form: tl.constexpr):
    """Return the factors of the weights; ``dropout`` is base, threshold, and the kept factor in two parts."""
    base, threshold, kept_factor = dropout
    return multipliers(
        operands.mask,
        number,
        inside,
        head,
        base,
        threshold,
        number_of_two(kept_factor[0], kept_factor[1], form.ACC),
        form.H,
        form.MASK,
        form.ACC,
    )
