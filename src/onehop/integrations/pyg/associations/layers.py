"""The layers whose forward is replaced, and what replaces it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import FastRGCNConv, GCNConv, GraphConv, RGCNConv, SAGEConv, SGConv, TAGConv

from onehop.integrations.pyg.associations import hops, order, program, relational
from onehop.integrations.rows import Function, Row, replacing

Run = Callable[..., Tensor | None]


def rows(gcn_norm: Function | None) -> list[Row]:
    """The patch table's rows of the layers' forwards.

    Args:
        gcn_norm: The patch's own normalisation; None where another library has replaced PyG's.
    """
    return [
        replacing(GCNConv, "forward", partial(order.gcn, gcn_norm), partial(program.gcn, gcn_norm)),
        *(
            replacing(kind, "forward", partial(body, order.rooted), partial(body, program.rooted))
            for kind, body in ((SAGEConv, _sage), (GraphConv, _graph_conv))
        ),
        replacing(SGConv, "forward", hops.sg),
        replacing(TAGConv, "forward", hops.tag),
        *(replacing(kind, "forward", relational.forward) for kind in (RGCNConv, FastRGCNConv)),
    ]


def _sage(
    rooted: Run, theirs: Function, layer: Any, x: Any, edge_index: Any, size: Any = None
) -> Tensor | None:
    """Computes SAGEConv's ``forward`` by one of the two ``rooted``; None if PyG's code has to run."""
    if layer.project or type(layer).message is not SAGEConv.message:
        return None
    out = rooted(layer, "lin_l", "lin_r" if layer.root_weight else "", x, edge_index, size, {})
    return F.normalize(out, p=2.0, dim=-1) if out is not None and layer.normalize else out


def _graph_conv(
    rooted: Run,
    theirs: Function,
    layer: Any,
    x: Any,
    edge_index: Any,
    edge_weight: Any = None,
    size: Any = None,
) -> Tensor | None:
    """Computes GraphConv's ``forward`` by one of the two ``rooted``; None if PyG's code has to run."""
    if type(layer).message is not GraphConv.message:
        return None
    return rooted(layer, "lin_rel", "lin_root", x, edge_index, size, {"edge_weight": edge_weight})
