"""DGL's operators on edges: ``gspmm``, ``gsddmm`` where it is a dot product, and the edge softmax.

``update_all`` calls ``gspmm``: messages are computed and reduced in one pass.
"""

import math
from typing import Any

import dgl
import torch
from dgl.base import ALL, is_all
from torch import Tensor

from onehop import processor
from onehop.integrations import tuning
from onehop.integrations.dgl.graphs import Structure
from onehop.integrations.dgl.operands import check_tensor, need, record, structure_for
from onehop.ops import aggregate
from onehop.ops.arg_extremum import MOST_EDGES, arg_extremum
from onehop.ops.edge_softmax import edge_softmax
from onehop.ops.library import needs_grad
from onehop.ops.sddmm import sddmm

# DGL's results for destinations without edges.
_OF_EMPTY = {"max": -math.inf, "min": math.inf}


def gspmm(_: Any, g: Any, op: str, reduce_op: Any, lhs_data: Any, rhs_data: Any) -> Tensor:
    """Runs DGL's ``gspmm`` on onehop's kernels.

    Raises:
        Leave: DGL's code has to run.
    """
    has_kernel = op in ("copy_lhs", "mul", "div") and reduce_op in ("sum", "mean", "max", "min")
    need(has_kernel, f"messages of {op} and {reduce_op} have no kernel of onehop's")
    structure = structure_for(g._graph)
    graph = structure.graph
    check_tensor("nodes' features", lhs_data, graph.num_src, structure)
    # x is [N, F] or [N, H, D], weight is [E] or [E, H], and shape is a row of the result.
    x, weight, shape = lhs_data, None, tuple(lhs_data.shape[1:])
    alike, form = True, "source"
    if op != "copy_lhs":
        check_tensor("edges' features", rhs_data, graph.num_edges, structure)
        need(rhs_data.dtype is lhs_data.dtype)
        alike = math.prod(lhs_data.shape[1:]) == math.prod(rhs_data.shape[1:])
        # For maxima and on GPUs, onehop would run many weights head by head; DGL does not, so they are left
        # to DGL.
        by_columns = lhs_data.is_cpu and reduce_op in ("sum", "mean")
        x, weight, shape = _weighted(lhs_data, rhs_data, by_columns)
        if op == "div":
            weight = 1.0 / weight
    # On a GPU, checking for NaN would make the host wait. The operator that finds winners skips NaN, as DGL
    # does.
    winners = reduce_op in _OF_EMPTY and (needs_grad(x, weight) or (not x.is_cpu and graph.num_edges > 0))
    if winners:
        _check_winners(structure, g._graph)
    if weight is not None:
        of = "" if weight.dim() == 1 else " for each column" if x.size(-1) == 1 else " for each head"
        form = f"source * weight{of}"
    if x.dim() != 3 or weight is None or weight.dim() != 2:
        x = x.reshape(graph.num_src, math.prod(shape))
    width = x.numel() // max(graph.num_src, 1)
    if x.is_cpu:
        tuning.saw(graph, reduce_op, width, x.dtype, torch.is_grad_enabled() and x.requires_grad)
    if winners:
        out = arg_extremum(graph, x, weight, reduce_op, _last_wins(x, alike))[0]
    else:
        out = aggregate(graph, x, weight, reduce_op)
        fill = _OF_EMPTY.get(reduce_op)
        if fill is not None and graph.num_edges:
            # The sum is NaN if any entry is NaN.
            need(
                not bool(out.sum().isnan()),
                "the features have NaN or both infinities, and DGL passes over NaN in max and min",
            )
            if structure.has_empty:
                out[structure.empty] = fill
    record(structure, x, form, reduce_op, reduce_op, width)
    return out.reshape(graph.num_dst, *shape)


def _weighted(lhs: Tensor, rhs: Tensor, by_columns: bool) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Return features and weights in onehop's layout, and the shape of a row of the result.

    As in DGL, the tensor with fewer dimensions gets dimensions of size 1 after the first. ``by_columns``
    allows a weight for each column.
    """
    dims = max(lhs.dim(), rhs.dim())
    shape = (1,) * (dims - lhs.dim()) + tuple(lhs.shape[1:])
    of_edge = (1,) * (dims - rhs.dim()) + tuple(rhs.shape[1:])
    if math.prod(of_edge) == 1:
        return lhs, rhs.reshape(rhs.size(0)), shape
    if by_columns and of_edge == shape:
        columns = math.prod(shape)
        return lhs.reshape(lhs.size(0), columns, 1), rhs.reshape(rhs.size(0), columns), shape
    need(
        of_edge[-1] == 1 and of_edge[:-1] == shape[:-1],
        "the edges' features are neither one number an edge nor one an edge and head",
    )
    heads = math.prod(of_edge)
    return lhs.reshape(lhs.size(0), heads, shape[-1]), rhs.reshape(rhs.size(0), heads), shape


def _check_winners(structure: Structure, index: Any) -> None:
    """Raises :class:`Leave` if another edge than in DGL would win a maximum or minimum."""
    edges = structure.graph.num_edges
    need(edges, "its graph has no edges, and the gradient of DGL's zeros is left to DGL")
    need(
        edges <= MOST_EDGES,
        f"its graph has more than the {MOST_EDGES} edges of which winners are kept in 32 bits",
    )
    need(
        structure.visits_by_number(index),
        "its graph stores the edges of a destination in another order than that of their numbers",
    )


# DGL uses libxsmm's loop on processors with AVX-512 (its F and CD instructions).
_HAS_AVX512 = {"avx512f", "avx512cd"} <= set(processor.features().split())


def _last_wins(x: Tensor, alike: bool) -> bool:
    """Return whether DGL gives the gradient to the last of several tied edges, by number, or to the first.

    DGL's own loop replaces the current maximum only by a larger message. libxsmm's loop also replaces it by
    an equal one; it runs for float32 if the features of nodes and edges have the same shape and the processor
    has AVX-512. Both visit edges by number. On a GPU there is one loop, which takes only larger messages.
    """
    if not x.is_cpu:
        return False
    return x.dtype is torch.float32 and alike and _HAS_AVX512 and bool(dgl.is_libxsmm_enabled())


def gsddmm(
    _: Any, g: Any, op: str, lhs_data: Any, rhs_data: Any, lhs_target: str = "u", rhs_target: str = "v"
) -> Tensor:
    """Runs DGL's ``gsddmm`` if it is a dot product of both ends.

    Raises:
        Leave: DGL's code has to run.
    """
    copies = op in ("copy_lhs", "copy_rhs")
    need(not copies, "nodes' features are copied to the edges, for code that sees every edge")
    need(
        op == "dot" and {lhs_target, rhs_target} == {"u", "v"},
        f"edges' features of {lhs_target}_{op}_{rhs_target} have no kernel of onehop's",
    )
    structure = structure_for(g._graph)
    source, target = (lhs_data, rhs_data) if lhs_target == "u" else (rhs_data, lhs_data)
    check_tensor("sources' features", source, structure.graph.num_src, structure)
    check_tensor("destinations' features", target, structure.graph.num_dst, structure)
    need(source.dtype is target.dtype)
    need(
        source.dim() in (2, 3) and source.shape[1:] == target.shape[1:],
        "the features of the two ends differ in shape, or have heads of heads",
    )
    _record_of_edges(structure, source, "dot product of the ends")
    products: Tensor = sddmm(structure.graph, target, source)
    return products.unsqueeze(-1)


def edge_softmax_internal(_: Any, gidx: Any, logits: Any, eids: Any = ALL, norm_by: str = "dst") -> Tensor:
    """Runs DGL's inner ``edge_softmax`` over each destination's edges.

    Raises:
        Leave: DGL's code has to run.
    """
    need(is_all(eids), "the softmax is over some of the edges")
    need(norm_by == "dst", "the softmax is over each source's edges")
    structure = structure_for(gidx)
    check_tensor("scores", logits, structure.graph.num_edges, structure)
    _record_of_edges(structure, logits, "softmax over each destination's edges")
    scores = logits.reshape(structure.graph.num_edges, math.prod(logits.shape[1:]))
    return edge_softmax(structure.graph, scores).view(logits.shape)


def _record_of_edges(structure: Structure, x: Tensor, form: str) -> None:
    record(structure, x, form, "each edge's", "sum", x.size(-1))
