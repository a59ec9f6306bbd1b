"""GraphSAGE on Reddit by neighbour sampling, PyG's example, with onehop.

    python examples/07_reddit_by_sampling.py [--scale 0.1] [--epochs 3]

A port of PyG's ``examples/reddit.py``: two layers of GraphSAGE, width 256, batches of 1,024 nodes with 25 and
10 sampled neighbours, and layer by layer over all neighbours to predict. It trains on a twin of Reddit, at a
tenth of its size. Under the patch onehop draws the neighbours, or ``pyg-lib`` if it is installed.
"""

import argparse
import time

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv

import onehop
from onehop.datasets import load

WIDTH, BATCH, NEIGHBOURS, RATE = 256, 1_024, [25, 10], 0.01


class Sage(torch.nn.Module):
    """PyG's model."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([SAGEConv(features, WIDTH), SAGEConv(WIDTH, classes)])

    def step(self, number: int, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """One layer, with ReLU but for the last."""
        x = self.layers[number](x, edge_index)
        return x.relu() if number + 1 < len(self.layers) else x

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """[N, features], [2, E] -> [N, classes], for training."""
        x = F.dropout(self.step(0, x, edge_index), p=0.5, training=self.training)
        return self.step(1, x, edge_index)

    @torch.no_grad()
    def predict(self, data: Data, batches: NeighborLoader) -> torch.Tensor:
        """The class of each node [N]: all nodes by one layer, then all by the next, over all neighbours."""
        self.eval()
        x = data.x
        for number in range(len(self.layers)):
            parts = [
                self.step(number, x[batch.n_id], batch.edge_index)[: batch.batch_size] for batch in batches
            ]
            x = torch.cat(parts)
        return x.argmax(dim=-1)


def train(model: Sage, optimiser: torch.optim.Optimizer, batches: NeighborLoader) -> float:
    """The mean loss of an epoch."""
    model.train()
    total = count = 0.0
    for batch in batches:
        optimiser.zero_grad()
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        loss = F.cross_entropy(out, batch.y[: batch.batch_size])
        loss.backward()
        optimiser.step()
        total, count = total + loss.item() * batch.batch_size, count + batch.batch_size
    return total / count


def main() -> None:
    """Trains under the patch."""
    parser = argparse.ArgumentParser(description="GraphSAGE on Reddit by neighbour sampling.")
    parser.add_argument("--scale", type=float, default=0.1, help="of the twin (0.1)")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(0)
    graph = load("twin:reddit-mini", scale=options.scale)
    data = Data(x=graph.x, y=graph.y, edge_index=graph.edge_index, num_nodes=graph.num_nodes)
    model = Sage(graph.x.size(1), graph.num_classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    with onehop.patch():
        training = NeighborLoader(
            data, NEIGHBOURS, input_nodes=graph.train_mask, batch_size=BATCH, shuffle=True
        )
        everything = NeighborLoader(data, [-1], batch_size=BATCH)
        print(f"{graph.name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges")
        for epoch in range(1, options.epochs + 1):
            begin = time.perf_counter()
            loss = train(model, optimiser, training)
            seconds = time.perf_counter() - begin
            right = model.predict(data, everything) == graph.y
            share = right[graph.test_mask].float().mean().item()
            print(f"epoch {epoch}: loss {loss:.4f}, {seconds:.1f} s, test {100 * share:.1f} %")


if __name__ == "__main__":
    main()
