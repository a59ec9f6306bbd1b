"""The machine's result, computed through its mapping: bundle by bundle, slice by slice, pod by pod."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onehop import native
from onehop.errors import ArgumentError
from onehop.machines.native import extension
from onehop.machines.ndp.counts import RankWorkload
from onehop.machines.ndp.mapping import Pods


def aggregate(
    workload: RankWorkload,
    pods: Pods,
    x: Tensor,
    weight: Tensor | None = None,
    rows: NDArray[np.int64] | None = None,
    columns: tuple[int, int] | None = None,
    width: int | None = None,
) -> Tensor:
    """Return the sum over every target's edges, added in the order of the ranks and the host.

    Args:
        workload: The graph on its ranks.
        pods: The mapping.
        x: [num_src, F], float32.
        weight: [E], float32, in the caller's edge order; None means 1.
        rows: [K], the targets to compute; None means all.
        columns: First and last + 1 of the columns of the feature vectors that ``x`` has; None means all
            columns.
        width: Columns of the feature vectors from which slices are cut; None means F.

    Returns:
        [num_dst or K, F], float32.

    Raises:
        ArgumentError: A shape or dtype does not fit.
    """
    graph = workload.graph
    if x.dim() != 2 or x.size(0) != graph.num_src or x.dtype != torch.float32:
        raise ArgumentError(
            f"x: expected float32 of shape [{graph.num_src}, F], got {x.dtype} of shape {list(x.shape)}."
        )
    x = x.contiguous()
    if weight is not None:
        weight = weight.float()
        weight = (weight if graph.perm is None else weight[graph.perm.long()]).contiguous()
    count = graph.num_dst if rows is None else len(rows)
    out = torch.empty(count, x.size(1), device="cpu")
    if rows is not None:
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        if len(rows) and (rows.min() < 0 or rows.max() >= graph.num_dst):
            raise ArgumentError(f"rows: expected destinations below {graph.num_dst}.")
    first, last = (0, x.size(1)) if columns is None else columns
    slices = pods.slices(x.size(1) if width is None else width).clip(first, last) - first
    args = extension.NdpAggregate()
    args.pod, args.slice = pods.size, slices.ctypes.data
    args.row_list, args.listed = 0 if rows is None else rows.ctypes.data, count
    args.x, args.x_stride = native.address(x), x.stride(0)
    args.weight = 0 if weight is None else native.address(weight)
    args.out, args.out_stride = out.data_ptr(), out.stride(0)
    extension.ndp_aggregate(workload.native(), args, native.threads())
    return out
