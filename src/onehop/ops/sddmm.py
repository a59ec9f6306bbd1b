"""Sampled dense-dense product: a dot product for every edge."""

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.ops import dots
from onehop.ops.checks import check_features, check_graph


def sddmm(graph: Graph, dst: Tensor, src: Tensor, *, backend: str | None = None) -> Tensor:
    """For every edge e = (j -> i): ``out[e] = dst[i] . src[j]``, for each head.

    Args:
        graph: The graph.
        dst: [num_dst, F] or [num_dst, H, F]. Differentiable.
        src: [num_src, F] or [num_src, H, F], on the same device. Differentiable.
        backend: Who runs it, by name; None means the best that can.

    Returns:
        [E] or [E, H], in the caller's edge order, of the promoted dtype; added up in float32 for 16 bits.

    Raises:
        ArgumentError: A shape, dtype or device does not fit.
        BackendError: No backend runs on such tensors.
    """
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
    out: Tensor = dots.SDDMM(dst, src, graph.number, graph.num_edges, False, False, backend or "")
    return out if heads else out.squeeze(1)
