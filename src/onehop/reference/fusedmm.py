"""What ``onehop.fusedmm`` computes."""

from torch import Tensor


def fusedmm(edge_index: Tensor, dst: Tensor, src: Tensor, kernel: str) -> Tensor:
    """One row an edge, weighed by its ends, summed over each destination.

    Args:
        edge_index: [2, E], sources above destinations.
        dst: [num_dst, F].
        src: [num_src, F].
        kernel: "sigmoid": ``sigmoid(dst . src) * src``; "tdist": ``(dst - src) / (1 + |dst - src|^2)``.

    Returns:
        [num_dst, F].
    """
    source, target = edge_index[0].long(), edge_index[1].long()
    x, y = dst.index_select(0, target), src.index_select(0, source)
    if kernel == "sigmoid":
        message = (x * y).sum(1, keepdim=True).sigmoid() * y
    else:
        difference = x - y
        message = difference / (1 + difference.square().sum(1, keepdim=True))
    return dst.new_zeros(dst.shape).index_add(0, target, message)
