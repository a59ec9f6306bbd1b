"""Models in plain PyG. Nothing in this file knows onehop: that is the point of it."""

import torch
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, ReLU, Sequential
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv, TransformerConv


class GCN(torch.nn.Module):
    """Kipf and Welling, 2017: two layers."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = GCNConv(features, hidden)
        self.second = GCNConv(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """[N, features] -> [N, classes]."""
        x = self.first(x, edge_index).relu()
        out: Tensor = self.second(x, edge_index)
        return out


class SAGE(torch.nn.Module):
    """GraphSAGE with the mean: Hamilton, Ying and Leskovec, 2017: two layers."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = SAGEConv(features, hidden, aggr="mean")
        self.second = SAGEConv(hidden, classes, aggr="mean")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """[N, features] -> [N, classes]."""
        x = self.first(x, edge_index).relu()
        out: Tensor = self.second(x, edge_index)
        return out


class GIN(torch.nn.Module):
    """Xu, Hu, Leskovec and Jegelka, 2019: two layers, each with a perceptron of one hidden layer."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = GINConv(Sequential(Linear(features, hidden), ReLU(), Linear(hidden, hidden)))
        self.second = GINConv(Sequential(Linear(hidden, hidden), ReLU(), Linear(hidden, classes)))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """[N, features] -> [N, classes]."""
        x = self.first(x, edge_index).relu()
        out: Tensor = self.second(x, edge_index)
        return out


class NormalisedGIN(GIN):
    """GIN with batch normalisation, as in the paper: without it, sums over hubs keep it from learning."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__(features, hidden, classes)
        self.first.nn.insert(1, BatchNorm1d(hidden))
        self.second.nn.insert(1, BatchNorm1d(hidden))


class GAT(torch.nn.Module):
    """Velickovic et al., 2018: two layers, the first with four heads side by side."""

    conv = GATConv

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        head = max(hidden // HEADS, 1)
        self.first = self.conv(features, head, heads=HEADS)
        self.second = self.conv(HEADS * head, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """[N, features] -> [N, classes]."""
        x = self.first(x, edge_index).relu()
        out: Tensor = self.second(x, edge_index)
        return out


class GATv2(GAT):
    """Brody, Alon and Yahav, 2022: as GAT, with scores that depend on both ends of an edge together."""

    conv = GATv2Conv


class GraphTransformer(GAT):
    """Shi et al., 2021: as GAT, with dot products of queries and keys for scores."""

    conv = TransformerConv


HEADS = 4
"""Heads of the first attention layer; the width between the layers is a multiple of it."""

ATTENTION = {"gat": GAT, "gatv2": GATv2, "transformer": GraphTransformer}

MODELS = {"gcn": GCN, "sage": SAGE, "gin": GIN, "gin-norm": NormalisedGIN, **ATTENTION}
