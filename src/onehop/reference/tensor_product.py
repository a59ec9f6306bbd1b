"""Tensor products of features with harmonics: their calls, and a naive ``onehop.tensor_product``."""

from typing import NamedTuple

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.irreps import Irrep, TensorPaths, coupling
from onehop.irreps.paths import of_text
from onehop.reference.calls import edges_of


class TensorProduct(NamedTuple):
    """The product of each source's row with its edge's harmonics and weights, summed over each row.

    Columns have the components of an irrep first, then its channels. All paths are "uvu".

    Attributes:
        x: [num_src, dim_x], float32 or float64; if transposed, [num_dst, dim_out].
        harmonics: [E, dim_harmonics], of the same dtype, in the caller's edge order.
        weights: [E, weight_numel]; or [weight_numel], the same weights for all edges.
        graph: Number of the graph.
        rows: Number of destinations; if transposed, of sources.
        paths: The paths, as ``TensorPaths.text``.
        transposed: Compute the gradient to x from the gradient to the result: every edge is reversed, and
            each path goes from the output's irrep to that of x.
        backend: Name of the backend; empty means the best backend that can run the call.

    Returns:
        [num_dst, dim_out]; if transposed, [num_src, dim_x].
    """

    x: Tensor
    harmonics: Tensor
    weights: Tensor
    graph: int
    rows: int
    paths: str
    transposed: bool = False
    backend: str = ""


class TensorProductGradients(NamedTuple):
    """Gradients with respect to the operands of :class:`TensorProduct`; None if not requested."""

    x: Tensor | None = None
    harmonics: Tensor | None = None
    weights: Tensor | None = None


class TensorProductEdges(NamedTuple):
    """The gradients of :class:`TensorProduct` to the operands of edges.

    Attributes:
        x: [num_src, dim_x].
        grad: [num_dst, dim_out], the gradient to the result.
        harmonics: [E, dim_harmonics], for the weights' gradient; None if that is not needed.
        weights: [E, weight_numel] or [weight_numel], for the harmonics' gradient; None if not needed.
        graph: Number of the graph.
        edges: E.
        paths: The paths, as ``TensorPaths.text``.
        shared: Whether the weights' gradient is summed over all edges.
        backend: Name of the backend; empty means the best backend that can run the call.

    Returns:
        The gradient to the harmonics, [E, dim_harmonics], and to the weights, [E, weight_numel] or
        [weight_numel]. The first is empty without ``weights``, the second without ``harmonics``.
    """

    x: Tensor
    grad: Tensor
    harmonics: Tensor | None
    weights: Tensor | None
    graph: int
    edges: int
    paths: str
    shared: bool = False
    backend: str = ""


class TensorProductEdgesGradients(NamedTuple):
    """Gradients with respect to the operands of :class:`TensorProductEdges`; None if not requested."""

    x: Tensor | None = None
    grad: Tensor | None = None
    harmonics: Tensor | None = None
    weights: Tensor | None = None


def run_tensor_product(graph: Graph, call: TensorProduct) -> Tensor:
    """Run a call by its formula."""
    source, target = edges_of(graph, call.x).long()
    paths = of_text(call.paths)
    if call.transposed:
        source, target = target, source
    messages = _messages(paths, call.x[source], call.harmonics, call.weights, call.transposed)
    return messages.new_zeros(call.rows, messages.size(1)).index_add(0, target, messages)


def run_tensor_product_edges(graph: Graph, call: TensorProductEdges) -> tuple[Tensor, Tensor]:
    """Run a call by its formula."""
    source, target = edges_of(graph, call.x).long()
    paths, x, grad = of_text(call.paths), call.x[source], call.grad[target]
    to_harmonics = to_weights = x.new_empty(0)
    if call.weights is not None:
        # The products are linear in the harmonics, so each column's gradient is the product with a unit row.
        columns = []
        for column in range(paths.dim_harmonics):
            unit = x.new_zeros(call.edges, paths.dim_harmonics)
            unit[:, column] = 1
            columns.append((_messages(paths, x, unit, call.weights) * grad).sum(1))
        to_harmonics = torch.stack(columns, 1) if columns else x.new_zeros(call.edges, 0)
    if call.harmonics is not None:
        ones = x.new_ones(call.edges, paths.weight_numel)
        to_weights = _by_weight(paths, x, call.harmonics, ones, grad)
        if call.shared:
            to_weights = to_weights.sum(0)
    return to_harmonics, to_weights


def tensor_product(
    edge_index: Tensor,
    x: Tensor,
    harmonics: Tensor,
    weights: Tensor,
    paths: TensorPaths,
    num_dst: int,
    layout: str = "mul_ir",
    out_layout: str | None = None,
) -> Tensor:
    """Compute each edge's product of features and harmonics, and sum the products over each destination.

    Args:
        edge_index: [2, E], with sources in row 0 and destinations in row 1.
        x: [num_src, dim_x].
        harmonics: [E, dim_harmonics].
        weights: [E, weight_numel] or [weight_numel].
        paths: The paths.
        num_dst: Number of destinations.
        layout: The order of an irrep's columns in ``x``: "mul_ir", channels first, or "ir_mul".
        out_layout: The order in the result; None means ``layout``.

    Returns:
        [num_dst, dim_out].
    """
    source, target = edge_index[0].long(), edge_index[1].long()
    if layout == "mul_ir":
        x = _components_first(x, paths.x)
    messages = _messages(paths, x[source], harmonics, weights)
    out = messages.new_zeros(num_dst, messages.size(1)).index_add(0, target, messages)
    return _channels_first(out, paths.out) if (out_layout or layout) == "mul_ir" else out


def _messages(
    paths: TensorPaths, x: Tensor, harmonics: Tensor, weights: Tensor, turned: bool = False
) -> Tensor:
    """Return each edge's product, [E, dim_out], or with ``turned`` [E, dim_x]; components come first."""
    inputs, outputs = (paths.out, paths.x) if turned else (paths.x, paths.out)
    x_of, y_of = _split(x, inputs), _split(harmonics, paths.harmonics)
    weights = weights.expand(x.size(0), -1)
    out = [[x.new_zeros(x.size(0), irrep.multiplicity) for _ in range(irrep.components)] for irrep in outputs]
    first = 0
    for path, shape in zip(paths.paths, paths.weight_shapes, strict=True):
        degrees = paths.x[path.x].degree, paths.harmonics[path.harmonics].degree, paths.out[path.out].degree
        left, right = (path.out, path.x) if turned else (path.x, path.out)
        weight = weights[:, first : first + torch.Size(shape).numel()].reshape(x.size(0), *shape)
        first += torch.Size(shape).numel()
        for i, j, k in zip(*coupling(*degrees).nonzero(), strict=True):
            factor = float(coupling(*degrees)[i, j, k]) * path.factor
            i, k = (k, i) if turned else (i, k)
            product = factor * x_of[left][:, i] * y_of[path.harmonics][:, j]
            mixed = product * weight if path.mode == "uvu" else torch.einsum("eu,euw->ew", product, weight)
            out[right][k] = out[right][k] + mixed
    columns = [component for components in out for component in components]
    return torch.cat(columns, 1) if columns else x.new_zeros(x.size(0), 0)


def _by_weight(paths: TensorPaths, x: Tensor, harmonics: Tensor, ones: Tensor, grad: Tensor) -> Tensor:
    """Return the products times the gradient, summed over all columns that a weight is a factor of."""
    columns, first = [ones[:, :0]], 0
    for path, (channels,) in zip(paths.paths, paths.weight_shapes, strict=True):
        alone = TensorPaths.with_factors(paths.x_irreps, paths.harmonics_irreps, paths.out_irreps, [path])
        product = _messages(alone, x, harmonics, ones[:, first : first + channels])
        columns.append((_split(product, paths.out)[path.out] * _split(grad, paths.out)[path.out]).sum(1))
        first += channels
    return torch.cat(columns, 1)


def _split(x: Tensor, irreps: tuple[Irrep, ...]) -> list[Tensor]:
    """Return the columns of each irrep, [N, components, channels]."""
    parts = x.split([irrep.dim for irrep in irreps], 1)
    return [
        part.unflatten(1, (irrep.components, irrep.multiplicity))
        for part, irrep in zip(parts, irreps, strict=True)
    ]


def _components_first(x: Tensor, irreps: tuple[Irrep, ...]) -> Tensor:
    """Return features with the channels first in the order with the components first."""
    turned = [
        part.unflatten(1, (irrep.multiplicity, irrep.components)).transpose(1, 2).flatten(1)
        for part, irrep in zip(x.split([irrep.dim for irrep in irreps], 1), irreps, strict=True)
    ]
    return torch.cat([x[:, :0], *turned], 1)


def _channels_first(x: Tensor, irreps: tuple[Irrep, ...]) -> Tensor:
    """Return features with the components first in the order with the channels first."""
    return torch.cat([x[:, :0], *(part.transpose(1, 2).flatten(1) for part in _split(x, irreps))], 1)
