"""Operators of DGL on edges: ``dgl.ops.gsddmm``, where it is a dot product, and the edge softmax."""

import math
from typing import Any

from dgl.base import ALL, is_all
from torch import Tensor

from onehop.backends import backend_for
from onehop.integrations import reports, tuning
from onehop.integrations.dgl import running
from onehop.integrations.dgl.graphs import Structure
from onehop.integrations.dgl.operands import LEFT_TO_DGL, structure_for, tensor_reason
from onehop.ops.edge_softmax import edge_softmax
from onehop.ops.sddmm import sddmm


def gsddmm(
    _: Any, g: Any, op: str, lhs_data: Any, rhs_data: Any, lhs_target: str = "u", rhs_target: str = "v"
) -> Tensor | None:
    """Runs DGL's ``gsddmm`` where it is a dot product of both ends; None where DGL's code has to run."""
    ends = _ends(g._graph, op, lhs_data, rhs_data, lhs_target, rhs_target)
    if isinstance(ends, str):
        reports.refuse(running.layer(), ends)
        return None
    structure, source, target = ends
    _record(structure, source, "dot product of the ends")
    return sddmm(structure.graph, target, source).unsqueeze(-1)


def _ends(
    index: Any, op: str, lhs: Any, rhs: Any, lhs_target: str, rhs_target: str
) -> tuple[Structure, Tensor, Tensor] | str:
    """The structure, and the features of sources and destinations; or why DGL's own code has to run."""
    if op in ("copy_lhs", "copy_rhs"):
        return "nodes' features are copied to the edges, for code that sees every edge"
    if op != "dot" or {lhs_target, rhs_target} != {"u", "v"}:
        return f"edges' features of {lhs_target}_{op}_{rhs_target} have no kernel of onehop's"
    structure = structure_for(index)
    if isinstance(structure, str):
        return structure
    source, target = (lhs, rhs) if lhs_target == "u" else (rhs, lhs)
    reason = tensor_reason("sources' features", source, structure.graph.num_src, structure) or tensor_reason(
        "destinations' features", target, structure.graph.num_dst, structure
    )
    if reason is not None:
        return reason
    if source.dtype is not target.dtype:
        return LEFT_TO_DGL
    if source.dim() not in (2, 3) or source.shape[1:] != target.shape[1:]:
        return "the features of the two ends differ in shape, or have heads of heads"
    return structure, source, target


def edge_softmax_internal(
    _: Any, gidx: Any, logits: Any, eids: Any = ALL, norm_by: str = "dst"
) -> Tensor | None:
    """Runs DGL's inner ``edge_softmax`` over each destination's edges; None where DGL's code has to run."""
    structure = _of_softmax(gidx, logits, eids, norm_by)
    if isinstance(structure, str):
        reports.refuse(running.layer(), structure)
        return None
    _record(structure, logits, "softmax over each destination's edges")
    scores = logits.reshape(structure.graph.num_edges, math.prod(logits.shape[1:]))
    return edge_softmax(structure.graph, scores).view(logits.shape)


def _of_softmax(index: Any, logits: Any, eids: Any, norm_by: str) -> Structure | str:
    if not is_all(eids):
        return "the softmax is over some of the edges"
    if norm_by != "dst":
        return "the softmax is over each source's edges"
    structure = structure_for(index)
    if isinstance(structure, str):
        return structure
    return tensor_reason("scores", logits, structure.graph.num_edges, structure) or structure


def _record(structure: Structure, x: Tensor, form: str) -> None:
    if reports.recording():
        backend = backend_for(x.device, x.dtype)
        plan = tuning.plan_text(backend, structure.graph, "sum", x.size(-1), x.dtype, x.device)
        reports.record(reports.Call(running.layer(), None, form, "each edge's", backend.name, plan))
