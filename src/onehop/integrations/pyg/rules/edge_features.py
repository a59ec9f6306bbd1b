"""Products of edge features with an attention layer's ``lin_edge``, edge by edge if that is faster."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn.dense import Linear

from onehop import thresholds
from onehop.compiler.modules import MODULE_HOOKS, has_global_hooks, itself
from onehop.integrations.pyg.leave import TRACED, is_plain, need
from onehop.ops.contexts import compiling, lowers

Projection = Tensor | tuple[Tensor, Tensor]


def edge_score(layer: Any, features: Any, edges: int, like: Tensor) -> Callable[[], Tensor] | None:
    """Prepares the part of GATConv's score that comes from edge features, [E, H]; None without features.

    The score of head h is ``att_edge[h] . (W_h f)``, which equals ``(W_h^T att_edge[h]) . f``: a product with
    K numbers for each edge and head, instead of a row of H * C numbers for each edge.

    Raises:
        Leave: PyG's code has to run.
    """
    projection = projected(layer, features, edges, like) if layer.lin_edge is not None else None
    if projection is None:
        return None

    def compute() -> Tensor:
        product = projection()
        if isinstance(product, Tensor):
            score: Tensor = (product * layer.att_edge).sum(dim=-1)
            return score
        rows, weight = product
        heads, width = layer.heads, layer.out_channels
        summed: Tensor = (weight.view(heads, width, -1) * layer.att_edge.view(heads, width, 1)).sum(1)
        if not lowers(rows):
            return rows @ summed.t()
        # PyG's score is a sum of elementwise products, whose dtype autocast does not change.
        with torch.autocast(rows.device.type, enabled=False):
            return rows @ summed.t()

    return compute


def edge_rows(
    layer: Any, features: Any, edges: int, like: Tensor, widen_vectors: bool = True
) -> Callable[[], Projection] | None:
    """Prepares the product of the edges' features with ``lin_edge``, for scores that need all of it.

    A kernel can multiply each edge's features in every sweep, and store nothing. That is fast for few
    columns. For many columns, a library multiplies the features of all edges at once, as PyG does, if the
    product is no larger than the features or fits a cache.

    Args:
        layer: An attention layer.
        features: [E, K] or, with ``widen_vectors``, [E].
        edges: E, the number of edges.
        like: The nodes' features; the edges' features must have their dtype and device.
        widen_vectors: Whether the layer takes [E] for [E, 1].

    Returns:
        See :func:`projected`; the result may also be the product if features have many columns.

    Raises:
        Leave: PyG's code has to run.
    """
    projection = projected(layer, features, edges, like, widen_vectors)
    if projection is None:
        return None

    columns = features.size(1) if features.dim() > 1 else 1
    width = layer.heads * layer.out_channels
    is_small = width <= columns or edges * width * like.itemsize < thresholds.now.cached_bytes
    if columns < thresholds.now.edge_columns or not is_small:
        return projection

    def compute() -> Any:
        product: Tensor = layer.lin_edge(features)
        return product.view(-1, layer.heads, layer.out_channels).to(like.dtype)

    return compute


def projected(
    layer: Any, features: Any, edges: int, like: Tensor, widen_vectors: bool = True
) -> Callable[[], Projection] | None:
    """Prepares the product of the edges' features with ``lin_edge``.

    Args:
        layer: An attention layer.
        features: [E, K] or, with ``widen_vectors``, [E].
        edges: E, the number of edges.
        like: The nodes' features; the edges' features must have their dtype and device.
        widen_vectors: Whether the layer takes [E] for [E, 1].

    Returns:
        A function. For a plain ``lin_edge``, it returns the features and the weight, which a kernel
        multiplies edge by edge. If ``lin_edge`` has hooks or was replaced, it returns the product, [E, H, C].
        None if there are no features.

    Raises:
        Leave: PyG's code has to run.
    """
    if features is None:
        return None
    linear = itself(layer.lin_edge)
    need(isinstance(linear, torch.nn.Module))
    beside = (is_plain(features) or _is_traced(features)) and features.device == like.device
    need(beside, "the edge features are not a plain tensor on the device of the nodes'")
    dtype = like.dtype
    lowered = lowers(like)
    same = _fits(features, dtype, lowered) and features.layout is torch.strided
    need(same, "the edge features are of another dtype than the nodes'")
    matrix = features.view(-1, 1) if features.dim() == 1 and widen_vectors else features
    need(matrix.dim() == 2 and matrix.size(0) == edges)
    heads, width = layer.heads, layer.out_channels
    if not is_product(linear):
        return lambda: linear(matrix).view(-1, heads, width).to(dtype)
    weight: Any = linear.weight
    need(weight.shape == (heads * width, matrix.size(1)) and _fits(weight, dtype, lowered))
    if matrix.requires_grad:
        return lambda: (matrix.to(dtype), weight.to(dtype))
    # The kernel saves the weight for other gradients. PyG's product of constant features does not save it, so
    # an optimiser may change the weight before the backward pass. Therefore the kernel gets a differentiable
    # copy.
    return lambda: (matrix.to(dtype), weight.to(dtype, copy=True))


def _is_traced(tensor: Any) -> bool:
    """Return whether a tensor represents a plain tensor while a program is traced."""
    return type(tensor) in TRACED and compiling()


def _fits(tensor: Tensor, dtype: torch.dtype, lowered: bool) -> bool:
    """Return whether a tensor has the dtype, or autocast converts it anyway."""
    return tensor.dtype is dtype or (lowered and lowers(tensor))


def is_product(linear: Any) -> bool:
    """Return whether a module only multiplies by its ``weight``."""
    if type(linear) is not Linear or linear.bias is not None:
        return False
    if type(linear.weight) is not Parameter and not _is_traced(linear.weight):
        return False
    state = linear.__dict__
    if "forward" in state or any(state[name] for name in MODULE_HOOKS):
        return False
    return compiling() or not has_global_hooks()
