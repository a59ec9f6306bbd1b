"""A (X W) or (A X) W, whichever costs less: where a linear step stands beside a linear aggregation.

Both orders give the same result within rounding. Each of PyG's layers has one of them written down; here the
forward of such a layer takes the other one where that aggregates fewer columns.
"""

from torch_geometric.nn import GCNConv, GraphConv, SAGEConv, SGConv, TAGConv

from onehop.integrations.pyg.associations import gcn, hops, rooted
from onehop.integrations.pyg.associations.order import switch
from onehop.integrations.rows import Row

__all__ = ["rows", "switch"]


def rows() -> list[Row]:
    """The table's rows for the layers' forwards."""
    makers = {
        GCNConv: gcn.associating,
        SAGEConv: rooted.associating_sage,
        GraphConv: rooted.associating_graph_conv,
        SGConv: hops.associating_sg,
        TAGConv: hops.associating_tag,
    }
    return [Row(kind, "forward", make(kind.forward), kind.forward) for kind, make in makers.items()]
