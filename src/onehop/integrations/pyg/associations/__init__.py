"""A (X W) or (A X) W, whichever costs less: where a linear step stands beside a linear aggregation.

Both orders give the same result within rounding. Each of PyG's layers has one of them written down; here the
forward of such a layer takes the other one where that aggregates fewer columns.
"""

import functools
from collections.abc import Callable
from typing import Any

from torch_geometric.nn import (
    FastRGCNConv,
    GCNConv,
    GraphConv,
    RGCNConv,
    SAGEConv,
    SGConv,
    TAGConv,
)

from onehop.integrations.pyg.associations import gcn, hops, relational, rooted
from onehop.integrations.rows import Row, replacing

__all__ = ["rows"]


def rows(
    gcn_norm: Callable[..., Any], gcn_traced: Callable[..., Any], rooted_traced: Callable[..., Any]
) -> list[Row]:
    """The table's rows for the layers' forwards.

    Args:
        gcn_norm: The normalisation that stands in for PyG's.
        gcn_traced: What GCNConv runs while a program is traced; None from it means PyG's own.
        rooted_traced: Likewise SAGEConv and GraphConv.
    """
    makers: dict[Any, Callable[..., Any]] = {
        GCNConv: functools.partial(gcn.associating, gcn_norm=gcn_norm, traced=gcn_traced),
        SAGEConv: functools.partial(rooted.associating_sage, traced=rooted_traced),
        GraphConv: functools.partial(rooted.associating_graph_conv, traced=rooted_traced),
        SGConv: hops.associating_sg,
        TAGConv: hops.associating_tag,
    }
    found = [Row(kind, "forward", make(kind.forward), kind.forward) for kind, make in makers.items()]
    return found + [replacing(kind, "forward", relational.forward) for kind in (RGCNConv, FastRGCNConv)]
