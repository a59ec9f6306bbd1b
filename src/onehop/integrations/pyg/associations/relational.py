"""RGCNConv and FastRGCNConv: one aggregation over the edges of all relations, then their products.

In PyG, RGCNConv selects the edges of each relation in every call and multiplies all nodes by each relation's
matrix; FastRGCNConv gathers a matrix for every edge. Both compute the sum over relations of the mean (or sum)
of a destination's neighbours, times the relation's matrix. Here the edges are ordered by relation once, and
only pairs of a relation and a destination that have edges are multiplied.
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
from onehop.integrations import reports, session
from onehop.integrations.pyg.associations.product import may_run_elsewhere
from onehop.integrations.pyg.associations.steps import LINEAR, is_finite
from onehop.integrations.pyg.conditions import reduction_of
from onehop.integrations.pyg.edges.sizes import are_tiny, is_too_small
from onehop.integrations.pyg.layer import with_own_forward
from onehop.integrations.pyg.leave import (
    OUT_OF_RANGE,
    TOO_SMALL,
    Leave,
    are_dense,
    are_features,
    are_numbers,
    need,
)
from onehop.ops.aggregate import reduce_rows
from onehop.ops.contexts import wraps
from onehop.ops.typed import TypeGroup, typed_edges, typed_sum

_FORM = "sum over relations of (aggregate of sources) W"
_FUNCTIONS = ("message", "aggregate", "update")


def forward(
    theirs: Callable[..., Any], layer: Any, x: Any, edge_index: Any, edge_type: Any = None
) -> Tensor | None:
    """Computes ``forward`` of RGCNConv or FastRGCNConv; None if there are so few edges that PyG is as fast.

    Args:
        theirs: PyG's method.
        layer: The layer.
        x: Features of the nodes, or a pair for sources and destinations; None means one-hot vectors.
        edge_index: [2, E].
        edge_type: [E].

    Raises:
        Leave: PyG's code has to run.
    """
    if are_tiny(edge_index):
        return None
    fast = isinstance(layer, FastRGCNConv)
    with_own_forward(layer, FastRGCNConv if fast else RGCNConv, *_FUNCTIONS, fuses=not fast)
    reduce = _reduction(layer)
    features, own, size = _operands(layer, x)
    groups = _groups(layer, edge_index, edge_type, size, features is None)
    weight = layer.weight
    if layer.num_bases is not None:
        weight = (layer.comp @ weight.view(layer.num_bases, -1)).view(
            layer.num_relations, layer.in_channels_l, layer.out_channels
        )
    if features is None:
        (group,) = groups
        of_pairs = reduce_rows(group.pairs, weight.reshape(-1, layer.out_channels), reduce=reduce)
        out = reduce_rows(group.ends, of_pairs, reduce="sum")
    else:
        out = typed_sum(groups, features, weight, reduce, fastest=may_run_elsewhere(features))
        # FastRGCNConv multiplies first, so infinite values would give other results.
        need(not fast or is_finite(out))
    if reports.recording():
        reports.record(reports.Call(layer, None, _FORM, reduce, "cpu", f"{layer.num_relations} relations"))
    if layer.root is not None:
        out = out + (layer.root if own is None else own @ layer.root)
    return out if layer.bias is None else out + layer.bias


def _reduction(layer: Any) -> str:
    """Return the reduction of messages; raise :class:`Leave` if this layer instance has no fast path."""
    reduce, _ = reduction_of(layer)
    need(session.now.settings.associate and reduce in LINEAR and layer.num_blocks is None)
    # With pyg-lib, PyG's RGCNConv takes the mean over all relations, which is not done here.
    need(not torch_geometric.typing.WITH_SEGMM)
    need(are_features(layer.weight, dims=None) and not layer.weight.is_inference())
    need(not wraps(*layer.parameters()))
    return reduce


def _operands(layer: Any, x: Any) -> tuple[Tensor | None, Tensor | None, tuple[int, int]]:
    """Return the sources' features, the destinations' own features, and the numbers of both nodes.

    Features of None represent one-hot vectors, whose products are rows of the matrices.
    """
    if x is None:
        nodes = layer.in_channels_l
        return None, None, (nodes, nodes)
    pair, dtype = x if type(x) is tuple else (x, x), layer.weight.dtype
    need(len(pair) == 2 and are_dense(*pair, dtype=dtype, dims=2))
    # RGCNConv adds to a zero tensor of torch's default dtype.
    need(torch.promote_types(dtype, torch.get_default_dtype()) is dtype)
    source, own = pair
    need(source.size(1) == layer.in_channels_l)
    need(layer.root is None or own.size(1) == layer.root.size(0))
    return source, own, (source.size(0), own.size(0))


def _groups(
    layer: Any, edge_index: Any, edge_type: Any, size: tuple[int, int], one_hot: bool
) -> tuple[TypeGroup, ...]:
    """Return the edges ordered by type, cached or new, in groups that have no more pairs than nodes."""
    need(are_numbers(edge_index, edge_type) and edge_index.dim() == 2 and edge_index.size(0) == 2)
    need(edge_type.shape == edge_index.shape[1:] and edge_index.size(1) > 0)
    need(not is_too_small(edge_index, None, layer.weight.size(-1)), TOO_SMALL)
    # For one-hot features, no groups are needed, because the rows are rows of the existing matrices.
    most = None if one_hot else max(*size, thresholds.now.block_edges)
    key = (layer.num_relations, size, most, one_hot)
    try:
        return remembered(
            edge_index,
            edge_type,
            key=("typed edges", *key),
            make=lambda: typed_edges(readable(edge_index), edge_type, *key),
        )
    except ArgumentError:
        raise Leave(OUT_OF_RANGE) from None
