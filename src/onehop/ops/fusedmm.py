"""Dot products and their weighted sums in one call: what graph embeddings iterate."""

from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.ops.aggregate import aggregate
from onehop.ops.checks import check_features, check_graph
from onehop.ops.sddmm import sddmm

KERNELS = ("sigmoid", "tdist")


def fusedmm(graph: Graph, dst: Tensor, src: Tensor, kernel: str, *, backend: str | None = None) -> Tensor:
    """Weighs every edge by its ends, and sums over each destination's edges.

    - ``"sigmoid"``: ``out[i] = sum over j of sigmoid(dst[i] . src[j]) * src[j]``
    - ``"tdist"``: ``out[i] = sum over j of (dst[i] - src[j]) / (1 + |dst[i] - src[j]|^2)``

    The attractive forces of embeddings by a logistic model and by Student's t-distribution, as in M. Rahman,
    M. Sujon, A. Azad, "FusedMM: a unified SDDMM-SpMM kernel for graph embedding and graph neural networks",
    IPDPS 2021. There is one number an edge between the two halves, and nothing of edges times width, forward
    or backward.

    Args:
        graph: The graph.
        dst: [num_dst, F], float32, float64, bfloat16 or float16. Differentiable.
        src: [num_src, F]. Differentiable. The same tensor may be given twice.
        kernel: "sigmoid" or "tdist".
        backend: Who runs it, by name; None means the best that can.

    Returns:
        [num_dst, F]. 0 for destinations without edges.

    Raises:
        ArgumentError: A shape or dtype does not fit, or ``kernel`` is unknown.
        BackendError: No backend runs on such tensors.
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
    dots = sddmm(graph, dst, src, backend=backend)
    if kernel == "sigmoid":
        return aggregate(graph, src, dots, multiply="sigmoid", backend=backend)
    source, target = graph.edge_index().to(dst.device)
    squares = dst.square().sum(1).index_select(0, target) + src.square().sum(1).index_select(0, source)
    # The distance of equal vectors may come out a little below 0.
    weight = (1 + (squares - 2 * dots).clamp(min=0)).reciprocal()
    total = aggregate(graph, weight.new_ones(graph.num_src, 1), weight, backend=backend)
    return total * dst - aggregate(graph, src, weight, backend=backend)
