"""The first of two steps, A X or X W^T: the one with fewer columns to aggregate, or A X if it is cached.

Exported programs, which run without PyG, make the same choice, so this module does not import PyG.
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
"""The reductions that commute with a linear step."""


def aggregates_first(x: Tensor, weight: Tensor, own_before: bool) -> bool:
    """Return whether (A X) W aggregates fewer columns than A (X W), forward and backward.

    The gradient of an aggregation is also an aggregation; it is computed if the aggregated rows need a
    gradient.

    Args:
        x: [N, K].
        weight: [M, K].
        own_before: Whether the layer's own order is (A X) W; this is the result if both aggregate equally
            many.
    """
    recording = torch.is_grad_enabled()
    of_x = recording and x.requires_grad
    of_product = of_x or (recording and weight.requires_grad)
    after, before = weight.shape
    before, after = before * (1 + of_x), after * (1 + of_product)
    return before <= after if own_before else before < after


def is_kept(x: Tensor) -> bool:
    """Return whether A X of a constant X is cached or will be cached; then it costs nothing.

    The result is False if X is nearly all 0, because its product with W costs less than the product of A X.
    """
    if not reuse.trained_on(x):
        return False
    return not (session.now.settings.products and may_choose_library() and sparse_features.apply(x))


def first_step(
    x: Tensor, weight: Tensor, before: bool, own_before: bool, constant: bool, aggregate: Callable[[], Tensor]
) -> tuple[Tensor, bool]:
    """Computes the first step, A X or X W^T, and returns it with whether it is A X.

    If the result is not finite, the layer's own order is used: an infinite feature of a node without edges
    affects the product, but no aggregate, and 0 times infinity in a gradient is NaN.

    Args:
        x: [N, K].
        weight: [M, K].
        before: Whether A X comes first because it has fewer columns.
        own_before: Whether A X comes first in the layer's own order.
        constant: Whether A X may be cached; once it is cached, it comes first.
        aggregate: Computes A X.
    """
    before = before or (constant and is_kept(x))
    noting = reuse.note_training if constant else None
    first = aggregate() if before else product(x, weight, None, noting)
    if before is own_before or is_finite(first):
        return first, before
    return (aggregate() if own_before else product(x, weight, None, noting)), own_before


def is_finite(rows: Tensor) -> bool:
    """Return whether all entries are finite; an overflow of their sum also counts as infinite.

    The result for a cached aggregate is cached with it.
    """
    if (rows.is_cpu and not is_shared(rows)) or original(rows) is rows:
        return math.isfinite(float(rows.detach().sum()))
    return remembered(rows, key="finite", make=lambda: math.isfinite(float(rows.detach().sum())))
