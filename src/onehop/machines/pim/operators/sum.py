"""Sums and means on the cores."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from onehop import native
from onehop.graph import Graph
from onehop.machines.common.operands import Operands
from onehop.machines.native import extension
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel
from onehop.machines.pim.counted import Cuts, GraphShapes
from onehop.machines.pim.memory import cut_rule
from onehop.machines.pim.numbers import NAMES, TORCH_TYPES, multiply_bits
from onehop.machines.pim.operators.operands import Prepared, finish, prepare
from onehop.machines.pim.operators.rows import Rows
from onehop.machines.pim.scheme import Cluster, layout
from onehop.plans.pim import PimPlan

# Codes of onehop::pim::Number in csrc/machines/pim_execute.hpp.
_CODES = {"int8": 0, "int16": 1, "int32": 2, "int64": 3, "float32": 4, "float64": 5}


@dataclass(frozen=True, slots=True)
class Sum(Rows):
    """Sums and means of the feature rows of each row's edges.

    Attributes:
        inputs: The operands as the caller gave them.
        prepared: The operands in the form that the machine gets.
    """

    inputs: Operands
    prepared: Prepared

    @staticmethod
    def refuse(config: PimConfig, dtype: torch.dtype, machine_dtype: str | None) -> str | None:
        """Return why a machine does not support sums of features of this dtype, or None if it does.

        Args:
            config: The machine.
            dtype: Dtype of the features.
            machine_dtype: Dtype of the features in the machine; None means the same dtype.
        """
        name = NAMES.get(dtype)
        if name is None:
            return f"has no {dtype}"
        if (machine_dtype or name) not in config.arithmetic:
            return f"has no {machine_dtype or name}: {config.name} computes {', '.join(config.arithmetic)}"
        return None

    @classmethod
    def of(cls, graph: Graph, inputs: Operands, plan: PimPlan, dtype: str) -> "Sum":
        """Return the sum operator for operands under a plan.

        Args:
            graph: The graph.
            inputs: The operands.
            plan: Gives the dtype of sums, and whether weights of one are multiplied.
            dtype: Dtype of the features in the machine.

        Raises:
            ArgumentError: The dtype does not suit the features, or sums could overflow.
        """
        prepared = prepare(graph, inputs, plan, dtype)
        weighted, bits = prepared.weight is not None or not plan.unit_weights, 1.0
        if weighted:
            ones = torch.ones(1, dtype=prepared.x.dtype, device="cpu")
            bits = multiply_bits(prepared.x, ones if prepared.weight is None else prepared.weight)
        return cls(Kernel(dtype, prepared.sums, weighted, bits), inputs.x.size(1), inputs, prepared)

    def execute(self, config: PimConfig, plan: PimPlan, shapes: GraphShapes) -> Tensor:
        """Return the result [num_dst, F]; see :class:`.base.Operator`."""
        return finish(shapes.graph, self.inputs, self.prepared, self._sums(config, plan, shapes))

    def _sums(self, config: PimConfig, plan: PimPlan, shapes: GraphShapes) -> Tensor:
        """Return the sums [num_dst, F]: each tasklet sums its own edges, then the host merges.

        Parts are processed in the order in which the host adds them up. Columns are independent, so threads
        divide them.
        """
        x, weight = self.prepared.x, self.prepared.weight
        out = torch.zeros(shapes.num_dst, x.size(1), dtype=TORCH_TYPES[self.kernel.sums], device="cpu")
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
        cuts = [shapes.cuts(number, plan.column_cut, cut_rule(plan, self.kernel, size)) for size in sizes]
        for part in range(number):
            chunks = _chunks(by_part[part // plan.block_rounds], sizes, extension.PIM_MOST_COLUMNS)
            first, last = int(parts.bounds[part]), int(parts.bounds[part + 1])
            if not len(chunks) or first == last:
                continue
            operands = extension.PimPart()
            operands.positions, operands.col = parts.positions[part].ctypes.data, col.data_ptr()
            operands.weight = 0 if ordered is None else ordered.data_ptr()
            operands.x, operands.x_stride = x[first:last].data_ptr(), x.stride(0)
            operands.columns = last - first
            operands.out, operands.out_stride = out.data_ptr(), out.stride(0)
            extension.pim_execute(
                _CODES[self.kernel.dtype],
                _CODES[self.kernel.sums],
                operands,
                [_cores(cut, part) for cut in cuts],
                chunks.ctypes.data,
                len(chunks),
                native.threads(),
            )
        return out


def _cores(cuts: Cuts, part: int) -> extension.PimCores:
    """Return the cores and tasklets of one part, in the form that the native code reads."""
    cores = extension.PimCores()
    cores.core_rows, cores.tasklets = cuts.core_rows[part].ctypes.data, cuts.tasklets[part].ctypes.data
    cores.cores, cores.threads = cuts.tasklets.shape[2:]
    return cores


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
