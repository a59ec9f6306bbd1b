"""The numbers of a run: each core's tasklets over their own edges, then the host's merge."""

from collections import defaultdict

import numpy as np
import torch
from torch import Tensor

from onehop import native
from onehop.machines.native import extension
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel
from onehop.machines.pim.counted import GraphShapes
from onehop.machines.pim.layout import Cluster, layout
from onehop.machines.pim.memory import cut_rule
from onehop.machines.pim.numbers import TORCH_TYPES
from onehop.plans.pim import PimPlan

# Numbers of onehop::pim::Number in csrc/machines/pim_execute.hpp.
_CODES = {"int8": 0, "int16": 1, "int32": 2, "int64": 3, "float32": 4, "float64": 5}


def execute(
    config: PimConfig, plan: PimPlan, shapes: GraphShapes, kernel: Kernel, x: Tensor, weight: Tensor | None
) -> Tensor:
    """Computes the machine's result under a plan.

    Parts follow one another, as the host adds them up. Columns are independent, so threads share them.

    Args:
        config: The machine.
        plan: The plan.
        shapes: The graph's counts.
        kernel: Fixes the types of features and sums.
        x: [num_src, F], contiguous, of the kernel's dtype.
        weight: [E], of the same dtype, in the graph's order; None means ones.

    Returns:
        [num_dst, F], of the type of the sums.
    """
    out = torch.zeros(shapes.num_dst, x.size(1), dtype=TORCH_TYPES[kernel.sums], device="cpu")
    if not shapes.num_edges or not x.size(1):
        return out
    number = plan.sp * plan.block_rounds
    parts = shapes.parts(number, plan.column_cut)
    col, origin = shapes.columns(number, plan.column_cut, weight is not None)
    ordered = None if weight is None or origin is None else weight[origin]
    by_part: dict[int, list[Cluster]] = defaultdict(list)
    for cluster in layout(config, plan, x.size(1)).clusters:
        if cluster.width:
            by_part[cluster.part].append(cluster)
    sizes = sorted({cluster.cores for clusters in by_part.values() for cluster in clusters})
    cuts = [shapes.cuts(number, plan.column_cut, cut_rule(plan, kernel, size)) for size in sizes]
    for part in range(number):
        chunks = _chunks(by_part[part // plan.block_rounds], sizes, extension.PIM_MOST_COLUMNS)
        first, last = int(parts.bounds[part]), int(parts.bounds[part + 1])
        if not len(chunks) or first == last:
            continue
        extension.pim_execute(
            _CODES[kernel.dtype],
            _CODES[kernel.sums],
            parts.positions[part].ctypes.data,
            col.data_ptr(),
            0 if ordered is None else ordered.data_ptr(),
            x[first:last].data_ptr(),
            last - first,
            x.stride(0),
            out.data_ptr(),
            out.stride(0),
            [cut.core_rows[part].ctypes.data for cut in cuts],
            [cut.tasklets[part].ctypes.data for cut in cuts],
            sizes,
            plan.tasklets,
            chunks.ctypes.data,
            len(chunks),
            native.threads(),
        )
    return out


def _chunks(clusters: list[Cluster], sizes: list[int], most: int) -> np.ndarray:
    """Return [n, 3]: column ranges and the cut of each; neighbours with the same cut are joined."""
    joined: list[list[int]] = []
    for cluster in sorted(clusters, key=lambda each: each.begin):
        cut = sizes.index(cluster.cores)
        if joined and joined[-1][2] == cut and joined[-1][1] == cluster.begin:
            joined[-1][1] = cluster.end
        else:
            joined.append([cluster.begin, cluster.end, cut])
    chunks = [(at, min(at + most, end), cut) for begin, end, cut in joined for at in range(begin, end, most)]
    return np.array(chunks, dtype=np.int64).reshape(-1, 3)
