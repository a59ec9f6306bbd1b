"""The first of two steps, A X or X W^T: whichever aggregates fewer columns, or is kept.

Operators of programs that run without PyG choose so too, so this imports nothing of it.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from onehop.graph.identity import remembered
from onehop.graph.lending import is_shared, original
from onehop.integrations import session
from onehop.integrations.pyg import reuse
from onehop.integrations.pyg.associations.product import product
from onehop.integrations.torch import sparse_features
from onehop.integrations.torch.products import may_choose as may_choose_library

LINEAR = ("sum", "mean")
"""Reductions that commute with a linear step."""


def aggregates_first(x: Tensor, weight: Tensor, own_before: bool) -> bool:
    """Return whether (A X) W aggregates fewer columns than A (X W), forward and backward.

    The gradient of an aggregation is one too; it is computed where what was aggregated needs a gradient.

    Args:
        x: [N, K].
        weight: [M, K].
        own_before: Whether the layer's own order is (A X) W: the result where neither has fewer.
    """
    recording = torch.is_grad_enabled()
    of_x = recording and x.requires_grad
    of_product = of_x or (recording and weight.requires_grad)
    after, before = weight.shape
    before, after = before * (1 + of_x), after * (1 + of_product)
    return before <= after if own_before else before < after


def is_kept(x: Tensor) -> bool:
    """Return whether A X, for X that is constant, is kept or about to be: then it costs nothing.

    False where the features are nearly all 0: their product costs less than that of their aggregate.
    """
    if not reuse.trained_on(x):
        return False
    return not (session.now.settings.products and may_choose_library() and sparse_features.apply(x))


def first_step(
    x: Tensor, weight: Tensor, before: bool, own_before: bool, constant: bool, aggregate: Callable[[], Tensor]
) -> tuple[Tensor, bool]:
    """Computes what comes first, A X or X W^T, and returns whether it is A X.

    Where that is not finite, the layer's own order is taken: an infinite feature of a node without edges is
    in the product, but in no aggregate, and 0 times infinity, in a gradient, is NaN.

    Args:
        x: [N, K].
        weight: [M, K].
        before: Whether A X comes first because it has fewer columns.
        own_before: Whether it does in the layer's own order.
        constant: Whether A X may be kept; then it comes first once it is.
        aggregate: Computes A X.
    """
    before = before or (constant and is_kept(x))
    noting = reuse.note_training if constant else None
    first = aggregate() if before else product(x, weight, None, noting)
    if before is own_before or is_finite(first):
        return first, before
    return (aggregate() if own_before else product(x, weight, None, noting)), own_before


def is_finite(rows: Tensor) -> bool:
    """Return whether all entries are finite; sums that overflow count as infinite too.

    For an aggregate that is kept, the result is kept with it.
    """
    if (rows.is_cpu and not is_shared(rows)) or original(rows) is rows:
        return math.isfinite(float(rows.detach().sum()))
    return remembered(rows, key="finite", make=lambda: math.isfinite(float(rows.detach().sum())))
