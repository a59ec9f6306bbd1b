"""Layers that make their edges themselves, of nearest neighbours."""

import pytest
import torch
import torch_geometric.typing
from torch_geometric import nn as gnn

import onehop
from tests.integrations.pyg import small_blocks
from tests.integrations.same import fast, forms, step

NODES, WIDTH = 40, 5

pytestmark = pytest.mark.usefixtures("in_doubles")


@pytest.fixture
def neighbours(monkeypatch):
    """Blocks of a few edges; skips where PyG does not call ``torch.ops.pyg``, or pyg-lib is installed."""
    if getattr(torch_geometric.typing, "WITH_KNN", True):
        pytest.skip("pyg-lib is installed, or PyG is older")
    small_blocks.force(monkeypatch, compiled=True)


def perceptron() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(2 * WIDTH, 7), torch.nn.ReLU(), torch.nn.Linear(7, 4))


LAYERS = {
    "dynamic, max": lambda: gnn.DynamicEdgeConv(perceptron(), 4),
    "dynamic, sum": lambda: gnn.DynamicEdgeConv(perceptron(), 4, aggr="sum"),
    "gravity": lambda: gnn.GravNetConv(WIDTH, 4, 3, 6, k=5),
}


@pytest.mark.parametrize("name", LAYERS)
def test_outputs_and_gradients(name, neighbours):
    # Made under the patch, they run without it too, because operators stay registered.
    with onehop.patch():
        layer, x = LAYERS[name](), torch.randn(NODES, WIDTH)

    calls = fast(step(layer, x))
    assert set(forms(calls)) == {"its message, compiled"}
