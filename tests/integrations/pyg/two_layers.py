"""A model of two layers, for tests that train it on devices and in batches, and layers for it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric import nn as gnn

Make = Callable[[int, int], torch.nn.Module]
LAYERS: dict[str, Make] = {
    "GCN": gnn.GCNConv,
    "SAGE mean": gnn.SAGEConv,
    "SAGE max": lambda i, o: gnn.SAGEConv(i, o, aggr="max"),
    "GAT": lambda i, o: gnn.GATConv(i, o, heads=2, concat=False),
    "GATv2": lambda i, o: gnn.GATv2Conv(i, o, heads=2, concat=False),
    "Transformer": lambda i, o: gnn.TransformerConv(i, o, heads=2, concat=False),
}


class TwoLayers(torch.nn.Module):
    """From some columns to others and then to others again, with the same parameters each time."""

    def __init__(self, make: Make, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = make(width, hidden), make(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor, **weights: Any) -> Tensor:
        """[N, width] -> [N, classes]."""
        out: Tensor = self.second(self.first(x, edge_index, **weights).relu(), edge_index, **weights)
        return out
