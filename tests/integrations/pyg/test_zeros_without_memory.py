"""Gradients that are zeros without memory, as torch's gradient of a sign: kernels get zeros with memory."""

import pytest
import torch
from torch_geometric import nn as gnn

import onehop
from onehop import thresholds
from tests.integrations.same import same, twice

LAYERS = {
    "sum": lambda: gnn.SAGEConv(8, 4, aggr="sum"),
    "max": lambda: gnn.SAGEConv(8, 4, aggr="max"),
    "several": lambda: gnn.SAGEConv(8, 4, aggr=["mean", "std", "max"]),
    "attention": lambda: gnn.GATv2Conv(8, 4, dropout=0.5),
    "relations": lambda: gnn.RGCNConv(8, 4, 3),
    "linear": lambda: torch.nn.Linear(8, 4),
}
EDGES = torch.randint(0, 40, (2, 300), generator=torch.Generator().manual_seed(0))


class Distance(gnn.MessagePassing):
    """A message with an absolute value, whose second derivative is such zeros."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return x_i.sigmoid() - x_j.abs()


def rest(name):
    return {"linear": (), "relations": (EDGES, EDGES[0] % 3)}.get(name, (EDGES,))


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_zeros(name, again):
    x, layer = torch.randn(40, 8, requires_grad=True), LAYERS[name]()
    with thresholds.lifted(), onehop.patch():
        out = layer(x, *rest(name))
        [grad] = torch.autograd.grad(out, x, torch._efficientzerotensor(out.shape), create_graph=again)
    assert torch.equal(grad, torch.zeros(40, 8))


@pytest.mark.parametrize("edges", [0, 1, 300])
def test_second_derivatives_of_absolute_values(edges):
    x = torch.randn(40, 8, dtype=torch.float64, requires_grad=True)

    with thresholds.lifted():
        same(lambda: twice(Distance()(x, EDGES[:, :edges]), x), rtol=1e-7)
