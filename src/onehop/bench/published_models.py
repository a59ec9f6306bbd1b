"""Models that people train, in plain PyG. Nothing in this file knows onehop: that is the point of it.

Layers, widths, normalisation and dropout are those of their authors' programs. How they are trained is in
:mod:`onehop.bench.recipes`.
"""

import itertools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Module, ModuleList
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

Activation = Callable[[Tensor], Tensor]


class Stack(Module):
    """Layers one after the other, with what goes between them.

    Args:
        convs: The layers.
        activation: Between layers.
        dropout: The share of entries that are dropped between layers.
        norms: A normalisation after every layer but the last; none for an empty list.
        drops_features: Whether the features are dropped too.
        returns_scores: Whether scores are returned; else the logarithms of the classes' probabilities.
    """

    def __init__(
        self,
        convs: Sequence[Module],
        activation: Activation,
        dropout: float,
        norms: Sequence[Module] = (),
        *,
        drops_features: bool = False,
        returns_scores: bool = False,
    ) -> None:
        super().__init__()
        self.convs = ModuleList(convs)
        self.norms = ModuleList(norms)
        self.activation = activation
        self.dropout = dropout
        self.drops_features = drops_features
        self.returns_scores = returns_scores

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """[N, features] -> [N, classes]."""
        *inner, last = self.convs
        if self.drops_features:
            x = F.dropout(x, p=self.dropout, training=self.training)
        for place, conv in enumerate(inner):
            x = conv(x, edge_index)
            if len(self.norms):
                x = self.norms[place](x)
            x = F.dropout(self.activation(x), p=self.dropout, training=self.training)
        out: Tensor = last(x, edge_index)
        return out if self.returns_scores else out.log_softmax(dim=-1)


def ogb_gcn(features: int, hidden: int, classes: int) -> Stack:
    """GCN for ogbn-arxiv, of the Open Graph Benchmark's own examples: three layers, batch normalisation."""
    convs = [GCNConv(a, b, cached=True) for a, b in _steps(features, hidden, hidden, classes)]
    return Stack(convs, F.relu, 0.5, [BatchNorm1d(hidden) for _ in range(2)])


def ogb_sage(features: int, hidden: int, classes: int) -> Stack:
    """GraphSAGE for ogbn-arxiv, likewise."""
    convs = [SAGEConv(a, b) for a, b in _steps(features, hidden, hidden, classes)]
    return Stack(convs, F.relu, 0.5, [BatchNorm1d(hidden) for _ in range(2)])


def ogb_gat(features: int, hidden: int, classes: int) -> Stack:
    """GAT for ogbn-arxiv in the same manner: four heads side by side, one in the last layer, weights dropped.

    Leaderboard entries of GAT differ in their extras (labels as features, residuals); this is their core.
    """
    head = max(hidden // HEADS, 1)
    width = HEADS * head
    convs = [
        GATConv(features, head, heads=HEADS, dropout=ATTENTION_DROPOUT),
        GATConv(width, head, heads=HEADS, dropout=ATTENTION_DROPOUT),
        GATConv(width, classes, dropout=ATTENTION_DROPOUT),
    ]
    return Stack(convs, F.elu, 0.5, [BatchNorm1d(width) for _ in range(2)])


def products_gcn(features: int, hidden: int, classes: int) -> Stack:
    """GCN for ogbn-products, of the same examples: three layers, no batch normalisation.

    The example normalises the adjacency matrix before it trains; here each layer does, once.
    """
    convs = [GCNConv(a, b, cached=True) for a, b in _steps(features, hidden, hidden, classes)]
    return Stack(convs, F.relu, 0.5)


def products_sage(features: int, hidden: int, classes: int) -> Stack:
    """GraphSAGE for ogbn-products, likewise."""
    convs = [SAGEConv(a, b) for a, b in _steps(features, hidden, hidden, classes)]
    return Stack(convs, F.relu, 0.5)


def cora_gcn(features: int, hidden: int, classes: int) -> Stack:
    """PyG's ``examples/gcn.py``: two layers, features dropped as well."""
    convs = [GCNConv(features, hidden), GCNConv(hidden, classes)]
    return Stack(convs, torch.relu, 0.5, drops_features=True, returns_scores=True)


def cora_gat(features: int, hidden: int, classes: int) -> Stack:
    """PyG's ``examples/gat.py``: eight heads, then one; features and attention dropped."""
    head = max(hidden // CORA_HEADS, 1)
    convs = [
        GATConv(features, head, heads=CORA_HEADS, dropout=0.6),
        GATConv(CORA_HEADS * head, classes, concat=False, dropout=0.6),
    ]
    return Stack(convs, F.elu, 0.6, drops_features=True, returns_scores=True)


def loader_sage(features: int, hidden: int, classes: int) -> Stack:
    """GraphSAGE on batches of ``NeighborLoader``, as in PyG's ``examples/reddit.py``: two layers."""
    convs = [SAGEConv(a, b) for a, b in _steps(features, hidden, classes)]
    return Stack(convs, F.relu, 0.5, returns_scores=True)


def _steps(*widths: int) -> list[tuple[int, int]]:
    return list(itertools.pairwise(widths))


HEADS = 4
"""Heads of the inner layers of :func:`ogb_gat`."""

CORA_HEADS = 8
"""Heads of the first layer of :func:`cora_gat`."""

ATTENTION_DROPOUT = 0.1
"""The share of attention weights that :func:`ogb_gat` drops."""

MODELS: dict[str, Callable[[int, int, int], Stack]] = {
    "ogb-gcn": ogb_gcn,
    "ogb-sage": ogb_sage,
    "ogb-gat": ogb_gat,
    "products-gcn": products_gcn,
    "products-sage": products_sage,
    "cora-gcn": cora_gcn,
    "cora-gat": cora_gat,
    "loader-sage": loader_sage,
}
