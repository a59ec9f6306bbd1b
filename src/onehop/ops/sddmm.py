"""The sampled dense-dense product, a dot product for every edge: ``onehop::sddmm``."""

from typing import Any, overload

import torch
from torch import Tensor

from onehop.calls import Aggregate, Sddmm, SddmmGradients, accumulator
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.ops.checks import check_features, check_graph
from onehop.ops.held_edges import with_edges
from onehop.ops.library import Context, Operator, run
from onehop.ops.scipy_matrices import Array, SciPyMatrix, is_scipy_matrix, of_ends


@overload
def sddmm(graph: Graph, dst: Tensor, src: Tensor, *, backend: str | None = None) -> Tensor: ...
@overload
def sddmm(graph: SciPyMatrix, dst: Array, src: Array, *, backend: str | None = None) -> Array: ...
def sddmm(graph: Graph | SciPyMatrix, dst: Any, src: Any, *, backend: str | None = None) -> Tensor | Array:
    """Compute ``out[e] = dst[i] . src[j]`` for every edge e = (j -> i) and each head.

    Args:
        graph: The graph; or a sparse matrix of SciPy, [num_dst, num_src], whose entries are edges from
            columns to rows. Then ``dst`` and ``src`` may be NumPy arrays, and so is the result.
        dst: [num_dst, F] or [num_dst, H, F]. Differentiable.
        src: [num_src, F] or [num_src, H, F], on the same device. Differentiable.
        backend: Name of the backend; None means the best available one.

    Returns:
        [E] or [E, H], in the caller's edge order, of the promoted dtype; 16-bit products are added up in
        float32.

    Raises:
        ArgumentError: A shape, dtype or device does not fit.
        BackendError: No backend runs on such tensors.

    Examples:
        >>> import onehop, torch
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]))  # 0->1, 0->2, 1->2
        >>> x = torch.tensor([[1.0, 0.0], [2.0, 1.0], [1.0, 1.0]])
        >>> onehop.sddmm(graph, x, x)  # the last: row 2 times row 1, 1 * 2 + 1 * 1
        tensor([2., 1., 3.])
    """
    if is_scipy_matrix(graph):
        return of_ends(sddmm, graph, dst, src, backend=backend)  # type: ignore[no-any-return]
    check_graph(graph)
    check_features("dst", dst, graph.num_dst, "destinations")
    check_features("src", src, graph.num_src, "sources")
    if dst.shape[1:] != src.shape[1:] or dst.dim() > 3:
        raise ArgumentError(
            f"dst, src: expected [num_dst, F] and [num_src, F], or both with heads [.., H, F], "
            f"got {list(dst.shape)} and {list(src.shape)}."
        )
    if dst.device != src.device:
        raise ArgumentError(f"dst, src: expected one device, got {dst.device} and {src.device}.")
    if dst.dtype != src.dtype:
        dtype = torch.promote_types(dst.dtype, src.dtype)
        dst, src = dst.to(dtype), src.to(dtype)
    heads = dst.dim() == 3
    if not heads:
        dst, src = dst.unsqueeze(1), src.unsqueeze(1)
    call = Sddmm(dst=dst, src=src, graph=graph.number, edges=graph.num_edges, backend=backend or "")
    out: Tensor = SDDMM(call, graph)
    return out if heads else out.squeeze(1)


class _Sddmm(Operator[Sddmm]):
    call = Sddmm
    gradients_of = SddmmGradients

    def fake(self, call: Sddmm) -> Tensor:
        dtype = accumulator(call.src.dtype) if call.widen else call.src.dtype
        return call.src.new_empty((call.edges, call.src.size(1)), dtype=dtype)

    def padded(self, call: Sddmm, results: Any) -> Any:
        return with_edges(results, call.edges)

    def saved(self, call: Sddmm, results: Any, needs: tuple[str, ...]) -> tuple[Sddmm, tuple[Tensor, ...]]:
        # The gradient of each end is a sum of the other end's rows.
        call = call if "src" in needs else call._replace(dst=None)  # type: ignore[arg-type]
        return call if "dst" in needs else call._replace(src=None), ()  # type: ignore[arg-type]

    def gradients(self, context: Context[Sddmm], *grads: Tensor | None) -> SddmmGradients:
        call, grad = context.call, grads[0]
        assert grad is not None
        gradients = {}
        for name, other, transposed in (("dst", call.src, False), ("src", call.dst, True)):
            if name in context.needs:
                gradients[name] = _weighted_sum(call, other, grad, context.shapes[name], transposed)
        return SddmmGradients(**gradients)


def _weighted_sum(call: Sddmm, x: Tensor, weight: Tensor, shape: torch.Size, transposed: bool) -> Tensor:
    """Return the sum of the other end's rows, each times its edge's gradient, in this shape, [N, H, F]."""
    if not shape[1]:
        return x.new_zeros(shape)
    summed: Tensor = run(
        Aggregate(
            x=x.flatten(1),
            weight=weight.to(accumulator(x.dtype)),
            graph=call.graph,
            rows=shape[0],
            transposed=transposed,
            mean=call.mean,
            widen=True,
            backend=call.backend,
        )
    )
    return summed.view(shape)


SDDMM = _Sddmm()
