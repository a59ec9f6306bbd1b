"""Naive ``onehop.sddmm``."""

from torch import Tensor


def sddmm(edge_index: Tensor, dst: Tensor, src: Tensor) -> Tensor:
    """A dot product for every edge.

    Args:
        edge_index: [2, E], sources above destinations.
        dst: [num_dst, F] or [num_dst, H, F].
        src: [num_src, F] or [num_src, H, F].

    Returns:
        [E] or [E, H].
    """
    return (dst.index_select(0, edge_index[1].long()) * src.index_select(0, edge_index[0].long())).sum(-1)
