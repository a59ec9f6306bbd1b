"""``dgl.ops.gspmm``, which ``update_all`` calls: messages are computed and reduced in one pass."""

import math
from dataclasses import dataclass
from typing import Any

import dgl
import torch
from torch import Tensor

from onehop import processor
from onehop.backends import backend_for
from onehop.integrations import memory, reports, tuning
from onehop.integrations.dgl import running
from onehop.integrations.dgl.graphs import Structure
from onehop.integrations.dgl.operands import LEFT_TO_DGL, structure_for, tensor_reason
from onehop.ops import aggregate
from onehop.ops.arg_extremum import MOST_EDGES, arg_extremum
from onehop.ops.library import needs_grad

# DGL's results for destinations without edges.
_OF_EMPTY = {"max": -math.inf, "min": math.inf}


def gspmm(_: Any, g: Any, op: str, reduce_op: str, lhs_data: Any, rhs_data: Any) -> Tensor | None:
    """Runs DGL's ``gspmm`` on onehop's kernels; None where DGL's code has to run."""
    task = _prepare(g._graph, op, reduce_op, lhs_data, rhs_data)
    out = task if isinstance(task, str) else task.run()
    if isinstance(out, str):
        reports.refuse(running.layer(), out)
        return None
    return out


@dataclass(slots=True)
class Reduction:
    """One reduction, ready to run.

    Attributes:
        structure: The edges.
        reduce: "sum", "mean", "max" or "min".
        x: [num_src, F], or [num_src, H, D].
        weight: [E], or [E, H]; None means 1.
        shape: The shape of a row of the result.
        winners: Whether the winning edges of a maximum or minimum are recorded, which skips NaN as DGL does.
        last: Whether the last of several tied edges gets the gradient of a maximum or minimum, or the first.
    """

    structure: Structure
    reduce: str
    x: Tensor
    weight: Tensor | None
    shape: tuple[int, ...]
    winners: bool
    last: bool

    def run(self) -> Tensor | str:
        """The reduced messages; or why DGL has to reduce them after all."""
        graph = self.structure.graph
        width = self.x.numel() // max(graph.num_src, 1)
        backward = torch.is_grad_enabled() and self.x.requires_grad
        memory.gained(self.x)
        if self.x.is_cpu:
            tuning.saw(graph, self.reduce, width, self.x.dtype, backward)
        if self.winners:
            out = arg_extremum(graph, self.x, self.weight, self.reduce, self.last)
        else:
            out = aggregate(graph, self.x, self.weight, self.reduce)
            fill = _OF_EMPTY.get(self.reduce)
            if fill is not None and graph.num_edges:
                # The sum is NaN where any entry is.
                if bool(out.sum().isnan()):
                    return "the features have NaN or both infinities, and DGL passes over NaN in max and min"
                if self.structure.has_empty:
                    out[self.structure.empty] = fill
        if reports.recording():
            reports.record(self._described(width))
        return out.reshape(graph.num_dst, *self.shape)

    def _described(self, width: int) -> reports.Call:
        form = "source" if self.weight is None else "source * weight"
        if self.weight is not None and self.weight.dim() == 2:
            form += " for each head"
        backend = backend_for(self.x.device, self.x.dtype)
        graph, x = self.structure.graph, self.x
        plan = tuning.plan_text(backend, graph, self.reduce, width, x.dtype, x.device)
        return reports.Call(running.layer(), None, form, self.reduce, backend.name, plan)


def _prepare(index: Any, op: str, reduce_op: str, lhs: Any, rhs: Any) -> Reduction | str:
    """The reduction, or why there is none."""
    if op not in ("copy_lhs", "mul", "div") or reduce_op not in ("sum", "mean", "max", "min"):
        return f"messages of {op} and {reduce_op} have no kernel of onehop's"
    structure = structure_for(index)
    if isinstance(structure, str):
        return structure
    graph = structure.graph
    reason = tensor_reason("nodes' features", lhs, graph.num_src, structure)
    if reason is not None:
        return reason
    weight = None
    x, shape = lhs, tuple(lhs.shape[1:])
    alike = True
    if op != "copy_lhs":
        reason = tensor_reason("edges' features", rhs, graph.num_edges, structure)
        if reason is not None:
            return reason
        if rhs.dtype is not lhs.dtype:
            return LEFT_TO_DGL
        found = _weighted(lhs, rhs)
        if found is None:
            return "the edges' features are neither one number an edge nor one an edge and head"
        x, weight, shape = found
        alike = math.prod(lhs.shape[1:]) == math.prod(rhs.shape[1:])
        if op == "div":
            weight = 1.0 / weight
    learns = needs_grad(x, weight)
    # On a device, checking for NaN would make the host wait.
    winners = reduce_op in _OF_EMPTY and (learns or (not x.is_cpu and graph.num_edges > 0))
    if winners:
        if graph.num_edges == 0:
            return "its graph has no edges, and the gradient of DGL's zeros is left to DGL"
        if graph.num_edges > MOST_EDGES:
            return f"its graph has more than the {MOST_EDGES} edges of which winners are kept in 32 bits"
        if not structure.visits_by_number(index):
            return "its graph stores the edges of a destination in another order than that of their numbers"
    if x.dim() != 3 or weight is None or weight.dim() != 2:
        x = x.reshape(graph.num_src, math.prod(shape))
    return Reduction(structure, reduce_op, x, weight, shape, winners, _last_wins(x, alike))


# DGL uses libxsmm's loop from this level of the processor on: AVX-512 with its F and CD instructions.
_HAS_AVX512 = {"avx512f", "avx512cd"} <= set(processor.features().split())


def _last_wins(x: Tensor, alike: bool) -> bool:
    """Return whether DGL gives the gradient to the last of several tied edges, by number, or to the first.

    DGL's own loop takes a larger message only. libxsmm's loop, which runs for float32 where the features of
    nodes and edges have one shape and the processor has AVX-512, also takes an equal one. Both visit edges by
    number. On a device there is one loop, which takes a larger message only.
    """
    if not x.is_cpu:
        return False
    return x.dtype is torch.float32 and alike and _HAS_AVX512 and bool(dgl.is_libxsmm_enabled())


def _weighted(lhs: Tensor, rhs: Tensor) -> tuple[Tensor, Tensor, tuple[int, ...]] | None:
    """Features and weights as onehop takes them, and the shape of a row of the result.

    As in DGL, the tensor with fewer dimensions gets dimensions of 1 behind the first.
    """
    dims = max(lhs.dim(), rhs.dim())
    shape = (1,) * (dims - lhs.dim()) + tuple(lhs.shape[1:])
    of_edge = (1,) * (dims - rhs.dim()) + tuple(rhs.shape[1:])
    if math.prod(of_edge) == 1:
        return lhs, rhs.reshape(rhs.size(0)), shape
    if of_edge[-1] == 1 and of_edge[:-1] == shape[:-1]:
        heads = math.prod(of_edge)
        return lhs.reshape(lhs.size(0), heads, shape[-1]), rhs.reshape(rhs.size(0), heads), shape
    return None
