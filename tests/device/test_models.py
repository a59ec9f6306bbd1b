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


def trained(model, batches, lowered=None):
    """A step for each batch (features, edges, classes): the losses, and the last gradients.

    ``lowered`` is the dtype of autocast; None means none.
    """
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for x, edge_index, y in batches:
        optimizer.zero_grad()
        with torch.autocast(x.device.type, dtype=lowered or torch.bfloat16, enabled=lowered is not None):
            loss = cross_entropy(model(x, edge_index), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return {"losses": torch.stack(losses), **{name: each.grad for name, each in model.named_parameters()}}


def whole_graph(device):
    """(features, edges, classes) of the hostile graph."""
    edge_index, nodes = hostile_edges(device, HUB)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(nodes, WIDTH, generator=generator).to(device)
    return x, edge_index, (torch.arange(nodes) % CLASSES).to(device)


def backends_of(model, x, edge_index):
    """Who ran the layers that were fast."""
    explained = onehop.explain(model, x, edge_index)
    return {row.backend for row in explained.layers if row.fast}


@pytest.mark.parametrize("name", LAYERS)
def test_a_patched_model_trains_as_the_plain_one(name, device):
    batch = whole_graph(device)
    model = Model(LAYERS[name]).to(device)
    expected = trained(model, [batch] * 3)
    with onehop.patch(backend="triton"):
        found = trained(model, [batch] * 3)
        assert backends_of(model, *batch[:2]) == {"triton"}
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_a_patched_model_trains_as_the_plain_one_under_autocast(name, device):
    """With its dtypes, and errors of rounding that are not much larger."""
    batch = whole_graph(device)
    model = Model(LAYERS[name]).to(device)
    exact, usual = trained(model, [batch]), trained(model, [batch], torch.bfloat16)
    with onehop.patch(backend="triton"):
        found = trained(model, [batch], torch.bfloat16)
    for of, truth in exact.items():
        assert found[of].dtype == usual[of].dtype, of
        if of.endswith("lin_key.bias"):
            continue  # a softmax does not see what all scores have in common: the gradient is rounding alone
        scale = float(truth.abs().max())
        error, allowed = (float((each[of] - truth).abs().max()) for each in (found, usual))
        assert error <= 2 * allowed + 4 * torch.finfo(torch.bfloat16).eps * scale, of


@pytest.mark.parametrize("name", LAYERS)
def test_steps_of_a_neighbour_loader(name, device):
    """Every batch is a graph that was made on the device, and is used once."""
    x, edge_index, y = (each.cpu() for each in whole_graph(device))
    data = Data(x=x, edge_index=edge_index, y=y)
    # PyG has no sampler of its own without pyg-lib.
    with onehop.patch(sampler=True):
        loader = NeighborLoader(data, [4, 4], batch_size=8)
        batches = [batch.to(device) for batch in loader]
    batches = [(batch.x, batch.edge_index, batch.y) for batch in batches]
    assert len(batches) == 3
    model = Model(LAYERS[name]).to(device)
    expected = trained(model, batches)
    with onehop.patch(backend="triton"):
        found = trained(model, batches)
        assert backends_of(model, *batches[0][:2]) == {"triton"}
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
