"""Naive ``onehop.fusedmm``."""

from torch import Tensor


def fusedmm(edge_index: Tensor, dst: Tensor, src: Tensor, kernel: str, scale: float = 1.0) -> Tensor:
    """A message for every edge, weighted by its ends, summed over each destination.

    Args:
        edge_index: [2, E], sources above destinations.
        dst: [num_dst, F].
        src: [num_src, F].
        kernel: "sigmoid": ``sigmoid(scale * dst . src) * src``; "tdist":
            ``(dst - src) / (1 + scale * |dst - src|^2)``; "dot": ``scale * (dst . src) * src``.
        scale: Factor in the formulas above.

    Returns:
        [num_dst, F].
    """
    source, target = edge_index[0].long(), edge_index[1].long()
    x, y = dst.index_select(0, target), src.index_select(0, source)
    if kernel == "tdist":
        difference = x - y
        message = difference / (1 + scale * difference.square().sum(1, keepdim=True))
    else:
        score = scale * (x * y).sum(1, keepdim=True)
        message = (score.sigmoid() if kernel == "sigmoid" else score) * y
    return dst.new_zeros(dst.shape).index_add(0, target, message)
