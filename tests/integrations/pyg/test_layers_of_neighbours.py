"""Layers that make their edges themselves, of nearest neighbours: of pyg-lib, for which this stands in."""

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
    """``torch.ops.pyg.knn``, for one cloud of points: the numbers of the points above those of neighbours."""
    if torch_geometric.typing.WITH_PYG_LIB or not hasattr(torch_geometric.typing, "WITH_KNN"):
        pytest.skip("pyg-lib is there, or these layers do not ask for it")

    def knn(x, y, ptr_x, ptr_y, k, cosine, num_workers):
        nearest = torch.cdist(y.detach(), x.detach()).topk(k, largest=False).indices
        return torch.stack([torch.arange(len(y)).repeat_interleave(k), nearest.flatten()])

    library = torch.library.Library("pyg", "FRAGMENT")
    library.define(
        "knn(Tensor x, Tensor y, Tensor? ptr_x, Tensor? ptr_y, int k, bool cosine, int num_workers) -> Tensor"
    )
    library.impl("knn", knn, "CompositeExplicitAutograd")
    monkeypatch.setattr(torch_geometric.typing, "WITH_KNN", True)
    small_blocks.force(monkeypatch, compiled=True)
    yield
    library._destroy()


def perceptron() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(2 * WIDTH, 7), torch.nn.ReLU(), torch.nn.Linear(7, 4))


LAYERS = {
    "dynamic, max": lambda: gnn.DynamicEdgeConv(perceptron(), 4),
    "dynamic, sum": lambda: gnn.DynamicEdgeConv(perceptron(), 4, aggr="sum"),
    "gravity": lambda: gnn.GravNetConv(WIDTH, 4, 3, 6, k=5),
}


@pytest.mark.parametrize("name", LAYERS)
def test_outputs_and_gradients(name, neighbours, gradients_of):
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
