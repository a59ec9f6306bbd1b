"""Tensor products of features with the spherical harmonics of edges: ``onehop::tensor_product``.

The product is linear in features, harmonics, weights and the gradient to the result. So each gradient is
another sum over the same edges with one of the four open, and so are its gradients:
``onehop::tensor_product`` leaves the result or the features open, ``onehop::tensor_product_edges`` the
harmonics or the weights.
"""

from typing import Any

import torch
from torch import Tensor

from onehop.calls import (
    TensorProduct,
    TensorProductEdges,
    TensorProductEdgesGradients,
    TensorProductGradients,
    accumulator,
)
from onehop.errors import ArgumentError, check_choice
from onehop.graph import Graph
from onehop.irreps import TensorPaths
from onehop.irreps.paths import of_text
from onehop.ops.checks import FLOATS, check_features, check_graph, elsewhere, not_dense
from onehop.ops.held_edges import of_edges, with_edges
from onehop.ops.library import Context, Operator, run
from onehop.ops.tensor_layouts import LAYOUTS, Layout, channels_first, components_first, mixed, unmixed


def tensor_product(
    graph: Graph,
    x: Tensor,
    harmonics: Tensor,
    weights: Tensor,
    paths: TensorPaths,
    *,
    layout: Layout = "mul_ir",
    out_layout: Layout | None = None,
    backend: str | None = None,
) -> Tensor:
    """Multiply each source's features with its edge's spherical harmonics, and sum over each destination.

    ``out[i, k, u] = sum over edges e = (j -> i), paths, m, n of c[m, n, k] * x[j, m, u] * harmonics[e, n] *
    weights[e, u]``, with channels u, components m, n and k of the path's irreps, and Clebsch-Gordan
    coefficients c in the normalisation of :class:`onehop.TensorPaths`. It is the message of NequIP (S.
    Batzner et al., Nature Communications 13, 2453, 2022) and MACE (I. Batatia et al., NeurIPS 2022): e3nn's
    ``TensorProduct(x[source], harmonics, weights)``, added up over the edges. If features and harmonics turn
    with the coordinate system, so does the result.

    No tensor of edges times components times channels is made, forward or backward. The operator is
    differentiable any number of times.

    Args:
        graph: The graph.
        x: [num_src, paths.dim_x], float32, float64, bfloat16 or float16. Differentiable.
        harmonics: [E, paths.dim_harmonics], in the caller's edge order. Differentiable.
        weights: [E, paths.weight_numel]; or [paths.weight_numel], the same weights for all edges. The weights
            of the paths follow each other in the order of the paths, row by row. Differentiable.
        paths: The irreps and the paths between them.
        layout: The order of an irrep's columns in ``x``: "mul_ir", channels first, as in e3nn; or "ir_mul",
            components first, which kernels read without a copy of ``x``.
        out_layout: The order in the result; None means ``layout``.
        backend: Name of the backend; None means the best available one.

    Returns:
        [num_dst, paths.dim_out], of the promoted dtype; 0 for destinations without edges. 16-bit operands are
        converted to float32, and the result is rounded once.

    Raises:
        ArgumentError: A shape, dtype or device does not fit the graph or the paths.
        BackendError: No backend runs on such tensors.

    Examples:
        >>> import onehop, torch
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 1], [2, 2]]), num_nodes=3)
        >>> paths = onehop.TensorPaths("1x0e", "1o", "1x1o", [(0, 0, 0)])  # scalars times directions
        >>> x, direction = torch.tensor([[2.0], [3.0], [0.0]]), torch.eye(3)[:2]
        >>> onehop.tensor_product(graph, x, direction, torch.ones(2, 1), paths)[2]
        tensor([2., 3., 0.])
    """
    check_graph(graph)
    if not isinstance(paths, TensorPaths):
        raise ArgumentError(f"paths: expected onehop.TensorPaths, got {type(paths).__name__}.")
    check_choice("layout", layout, LAYOUTS)
    if out_layout is None:
        out_layout = layout
    check_choice("out_layout", out_layout, LAYOUTS)
    check_features("x", x, graph.num_src, "sources")
    if x.dim() != 2 or x.size(1) != paths.dim_x:
        raise ArgumentError(
            f"x: expected [{graph.num_src}, {paths.dim_x}], as the irreps {paths.x_irreps} have, got "
            f"{list(x.shape)}."
        )
    _check_operands(graph.num_edges, x, harmonics, weights, paths)
    dtype = torch.promote_types(torch.promote_types(x.dtype, harmonics.dtype), weights.dtype)
    acc = accumulator(dtype)
    x, harmonics, weights = x.to(acc), harmonics.to(acc), weights.to(acc)
    if layout == "mul_ir":
        x = components_first(x, paths.x)
    apart = unmixed(x, weights, paths)
    summed: Tensor = TENSOR_PRODUCT(
        TensorProduct(
            x=apart.x,
            harmonics=harmonics,
            weights=apart.weights,
            graph=graph.number,
            rows=graph.num_dst,
            paths=apart.paths.text,
            backend=backend or "",
        ),
        graph,
    )
    out = mixed(summed, weights, paths)
    return (channels_first(out, paths.out) if out_layout == "mul_ir" else out).to(dtype)


def _check_operands(edges: int, x: Tensor, harmonics: Tensor, weights: Tensor, paths: TensorPaths) -> None:
    """Raises unless harmonics and weights fit the graph, the paths and the device of ``x``."""
    for name, tensor in (("harmonics", harmonics), ("weights", weights)):
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.dtype not in FLOATS:
            raise not_dense(name, tensor)
        if tensor.device != x.device:
            raise elsewhere(name, tensor, x)
    if harmonics.dim() != 2 or harmonics.size(0) != edges or harmonics.size(1) != paths.dim_harmonics:
        raise ArgumentError(
            f"harmonics: expected [{edges}, {paths.dim_harmonics}], a row for each edge with the irreps "
            f"{paths.harmonics_irreps}, got {list(harmonics.shape)}."
        )
    numel = paths.weight_numel
    fits = weights.dim() == 1 or (weights.dim() == 2 and weights.size(0) == edges)
    if not fits or weights.size(-1) != numel:
        raise ArgumentError(
            f"weights: expected [{edges}, {numel}] or [{numel}], as {len(paths.paths)} paths need, got "
            f"{list(weights.shape)}."
        )


class _TensorProduct(Operator[TensorProduct]):
    call = TensorProduct
    gradients_of = TensorProductGradients
    edge_fields = ("harmonics", "weights")

    def fake(self, call: TensorProduct) -> Tensor:
        paths = of_text(call.paths)
        return call.x.new_empty((call.rows, paths.dim_x if call.transposed else paths.dim_out))

    def fitted(self, call: TensorProduct, graph: Graph) -> TensorProduct:
        weights = call.weights if call.weights.dim() == 1 else of_edges(call.weights, graph)
        return call._replace(harmonics=of_edges(call.harmonics, graph), weights=weights, graph=graph.number)

    def saved(
        self, call: TensorProduct, results: Any, needs: tuple[str, ...]
    ) -> tuple[TensorProduct, tuple[Tensor, ...]]:
        # The gradient to an operand needs the other two.
        unneeded = {name: None for name in TensorProductGradients._fields if needs == (name,)}
        return call._replace(**unneeded), ()  # type: ignore[arg-type]

    def gradients(self, context: Context[TensorProduct], *grads: Tensor | None) -> TensorProductGradients:
        call, grad, needs = context.call, grads[0], context.needs
        assert grad is not None
        gradients: dict[str, Tensor] = {}
        if "x" in needs:
            turned = call._replace(x=grad, rows=context.shapes["x"][0], transposed=not call.transposed)
            gradients["x"] = run(turned)
        if "harmonics" in needs or "weights" in needs:
            x, pulled = (grad, call.x) if call.transposed else (call.x, grad)
            shared = "weights" in needs and len(context.shapes["weights"]) == 1
            edges = TensorProductEdges(
                x=x,
                grad=pulled,
                harmonics=call.harmonics if "weights" in needs else None,
                weights=call.weights if "harmonics" in needs else None,
                graph=call.graph,
                edges=_rows_of_edges(context),
                paths=call.paths,
                shared=shared,
                backend=call.backend,
            )
            to_harmonics, to_weights = run(edges)
            gradients |= {"harmonics": to_harmonics, "weights": to_weights}
        return TensorProductGradients(**{name: gradients[name] for name in needs})


def _rows_of_edges(context: Context[TensorProduct]) -> int:
    """Return the rows that operands of edges have; harmonics are saved unless only they need a gradient."""
    harmonics: Tensor | None = context.call.harmonics
    return context.shapes["harmonics"][0] if harmonics is None else harmonics.size(0)


class _TensorProductEdges(Operator[TensorProductEdges]):
    call = TensorProductEdges
    gradients_of = TensorProductEdgesGradients
    edge_fields = ("harmonics", "weights")
    results = 2

    def fake(self, call: TensorProductEdges) -> tuple[Tensor, Tensor]:
        paths = of_text(call.paths)
        of_weights = (paths.weight_numel,) if call.shared else (call.edges, paths.weight_numel)
        return (
            call.x.new_empty(0 if call.weights is None else (call.edges, paths.dim_harmonics)),
            call.x.new_empty(0 if call.harmonics is None else of_weights),
        )

    def constant(self, call: TensorProductEdges, results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(
            result
            for result, needed in zip(results, (call.weights, call.harmonics), strict=True)
            if needed is None
        )

    def fitted(self, call: TensorProductEdges, graph: Graph) -> TensorProductEdges:
        harmonics, weights = call.harmonics, call.weights
        return call._replace(
            harmonics=None if harmonics is None else of_edges(harmonics, graph),
            weights=weights if weights is None or weights.dim() == 1 else of_edges(weights, graph),
            graph=graph.number,
            edges=graph.num_edges,
        )

    def padded(self, call: TensorProductEdges, results: Any) -> Any:
        to_harmonics, to_weights = results
        return (
            to_harmonics if call.weights is None else with_edges(to_harmonics, call.edges),
            to_weights if call.harmonics is None or call.shared else with_edges(to_weights, call.edges),
        )

    def gradients(
        self, context: Context[TensorProductEdges], *grads: Tensor | None
    ) -> TensorProductEdgesGradients:
        call = context.call
        of_harmonics, of_weights = grads
        # Each incoming gradient replaces the operand that the result is the gradient of.
        operands = [
            (harmonics, weights)
            for harmonics, weights in ((of_harmonics, call.weights), (call.harmonics, of_weights))
            if harmonics is not None and weights is not None
        ]
        gradients: dict[str, Tensor | None] = {}
        for name in ("x", "grad"):
            if name in context.needs:
                gradients[name] = _sum_of_products(call, operands, name, context.shapes[name][0])
        if "harmonics" in context.needs and of_weights is not None:
            gradients["harmonics"] = run(call._replace(harmonics=None, weights=of_weights, shared=False))[0]
        if "weights" in context.needs and of_harmonics is not None:
            shared = len(context.shapes["weights"]) == 1
            gradients["weights"] = run(call._replace(harmonics=of_harmonics, weights=None, shared=shared))[1]
        return TensorProductEdgesGradients(**gradients)


def _sum_of_products(
    call: TensorProductEdges, operands: list[tuple[Tensor, Tensor]], name: str, rows: int
) -> Tensor | None:
    """Return the gradient to ``x`` or ``grad``, of this many rows; None without operands."""
    total: Tensor | None = None
    for harmonics, weights in operands:
        product: Tensor = run(
            TensorProduct(
                x=call.grad if name == "x" else call.x,
                harmonics=harmonics,
                weights=weights,
                graph=call.graph,
                rows=rows,
                paths=call.paths,
                transposed=name == "x",
                backend=call.backend,
            )
        )
        total = product if total is None else total + product
    return total


TENSOR_PRODUCT = _TensorProduct()
TENSOR_PRODUCT_EDGES = _TensorProductEdges()
