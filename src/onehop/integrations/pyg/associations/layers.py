"""The layers whose ``forward`` is replaced, and the replacements."""

from functools import partial

from torch_geometric.nn import FastRGCNConv, GCNConv, GraphConv, RGCNConv, SAGEConv, SGConv, TAGConv

from onehop.integrations.pyg.associations import hops, order, program, relational
from onehop.integrations.rows import Function, Row, replacing


def rows(gcn_norm: Function | None) -> list[Row]:
    """Return the rows that replace the layers' ``forward`` methods.

    Args:
        gcn_norm: The patch's own normalisation; None if another library has replaced PyG's.
    """
    return [
        replacing(GCNConv, "forward", partial(order.gcn, gcn_norm), partial(program.gcn, gcn_norm)),
        *(
            replacing(kind, "forward", partial(body, order.rooted), partial(body, program.rooted))
            for kind, body in ((SAGEConv, order.sage), (GraphConv, order.graph_conv))
        ),
        replacing(SGConv, "forward", hops.sg),
        replacing(TAGConv, "forward", hops.tag),
        *(replacing(kind, "forward", relational.forward) for kind in (RGCNConv, FastRGCNConv)),
    ]
