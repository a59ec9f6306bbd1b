"""The linear step X W^T + b of layers whose order onehop chooses, and the sum of two such steps."""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop import thresholds
from onehop.graph import Graph
from onehop.integrations import session
from onehop.integrations.torch import sparse_features
from onehop.integrations.torch.products import (
    linear_step,
    may_choose,
    may_choose_backward,
    over_rows,
    plus_times_transposed,
    times,
    times_transposed,
)
from onehop.ops.contexts import autocast_dtype, wraps
from onehop.ops.linear import FORWARD, is_large

# The key, among the results derived from a graph, of the rows without edges.
_EDGELESS = "rows without edges"


def product(
    x: Tensor, weight: Tensor, bias: Tensor | None, noting: Callable[[Tensor], None] | None = None
) -> Tensor:
    """Compute X W^T + b; under autocast in autocast's dtype, as ``torch.nn.functional.linear``.

    Args:
        x: [N, K].
        weight: [M, K], of the same dtype, except under autocast.
        bias: [M], or [N, M]; None means 0.
        noting: Called with X when a backward pass reaches the product, or None.

    Returns:
        [N, M].
    """
    lowered = autocast_dtype(x)
    if lowered is not None:
        # The conversion is done here, because inside the step autocast would keep copies of parameters that
        # pass on no gradient.
        noting = None if noting is None else functools.partial(_note, noting, x)
        x, weight = x.to(lowered), weight.to(lowered)
        bias = None if bias is None else bias.to(lowered)
    if bias is not None and bias.dtype is not x.dtype:
        return product(x, weight, None, noting) + bias
    bounds, numbers = thresholds.now, x.numel()
    small = numbers * weight.size(0) < bounds.product_work and numbers < bounds.sparse_numbers
    if small and noting is None:
        # F.linear may be replaced, so it is not called here.
        plain: Tensor = torch._C._nn.linear(x, weight) if bias is None else torch.addmm(bias, x, weight.t())
        return plain
    fastest = may_run_elsewhere(x) and (is_large(FORWARD, x, weight) or sparse_features.may_apply(x))
    if fastest or noting is not None:
        return linear_step(x, weight, bias, fastest, noting)
    return times_transposed(x, weight, bias, fastest)


def prefix_product(x: Tensor, weight: Tensor, top: Tensor, top_weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute X W^T + b, plus T V^T in the first n rows; under autocast in autocast's dtype.

    Args:
        x: [N, K].
        weight: [M, K], of the same dtype, except under autocast; so are ``top`` and ``top_weight``.
        top: [n, L], n at most N.
        top_weight: [M, L].
        bias: [M], of any dtype; None means 0.

    Returns:
        [N, M].
    """
    lowered = autocast_dtype(x)
    if lowered is not None:
        x, weight, top, top_weight = (each.to(lowered) for each in (x, weight, top, top_weight))
        bias = None if bias is None else bias.to(lowered)
    if bias is not None and bias.dtype is not x.dtype:
        return prefix_product(x, weight, top, top_weight, None) + bias
    out: Tensor = _PrefixProduct.apply(x, weight, top, top_weight, bias)  # type: ignore[no-untyped-call]
    return out


def _note(noting: Callable[[Tensor], None], x: Tensor, lowered: Tensor) -> None:
    """Calls ``noting`` with the features before autocast converted them."""
    noting(x)


def may_run_elsewhere(x: Tensor) -> bool:
    """Return whether products may run in another library than torch's own; sizes are not considered."""
    return x.is_cpu and x.dtype is torch.float32 and session.now.settings.products and may_choose()


def has_edgeless_rows(graph: Graph) -> bool:
    """Return whether a destination may have no edges; True if the host would have to wait to find out."""
    return _edgeless_rows(graph) is not None


def gradient_where_edges_end(graph: Graph, grad: Tensor) -> Tensor:
    """Return the gradient of (A X) W^T, with 0 for destinations without edges if an entry is not finite.

    For these destinations, the rows of A X are 0. In A (X W^T), no gradient passes through them; in G^T (A
    X), a NaN would.

    Args:
        graph: The edges of A.
        grad: G, [num_dst, M].
    """
    rows = _edgeless_rows(graph)
    if rows is None or (grad.is_cpu and not wraps(grad) and math.isfinite(float(grad.detach().sum()))):
        return grad
    return grad.masked_fill(rows.to(grad.device).unsqueeze(1), 0)


def _edgeless_rows(graph: Graph) -> Tensor | None:
    """Return a mask of the rows without edges, [num_dst]; None if a CPU graph has no such rows."""
    if graph.made_on is not None:
        return graph.on(graph.made_on).rowptr.diff() == 0
    if _EDGELESS not in graph.derived:
        rows = graph.in_degrees == 0
        graph.derived[_EDGELESS] = rows if bool(rows.any()) else None
    rows_without_edges: Tensor | None = graph.derived[_EDGELESS]
    return rows_without_edges


class _PrefixProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, top: Tensor, top_weight: Tensor, bias: Tensor | None
    ) -> Tensor:
        for_x, for_weight, for_top, for_top_weight, _ = ctx.needs_input_grad
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            x if for_weight else None,
            weight if for_x else None,
            top if for_top_weight else None,
            top_weight if for_top else None,
        )
        ctx.rows = top.size(0)
        ctx.fastest = x.numel() * weight.size(0) >= thresholds.now.product_work and may_run_elsewhere(x)
        out = times_transposed(x, weight, bias, ctx.fastest)
        return plus_times_transposed(out, top, top_weight, ctx.fastest)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * len(ctx.needs_input_grad)
        x, weight, top, top_weight = ctx.saved_tensors
        for_x, for_weight, for_top, for_top_weight, for_bias = ctx.needs_input_grad
        of_top = grad[: ctx.rows]
        fastest = may_choose_backward(ctx.fastest, grad)
        return (
            times(grad, weight, fastest) if for_x else None,
            over_rows(grad, x, fastest) if for_weight else None,
            times(of_top, top_weight, fastest) if for_top else None,
            over_rows(of_top, top, fastest) if for_top_weight else None,
            grad.sum(0) if for_bias else None,
        )
