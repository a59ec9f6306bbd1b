"""Models of two layers on a small graph, which machines run."""

import torch
from torch import Tensor
from torch.nn import Linear, Module, ModuleList
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv, TransformerConv

EDGES = torch.randint(0, 40, (2, 300), generator=torch.Generator().manual_seed(0))


class Model(Module):
    """Layers with an activation behind each."""

    def __init__(self, *layers: Module) -> None:
        super().__init__()
        self.layers = ModuleList(layers)

    def forward(self, x: Tensor, edges: Tensor = EDGES) -> Tensor:
        for layer in self.layers:
            x = layer(x, edges).relu()
        return x


# Six features, three results.
SUMS = {
    "GCN": lambda: Model(GCNConv(6, 8), GCNConv(8, 3)),
    "SAGE mean": lambda: Model(SAGEConv(6, 8), SAGEConv(8, 3)),
    "SAGE sum": lambda: Model(SAGEConv(6, 8, aggr="sum"), SAGEConv(8, 3, aggr="sum")),
    "GIN": lambda: Model(GINConv(Linear(6, 8)), GINConv(Linear(8, 3))),
    "SAGE max": lambda: Model(SAGEConv(6, 8, aggr="max"), SAGEConv(8, 3, aggr="min")),
}
MODELS = SUMS | {
    "GAT": lambda: Model(GATConv(6, 4, heads=2), GATConv(8, 3)),
    "GATv2": lambda: Model(GATv2Conv(6, 4, heads=2), GATv2Conv(8, 3)),
    "Transformer": lambda: Model(TransformerConv(6, 4, heads=2), TransformerConv(8, 3)),
}
