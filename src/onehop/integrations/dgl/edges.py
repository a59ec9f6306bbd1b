"""Operators of DGL on edges: ``dgl.ops.gsddmm``, where it is a dot product, and the edge softmax."""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from onehop.backends import backend_for
from onehop.integrations import reports, tuning
from onehop.integrations.dgl import running
from onehop.integrations.dgl.graphs import Structure
from onehop.integrations.dgl.operands import LEFT_TO_DGL, structure_for, tensor_reason
from onehop.integrations.rows import stand_in
from onehop.ops.edge_softmax import edge_softmax
from onehop.ops.sddmm import sddmm

Function = Callable[..., Any]


def fast_gsddmm(theirs: Function) -> Function:
    """DGL's ``gsddmm``, whose dot products between the two ends of an edge run on onehop's kernels."""
    ours = _gsddmm

    def gsddmm(g, op, lhs_data, rhs_data, lhs_target="u", rhs_target="v"):  # type: ignore[no-untyped-def]
        return ours(theirs, g, op, lhs_data, rhs_data, lhs_target, rhs_target)

    return stand_in(theirs, gsddmm)


def _gsddmm(theirs: Function, g: Any, op: str, lhs: Any, rhs: Any, lhs_target: str, rhs_target: str) -> Any:
    if not running.is_on():
        return theirs(g, op, lhs, rhs, lhs_target, rhs_target)
    ends = _ends(g._graph, op, lhs, rhs, lhs_target, rhs_target)
    if isinstance(ends, str):
        reports.refuse(running.layer(), ends)
        return theirs(g, op, lhs, rhs, lhs_target, rhs_target)
    structure, source, target = ends
    _tell(structure, source, "dot product of the ends")
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


def fast_edge_softmax(theirs: Function) -> Function:
    """DGL's inner ``edge_softmax``, over each destination's edges, on onehop's kernels."""
    ours = _edge_softmax
    parameters = theirs.__defaults__
    assert parameters is not None
    everything = parameters[0]

    def edge_softmax(gidx, logits, eids=everything, norm_by="dst"):  # type: ignore[no-untyped-def]
        return ours(theirs, everything, gidx, logits, eids, norm_by)

    return stand_in(theirs, edge_softmax)


def _edge_softmax(theirs: Function, everything: Any, index: Any, logits: Any, eids: Any, norm_by: str) -> Any:
    if not running.is_on():
        return theirs(index, logits, eids, norm_by)
    structure = _of_softmax(everything, index, logits, eids, norm_by)
    if isinstance(structure, str):
        reports.refuse(running.layer(), structure)
        return theirs(index, logits, eids, norm_by)
    _tell(structure, logits, "softmax over each destination's edges")
    scores = logits.reshape(structure.graph.num_edges, math.prod(logits.shape[1:]))
    return edge_softmax(structure.graph, scores).view(logits.shape)


def _of_softmax(everything: Any, index: Any, logits: Any, eids: Any, norm_by: str) -> Structure | str:
    if not (isinstance(eids, str) and eids == everything):
        return "the softmax is over some of the edges"
    if norm_by != "dst":
        return "the softmax is over each source's edges"
    structure = structure_for(index)
    if isinstance(structure, str):
        return structure
    return tensor_reason("scores", logits, structure.graph.num_edges, structure) or structure


def _tell(structure: Structure, x: Tensor, form: str) -> None:
    if reports.recording():
        backend = backend_for(x.device, x.dtype)
        plan = tuning.plan_text(backend, structure.graph, "sum", x.size(-1), x.dtype, x.device)
        reports.record(reports.Call(running.layer(), None, form, "each edge's", backend.name, plan))
