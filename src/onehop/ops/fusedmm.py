"""Products of the ends of edges and weighted sums in one pass: ``onehop::fusedmm``."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from onehop.calls import Aggregate, Fusedmm, FusedmmGradients, Sddmm, accumulator
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.ops.checks import check_features, check_graph
from onehop.ops.gradients import by_formula
from onehop.ops.library import Context, Operator, run

Force = Literal["sigmoid", "tdist", "dot"]
KERNELS: tuple[Force, ...] = get_args(Force)


def fusedmm(
    graph: Graph, dst: Tensor, src: Tensor, kernel: Force, *, scale: float = 1.0, backend: str | None = None
) -> Tensor:
    """Weight every edge by a function of its ends, and sum over each destination's edges.

    - ``"sigmoid"``: ``out[i] = sum over j of sigmoid(scale * dst[i] . src[j]) * src[j]``
    - ``"tdist"``: ``out[i] = sum over j of (dst[i] - src[j]) / (1 + scale * |dst[i] - src[j]|^2)``
    - ``"dot"``: ``out[i] = sum over j of scale * (dst[i] . src[j]) * src[j]``

    These are the forces of graph embeddings by a logistic model and by Student's t-distribution, as in M.
    Rahman, M. Sujon, A. Azad, "FusedMM: a unified SDDMM-SpMM kernel for graph embedding and graph neural
    networks", IPDPS 2021. The programs published with the paper multiply the force of the t-distribution by
    -2, and use ``(1 - sigmoid) * src`` as the logistic force; these are ``-2 * fusedmm(..., "tdist")`` and
    ``aggregate(graph, src) - fusedmm(..., "sigmoid")``.

    The forward pass stores nothing for edges; the backward pass stores a few numbers per edge. No tensor of
    size edges times width is made.

    Args:
        graph: The graph.
        dst: [num_dst, F], float32, float64, bfloat16 or float16. Differentiable.
        src: [num_src, F]. Differentiable. It may be the same tensor as ``dst``.
        kernel: "sigmoid", "tdist" or "dot".
        scale: A finite number.
        backend: Name of the backend; None means the best available one.

    Returns:
        [num_dst, F], 0 for destinations without edges.

    Raises:
        ArgumentError: A shape or dtype does not fit, or ``kernel`` is unknown.
        BackendError: No backend runs on such tensors.

    Examples:
        >>> import onehop, torch
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]))  # 0->1, 0->2, 1->2
        >>> x = torch.tensor([[1.0, 0.0], [2.0, 1.0], [1.0, 1.0]])
        >>> onehop.fusedmm(graph, x, x, "dot")  # node 2: 1 times the row of 0, and 3 times that of 1
        tensor([[0., 0.],
                [2., 0.],
                [7., 3.]])
    """
    check_graph(graph)
    check_features("dst", dst, graph.num_dst, "destinations")
    check_features("src", src, graph.num_src, "sources")
    if kernel not in KERNELS:
        raise ArgumentError(f"kernel: expected one of {', '.join(KERNELS)}, got {kernel!r}.")
    if dst.dim() != 2 or src.dim() != 2 or dst.size(1) != src.size(1):
        raise ArgumentError(
            f"dst, src: expected matrices of the same width, got {list(dst.shape)} and {list(src.shape)}."
        )
    if dst.device != src.device:
        raise ArgumentError(f"dst, src: expected one device, got {dst.device} and {src.device}.")
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not math.isfinite(scale):
        raise ArgumentError(f"scale: expected a finite number, got {scale!r}.")
    if dst.dtype != src.dtype:
        dtype = torch.promote_types(dst.dtype, src.dtype)
        dst, src = dst.to(dtype), src.to(dtype)
    call = Fusedmm(
        dst=dst,
        src=src,
        graph=graph.number,
        edges=graph.num_edges,
        rule=kernel,
        factor=float(scale),
        backend=backend or "",
    )
    out: Tensor = FUSEDMM(call, graph)
    return out


class _Fusedmm(Operator[Fusedmm]):
    call = Fusedmm
    gradients_of = FusedmmGradients

    def gradients(self, context: Context[Fusedmm], *grads: Tensor | None) -> FusedmmGradients:
        further = torch.is_grad_enabled()
        with torch.enable_grad():
            gradients = by_formula(_in_parts, context.call, context.needs, grads, further)
        return FusedmmGradients(**gradients)


def _in_parts(call: Fusedmm) -> Tensor:
    """Computes the same result by operators that have derivatives."""
    dst, src = call.dst, call.src
    if call.rule != "tdist":
        weight = call.factor * _dots(call, dst, src)
        if call.rule == "sigmoid":
            weight = weight.sigmoid()
        return _weighted_sum(call, src, weight, widen=False)
    acc = accumulator(dst.dtype)
    dtype, dst, src = src.dtype, dst.to(acc), src.to(acc)
    # |x - y|^2 is the dot product of [x, |x|^2, 1] and [-2y, 1, |y|^2].
    left = torch.cat([dst, dst.square().sum(1, keepdim=True), dst.new_ones(dst.size(0), 1)], 1)
    right = torch.cat([-2 * src, src.new_ones(src.size(0), 1), src.square().sum(1, keepdim=True)], 1)
    # For equal vectors, the result may be slightly below 0 because of rounding.
    distance = _dots(call, left, right).clamp(min=0)
    weight = (1 + call.factor * distance).reciprocal()
    total = _weighted_sum(call, weight.new_ones(src.size(0), 1), weight, widen=True)
    return (total * dst - _weighted_sum(call, src, weight, widen=True)).to(dtype)


def _weighted_sum(call: Fusedmm, x: Tensor, weight: Tensor, widen: bool) -> Tensor:
    out: Tensor = run(
        Aggregate(
            x=x,
            weight=weight,
            graph=call.graph,
            rows=call.dst.size(0),
            widen=widen,
            backend=call.backend,
        )
    )
    return out


def _dots(call: Fusedmm, left: Tensor, right: Tensor) -> Tensor:
    out: Tensor = run(
        Sddmm(
            dst=left.unsqueeze(1),
            src=right.unsqueeze(1),
            graph=call.graph,
            edges=call.edges,
            widen=True,
            backend=call.backend,
        )
    )
    return out.squeeze(1)


FUSEDMM = _Fusedmm()
