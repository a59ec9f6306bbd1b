"""A training script as anybody writes it: PyG alone, nothing of onehop.

    python examples/train.py [epochs]             # as it is
    python -m onehop run examples/train.py        # the same script under the patch

Nodes of a class share features and most of their edges. The graph is made from a seed: nothing is downloaded.
"""

import sys

import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv, GCNConv

NODES, FEATURES, CLASSES = 20_000, 64, 8
EDGES = 2_000_000  # drawn; about a fifth of them stays


class Net(torch.nn.Module):
    """A layer of GCN, and one of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.first = GCNConv(FEATURES, 64)
        self.second = GATConv(64, CLASSES, heads=4, concat=False)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """[N, FEATURES], [2, E] -> [N, CLASSES]."""
        x = F.dropout(self.first(x, edge_index).relu(), training=self.training)
        return self.second(x, edge_index)


def main(epochs: int) -> None:
    """Trains, and prints a line for each epoch."""
    torch.manual_seed(0)
    y = torch.randint(CLASSES, (NODES,))
    x = torch.randn(NODES, FEATURES) + F.one_hot(y, FEATURES)
    edge_index = torch.randint(NODES, (2, EDGES))
    alike = y[edge_index[0]] == y[edge_index[1]]
    edge_index = edge_index[:, alike | (torch.rand(EDGES) < 0.1)]
    model = Net()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(1, epochs + 1):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x, edge_index), y)
        loss.backward()
        optimiser.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
