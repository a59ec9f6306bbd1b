"""Models in plain PyG; this file intentionally does not use onehop.

First come models of two layers, of any width and without dropout. Then come published models, with their
authors' layers, widths, normalisation and dropout. :mod:`onehop.bench.recipes` describes how all models are
trained. Last come models that answer requests.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, Module, ModuleList, ReLU, Sequential
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv, TransformerConv, models

Activation = Callable[[Tensor], Tensor]


class TwoLayers(Module):
    """A model of two layers with ReLU between them."""

    def __init__(self, first: Module, second: Module) -> None:
        super().__init__()
        self.first = first
        self.second = second

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Map [N, features] to [N, classes]."""
        x = self.first(x, edge_index).relu()
        out: Tensor = self.second(x, edge_index)
        return out


class GCN(TwoLayers):
    """GCN: Kipf and Welling, 2017."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__(GCNConv(features, hidden), GCNConv(hidden, classes))


class SAGE(TwoLayers):
    """GraphSAGE, by default with the mean: Hamilton, Ying and Leskovec, 2017."""

    def __init__(self, features: int, hidden: int, classes: int, aggr: str = "mean") -> None:
        super().__init__(SAGEConv(features, hidden, aggr=aggr), SAGEConv(hidden, classes, aggr=aggr))


class GIN(TwoLayers):
    """GIN: Xu, Hu, Leskovec and Jegelka, 2019; each layer has a perceptron with one hidden layer."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__(
            GINConv(self.perceptron(features, hidden, hidden)),
            GINConv(self.perceptron(hidden, hidden, classes)),
        )

    def perceptron(self, features: int, hidden: int, columns: int) -> Sequential:
        """Return the perceptron of a layer."""
        return Sequential(Linear(features, hidden), ReLU(), Linear(hidden, columns))


class NormalisedGIN(GIN):
    """GIN with batch normalisation, as in the paper; without it, sums over hubs prevent learning."""

    def perceptron(self, features: int, hidden: int, columns: int) -> Sequential:
        """Return the perceptron of a layer."""
        return Sequential(Linear(features, hidden), BatchNorm1d(hidden), ReLU(), Linear(hidden, columns))


class GAT(TwoLayers):
    """GAT: Velickovic et al., 2018; the outputs of the first layer's four heads are concatenated."""

    conv = GATConv

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        head = max(hidden // HEADS, 1)
        super().__init__(self.conv(features, head, heads=HEADS), self.conv(HEADS * head, classes))


class GATv2(GAT):
    """GATv2: Brody, Alon and Yahav, 2022; like GAT, but scores depend jointly on both ends of an edge."""

    conv = GATv2Conv


class GraphTransformer(GAT):
    """Graph Transformer: Shi et al., 2021; like GAT, but scores are dot products of queries and keys."""

    conv = TransformerConv


class Stack(Module):
    """Layers one after the other, with normalisation, activation and dropout between them.

    Args:
        convs: The layers.
        activation: The activation between layers.
        dropout: The share of entries that are dropped between layers.
        norms: A normalisation after every layer except the last; an empty list means none.
        drops_features: Whether the features are dropped too.
        returns_scores: Whether the model returns scores; if not, logarithms of the classes' probabilities.
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
        """Map [N, features] to [N, classes]."""
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


def three_layers(
    conv: Callable[[int, int], Module], features: int, hidden: int, classes: int, *, norm: bool = True
) -> Stack:
    """Return the Open Graph Benchmark's example: three layers, normalised for ogbn-arxiv."""
    convs = [conv(a, b) for a, b in itertools.pairwise((features, hidden, hidden, classes))]
    return Stack(convs, F.relu, 0.5, [BatchNorm1d(hidden) for _ in range(2 if norm else 0)])


def ogb_gat(features: int, hidden: int, classes: int) -> Stack:
    """Return a GAT for ogbn-arxiv: four concatenated heads, one in the last layer, and attention dropout.

    Leaderboard entries of GAT differ in their extras (labels as features, residuals); this is their common
    core.
    """
    head = max(hidden // HEADS, 1)
    width = HEADS * head
    convs = [
        GATConv(features, head, heads=HEADS, dropout=ATTENTION_DROPOUT),
        GATConv(width, head, heads=HEADS, dropout=ATTENTION_DROPOUT),
        GATConv(width, classes, dropout=ATTENTION_DROPOUT),
    ]
    return Stack(convs, F.elu, 0.5, [BatchNorm1d(width) for _ in range(2)])


def cora_gcn(features: int, hidden: int, classes: int) -> Stack:
    """Return the model of PyG's ``examples/gcn.py``: two layers, with dropout also on the features."""
    convs = [GCNConv(features, hidden), GCNConv(hidden, classes)]
    return Stack(convs, torch.relu, 0.5, drops_features=True, returns_scores=True)


def cora_gat(features: int, hidden: int, classes: int) -> Stack:
    """Return the model of PyG's ``examples/gat.py``: eight heads, then one; features and weights dropped."""
    head = max(hidden // CORA_HEADS, 1)
    convs = [
        GATConv(features, head, heads=CORA_HEADS, dropout=0.6),
        GATConv(CORA_HEADS * head, classes, concat=False, dropout=0.6),
    ]
    return Stack(convs, F.elu, 0.6, drops_features=True, returns_scores=True)


def loader_sage(features: int, hidden: int, classes: int) -> Stack:
    """Return two-layer GraphSAGE for batches of ``NeighborLoader``, as in PyG's ``examples/reddit.py``."""
    return Stack([SAGEConv(features, hidden), SAGEConv(hidden, classes)], F.relu, 0.5, returns_scores=True)


HEADS = 4
"""Number of heads of inner attention layers; the width between the layers is a multiple of it."""

CORA_HEADS = 8
"""Number of heads in the first layer of :func:`cora_gat`."""

ATTENTION_DROPOUT = 0.1
"""The share of attention weights that :func:`ogb_gat` drops."""

ATTENTION = {"gat": GAT, "gatv2": GATv2, "transformer": GraphTransformer}

MODELS: dict[str, Callable[[int, int, int], TwoLayers]] = {
    "gcn": GCN,
    "sage": SAGE,
    "sage-sum": partial(SAGE, aggr="sum"),
    "gin": GIN,
    "gin-norm": NormalisedGIN,
    **ATTENTION,
}

# The examples for ogbn-products normalise the adjacency matrix before training; here each layer does it once.
_cached_gcn = partial(GCNConv, cached=True)

PUBLISHED: dict[str, Callable[[int, int, int], Stack]] = {
    "ogb-gcn": partial(three_layers, _cached_gcn),
    "ogb-sage": partial(three_layers, SAGEConv),
    "ogb-gat": ogb_gat,
    "products-gcn": partial(three_layers, _cached_gcn, norm=False),
    "products-sage": partial(three_layers, SAGEConv, norm=False),
    "cora-gcn": cora_gcn,
    "cora-gat": cora_gat,
    "loader-sage": loader_sage,
}

SERVED: dict[str, Callable[[int], Module]] = {
    "gcn": lambda width: models.GCN(width, width, num_layers=3),
    "sage": lambda width: models.GraphSAGE(width, width, num_layers=3),
    "gatv2": lambda width: models.GAT(width, width, num_layers=3, heads=HEADS, v2=True),
}
