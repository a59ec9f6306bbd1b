"""RGCNConv and FastRGCNConv: one aggregation over the edges of all relations, then their products.

RGCNConv makes the edges of each relation anew at every call and multiplies all nodes by each relation's
matrix; FastRGCNConv gathers a matrix for every edge. Both compute the same sums: of each relation's mean (or
sum) over a destination's neighbours, times its matrix. Here the edges are ordered by their relations once,
and only those pairs of a relation and a destination are multiplied that have edges.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch_geometric
from torch import Tensor
from torch_geometric.nn import FastRGCNConv, RGCNConv

from onehop import thresholds
from onehop.errors import ArgumentError
from onehop.graph.identity import remembered
from onehop.graph.lending import readable
from onehop.integrations import memory, reports, session
from onehop.integrations.pyg.associations.order import is_finite
from onehop.integrations.pyg.associations.product import may_run_elsewhere
from onehop.integrations.pyg.edges.sizes import is_too_small
from onehop.integrations.pyg.layer import is_left_out, layer_reason, record_of, reduction_of
from onehop.integrations.pyg.leave import are_dense, are_features, are_numbers
from onehop.ops.aggregate import reduce_rows
from onehop.ops.contexts import context_reason, wraps
from onehop.ops.typed import typed_edges, typed_sum

_FORM = "sum over relations of (aggregate of sources) W"


def forward(
    theirs: Callable[..., Any], layer: Any, x: Any, edge_index: Any, edge_type: Any = None
) -> Tensor | None:
    """Computes ``forward`` of RGCNConv or FastRGCNConv; None if PyG's code has to run.

    Args:
        theirs: PyG's method.
        layer: The layer.
        x: Features of the nodes, or a pair of those of sources and destinations; None means one-hot vectors.
        edge_index: [2, E].
        edge_type: [E].
    """
    if context_reason() is not None or not session.now.settings.associate or not _is_plain(layer):
        return None
    reduce, reason = reduction_of(layer)
    if reason is not None or reduce not in ("sum", "mean"):
        return None
    operands = _operands(layer, x)
    if operands is None or not _are_edges(edge_index, edge_type):
        return None
    features, own, size = operands
    if is_too_small(edge_index, None, layer.weight.size(-1)) or edge_index.size(1) == 0:
        return None
    most = None
    if features is not None:
        # Rows of the matrices themselves are not made in groups: they exist anyway.
        most = max(thresholds.now.pairs_a_node * max(size), thresholds.now.block_edges)
    key = (layer.num_relations, size, most, features is None)

    try:
        edges = remembered(
            edge_index,
            edge_type,
            key=("typed edges", *key),
            make=lambda: typed_edges(readable(edge_index), edge_type, *key),
        )
    except ArgumentError:
        return None
    weight = layer.weight
    if layer.num_bases is not None:
        weight = (layer.comp @ weight.view(layer.num_bases, -1)).view(
            layer.num_relations, layer.in_channels_l, layer.out_channels
        )
    if features is None:
        (group,) = edges.groups
        made = reduce_rows(group.pairs, weight.reshape(-1, layer.out_channels), reduce=reduce)
        out = reduce_rows(group.ends, made, reduce="sum")
    else:
        if features.nbytes >= thresholds.now.policy_bytes:
            memory.gained(features)
        out = typed_sum(edges, features, weight, reduce, fastest=may_run_elsewhere(features))
        # FastRGCNConv multiplies first, where infinities would meet others.
        if isinstance(layer, FastRGCNConv) and not is_finite(out):
            return None
    if reports.recording():
        reports.record(reports.Call(layer, None, _FORM, reduce, "cpu", f"{layer.num_relations} relations"))
    if layer.root is not None:
        out = out + (layer.root if own is None else own @ layer.root)
    return out if layer.bias is None else out + layer.bias


def _is_plain(layer: Any) -> bool:
    """Return whether the layer is PyG's, as it is set up now."""
    kind = type(layer)
    theirs = FastRGCNConv if issubclass(kind, FastRGCNConv) else RGCNConv
    record = record_of(layer)
    return (
        record is not None
        and kind.message is theirs.message
        and kind.aggregate is theirs.aggregate
        and kind.update is theirs.update
        and not is_left_out(kind)
        and layer_reason(layer, fuses=theirs is RGCNConv) is None
        and layer.num_blocks is None
        and layer.flow == "source_to_target"
        and not (session.now.backend or session.now.machine)
        # With pyg-lib, RGCNConv takes the mean over all relations: that is PyG's to compute.
        and not torch_geometric.typing.WITH_SEGMM
        and are_features(layer.weight, dims=None)
        and not layer.weight.is_inference()
        and not wraps(*layer.parameters())
    )


def _operands(layer: Any, x: Any) -> tuple[Tensor | None, Tensor | None, tuple[int, int]] | None:
    """The sources' and the destinations' own features, and the numbers of both; None if PyG's code runs.

    Features of None are those of one-hot vectors: rows of the matrices themselves.
    """
    if x is None:
        nodes = layer.in_channels_l
        return None, None, (nodes, nodes)
    pair = x if type(x) is tuple else (x, x)
    dtype = layer.weight.dtype
    # RGCNConv adds to zeros of torch's default dtype.
    if len(pair) != 2 or torch.promote_types(dtype, torch.get_default_dtype()) is not dtype:
        return None
    if not are_dense(*pair, dtype=dtype, dims=2):
        return None
    source, own = pair
    if source.size(1) != layer.in_channels_l or (
        layer.root is not None and own.size(1) != layer.root.size(0)
    ):
        return None
    return source, own, (source.size(0), own.size(0))


def _are_edges(edge_index: Any, edge_type: Any) -> bool:
    """Return whether edges and their types are plain tensors, which can be recognised."""
    return (
        are_numbers(edge_index, edge_type)
        and edge_index.dim() == 2
        and edge_index.size(0) == 2
        and edge_type.shape == edge_index.shape[1:]
    )
