"""The Open Graph Benchmark's models for ogbn-arxiv, without and with onehop.

    python examples/06_ogb_arxiv.py [--sage] [--graph twin:arxiv] [--scale 0.05] [--epochs 5]

A port of OGB's ``examples/nodeproppred/arxiv/gnn.py``: three layers of GCN or GraphSAGE, width 256, batch
normalisation, dropout 0.5, Adam, the whole graph at once. It trains on a twin of the graph, at a twentieth of
its size; with the package ``ogb`` installed, ``--graph ogb:ogbn-arxiv`` downloads the graph itself.
"""

import argparse
import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch_geometric.nn import GCNConv, SAGEConv

import onehop
from onehop.datasets import Dataset, load

LAYERS, WIDTH, DROPOUT, RATE = 3, 256, 0.5, 0.01


class Gnn(torch.nn.Module):
    """OGB's model: layers, each but the last with batch normalisation, ReLU and dropout."""

    def __init__(self, layer: type[torch.nn.Module], features: int, classes: int) -> None:
        super().__init__()
        widths = [features, *[WIDTH] * (LAYERS - 1), classes]
        self.layers = torch.nn.ModuleList(layer(*pair) for pair in pairwise(widths))
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm1d(WIDTH) for _ in range(LAYERS - 1))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """[N, features], [2, E] -> logarithms of probabilities, [N, classes]."""
        for layer, norm in zip(self.layers[:-1], self.norms, strict=True):
            x = F.dropout(norm(layer(x, edge_index)).relu(), p=DROPOUT, training=self.training)
        return self.layers[-1](x, edge_index).log_softmax(dim=-1)


def accuracies(model: Gnn, data: Dataset) -> list[float]:
    """Shares of right answers among the nodes for training, validation and testing."""
    model.eval()
    with torch.no_grad():
        right = model(data.x, data.edge_index).argmax(dim=-1) == data.y
    return [right[mask].float().mean().item() for mask in (data.train_mask, data.val_mask, data.test_mask)]


def train(data: Dataset, layer: type[torch.nn.Module], epochs: int) -> tuple[list[float], float]:
    """The loss of each epoch, and the seconds that the last one took."""
    torch.manual_seed(0)
    model = Gnn(layer, data.x.size(1), data.num_classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    losses = []
    for epoch in range(1, epochs + 1):
        begin = time.perf_counter()
        model.train()
        optimiser.zero_grad()
        out = model(data.x, data.edge_index)[data.train_mask]
        loss = F.nll_loss(out, data.y[data.train_mask])
        loss.backward()
        optimiser.step()
        seconds = time.perf_counter() - begin
        losses.append(loss.item())
        shares = "  ".join(f"{100 * share:.1f} %" for share in accuracies(model, data))
        print(f"  epoch {epoch}: loss {loss.item():.4f}, training, validation, test: {shares}")
    return losses, seconds


def main() -> None:
    """Trains both ways and compares."""
    parser = argparse.ArgumentParser(description="OGB's models for ogbn-arxiv.")
    parser.add_argument("--sage", action="store_true", help="GraphSAGE in place of GCN")
    parser.add_argument("--graph", default="twin:arxiv", help="or ogb:ogbn-arxiv")
    parser.add_argument("--scale", type=float, default=0.05, help="of the twin (0.05)")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    data = load(options.graph, scale=options.scale)
    layer = SAGEConv if options.sage else GCNConv
    print(f"{data.name}: {data.num_nodes:,} nodes, {data.num_edges:,} edges, {layer.__name__}")
    print("PyG alone")
    alone, seconds_alone = train(data, layer, options.epochs)
    print("with onehop.patch()")
    with onehop.patch():
        patched, seconds_patched = train(data, layer, options.epochs)
    same = max(abs(a - b) for a, b in zip(alone, patched, strict=True)) < 1e-2
    print(f"a training step: {1e3 * seconds_alone:.0f} ms alone, {1e3 * seconds_patched:.0f} ms patched")
    print(f"same losses: {'yes' if same else 'no'}")


if __name__ == "__main__":
    main()
