"""(X W) a or X (W a): the scores of a bipartite GATConv's destinations.

PyG multiplies the destinations' features by ``lin_dst``, and the product by ``att_dst``; it does not use the
product otherwise. Here ``att_dst`` is first multiplied by the weight of ``lin_dst``, which gives one column
for each head.
"""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GATConv

from onehop.integrations.pyg.associations.order import may_choose
from onehop.integrations.pyg.associations.product import product
from onehop.integrations.pyg.associations.steps import is_finite
from onehop.integrations.pyg.conditions import reduction_of
from onehop.integrations.pyg.layer import with_own_forward
from onehop.integrations.pyg.leave import are_features, is_plain, need
from onehop.integrations.rows import replaced


def of_target(layer: Any, x: Any) -> Tensor:
    """Return the scores of the destinations, [num_dst, H], without computing ``lin_dst`` of their features.

    Args:
        layer: A GATConv; its ``edge_updater`` gets the scores, and its ``propagate`` no destinations'
            features.
        x: The features of the sources and of the destinations.

    Raises:
        Leave: PyG's code has to run; no module was called.
    """
    lin, att, rows = layer.lin_dst, layer.att_dst, layer.heads * layer.out_channels
    need(lin is not None and lin is not layer.lin_src and layer.lin is None)
    need(type(x) is tuple and len(x) == 2 and is_plain(x[0]) and x[0].dim() == 2)
    record = with_own_forward(layer, GATConv, "message", "edge_update")
    need(record.rule is not None and reduction_of(layer) == ("sum", None) and layer.node_dim == 0)
    need(replaced(type(layer).edge_updater) is not None and "edge_updater" not in layer.__dict__)
    # A residual connection needs another product of the destinations' features.
    need(getattr(layer, "res", None) is None)
    need(may_choose(lin, x[1], False) and are_features(x[1], lin.weight, att))
    need(lin.weight.size(0) == rows and att.shape == (1, layer.heads, layer.out_channels))
    by_heads = lin.weight.unflatten(0, (layer.heads, layer.out_channels))
    scores = product(x[1], torch.bmm(att.transpose(0, 1), by_heads).squeeze(1), None)
    # If a feature is infinite, PyG's product may be NaN.
    need(is_finite(scores))
    return scores
