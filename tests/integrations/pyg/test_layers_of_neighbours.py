"""Layers that make their edges themselves, of nearest neighbours."""

import pytest
import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric import nn as gnn

import onehop
from onehop.integrations import reports
from tests.integrations.pyg import small_blocks

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
def test_outputs_and_gradients(name, neighbours, gradients_of):
    # Made under the patch, they run without it too, because operators stay registered.
    with onehop.patch():
        layer, x = LAYERS[name](), torch.randn(NODES, WIDTH)

    def call(model: torch.nn.Module, x: Tensor) -> Tensor:
        out: Tensor = model(x)
        return out

    expected = gradients_of(layer, call, x=x)
    with onehop.patch(), reports.recorded() as calls:
        found = gradients_of(layer, call, x=x)
    assert {each.form for each in calls} == {"its message, compiled"}
    assert found.keys() == expected.keys()
    for each, tensor in expected.items():
        torch.testing.assert_close(found[each], tensor, rtol=1e-9, atol=1e-10)
