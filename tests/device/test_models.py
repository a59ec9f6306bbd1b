"""Unchanged models of PyG on a GPU: losses and gradients with the patch and without."""

import copy

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch_geometric import nn as gnn
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

import onehop
from benchmarks.gpu.correctness import hostile_edges
from onehop.kernels.triton import availability

pytestmark = pytest.mark.device

WIDTH, HIDDEN, CLASSES = (5, 4, 3) if availability.interpreted() else (100, 64, 47)
HUB = 10 if availability.interpreted() else 3000
LAYERS = {
    "GCN": gnn.GCNConv,
    "SAGE": gnn.SAGEConv,
    "SAGE max": lambda i, o: gnn.SAGEConv(i, o, aggr="max"),
    "GIN": lambda i, o: gnn.GINConv(torch.nn.Linear(i, o)),
    "GAT": lambda i, o: gnn.GATConv(i, o, heads=2, concat=False),
    "GATv2": lambda i, o: gnn.GATv2Conv(i, o, heads=2, concat=False),
    "Transformer": lambda i, o: gnn.TransformerConv(i, o, heads=2, concat=False),
}


class Model(torch.nn.Module):
    def __init__(self, make):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = make(WIDTH, HIDDEN), make(HIDDEN, CLASSES)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def epochs(model, x, edge_index, y):
    """Three steps of training: their losses, and the last gradients."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = cross_entropy(model(x, edge_index), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return {"losses": torch.stack(losses), **{name: each.grad for name, each in model.named_parameters()}}


@pytest.mark.parametrize("name", LAYERS)
def test_a_patched_model_trains_as_the_plain_one(name, device):
    edge_index, nodes = hostile_edges(device, HUB)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(nodes, WIDTH, generator=generator).to(device)
    y = (torch.arange(nodes) % CLASSES).to(device)
    model = Model(LAYERS[name]).to(device)
    expected = epochs(model, x, edge_index, y)
    with onehop.patch(backend="triton"):
        found = epochs(model, x, edge_index, y)
        explained = onehop.explain(model, x, edge_index)
    assert {row.backend for row in explained.layers if row.fast} == {"triton"}, str(explained)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_steps_of_a_neighbour_loader(gpu):
    edge_index, nodes = hostile_edges(torch.device("cpu"), HUB)
    data = Data(x=torch.randn(nodes, WIDTH), edge_index=edge_index, y=torch.arange(nodes) % CLASSES)
    try:
        loader = NeighborLoader(data, [5, 5], batch_size=8)
        batches = [batch.to(gpu) for batch in loader]
    except ImportError as error:
        pytest.skip(f"there is no sampler: {error}")
    model = Model(gnn.SAGEConv).to(gpu)
    for batch in batches:
        expected = model(batch.x, batch.edge_index)
        with onehop.patch():
            torch.testing.assert_close(model(batch.x, batch.edge_index), expected, rtol=1e-4, atol=1e-5)
