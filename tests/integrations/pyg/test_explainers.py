"""Explainers: an explanation's number of each edge is a factor of the message, with its gradient."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Parameter
from torch_geometric import nn as gnn
from torch_geometric.explain import AttentionExplainer, Explainer, GNNExplainer, PGExplainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import MessagePassing

import onehop
from tests.integrations.same import assert_same, fast, forms, learned, reasons, same, same_error

pytestmark = pytest.mark.usefixtures("in_doubles")

NODES, WIDTH = 20, 4


class Own(MessagePassing):
    def __init__(self) -> None:
        super().__init__(aggr="max")
        self.lin = Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return self.lin(x_j - x_i).tanh()


LAYERS: dict[str, Any] = {
    "GCNConv": lambda: gnn.GCNConv(WIDTH, WIDTH),
    "GCNConv without loops": lambda: gnn.GCNConv(WIDTH, WIDTH, add_self_loops=False),
    "SAGEConv": lambda: gnn.SAGEConv(WIDTH, WIDTH),
    "GINConv": lambda: gnn.GINConv(Linear(WIDTH, WIDTH)),
    "GATConv": lambda: gnn.GATConv(WIDTH, WIDTH, heads=2, concat=False),
    "GATv2Conv": lambda: gnn.GATv2Conv(WIDTH, WIDTH, heads=2, concat=False),
    "TransformerConv": lambda: gnn.TransformerConv(WIDTH, WIDTH),
    "own": Own,
}


class Model(torch.nn.Module):
    def __init__(self, make: Any) -> None:
        super().__init__()
        self.first, self.second = make(), make()

    def forward(self, x: Tensor, edge_index: Tensor, **_: Any) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


RAW = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}


def explained(model: torch.nn.Module, algorithm: Any, x: Tensor, edge_index: Tensor) -> list[Tensor]:
    masks = {"edge_mask_type": "object"}
    if isinstance(algorithm, GNNExplainer):
        masks["node_mask_type"] = "attributes"
    explainer = Explainer(model, algorithm, explanation_type="model", model_config=RAW, **masks)
    found = explainer(x, edge_index, index=5)
    return [found.get(name) for name in ("node_mask", "edge_mask")]


@pytest.mark.parametrize("name", LAYERS)
def test_masks_of_gnn_explainer_are_pygs(name, edge_index):
    model, x = Model(LAYERS[name]).eval(), torch.randn(NODES, WIDTH)
    calls = same(lambda: explained(model, GNNExplainer(epochs=5), x, edge_index), times=1, rtol=1e-7)
    # A graph transformer's message keeps its weights on the layer.
    assert (set(reasons(calls)) != {None}) == (name == "TransformerConv")


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "TransformerConv"])
def test_attention_explainer(name, edge_index):
    model, x = Model(LAYERS[name]).eval(), torch.randn(NODES, WIDTH)
    same(lambda: explained(model, AttentionExplainer(), x, edge_index))


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True")  # PGExplainer.train does
def test_pg_explainer_learns_what_it_learns_with_pyg(edge_index):
    model, x, target = Model(LAYERS["GCNConv"]).eval(), torch.randn(NODES, WIDTH), torch.arange(NODES) % WIDTH

    def learn() -> Tensor:
        algorithm = PGExplainer(epochs=3).double()
        explainer = Explainer(
            model, algorithm, explanation_type="phenomenon", edge_mask_type="object", model_config=RAW
        )
        for epoch in range(3):
            algorithm.train(epoch, model, x, edge_index, target=target, index=5)
        return explainer(x, edge_index, target=target, index=5).edge_mask

    fast(learn, times=1, rtol=1e-7)


@pytest.mark.parametrize("sigmoid", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_masks(name, sigmoid, edge_index):
    model, x = Model(LAYERS[name]), torch.randn(NODES, WIDTH, requires_grad=True)
    mask = Parameter(torch.rand(edge_index.size(1)))

    def gradients() -> list[Tensor]:
        set_masks(model, mask, edge_index, sigmoid)
        out = model(x, edge_index)
        clear_masks(model)
        return learned(out, mask, x, model)

    same(gradients, times=1)


@pytest.mark.usefixtures("ordinary_bounds")
def test_layers_are_fast_again_afterwards(edge_index):
    model, x = Model(LAYERS["SAGEConv"]), torch.randn(NODES, WIDTH)
    expected = model(x, edge_index)
    with onehop.patch():
        explained(model, GNNExplainer(epochs=1), x, edge_index)
    assert forms(fast(lambda: model(x, edge_index))) == ["source", "source"]
    assert_same(model(x, edge_index), expected)


def test_an_explanation_that_outlives_the_patch(edge_index):
    model, x = Model(LAYERS["SAGEConv"]), torch.randn(NODES, WIDTH)
    mask = torch.rand(edge_index.size(1))
    with onehop.patch():
        set_masks(model, mask, edge_index)
        found = model(x, edge_index)
    assert torch.allclose(found, model(x, edge_index))
    clear_masks(model)
    assert not torch.allclose(found, model(x, edge_index))


def _of_class(model: Model) -> None:
    class Explained(MessagePassing):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x)

        def explain_message(self, inputs: Tensor, dim_size: Any) -> Tensor:
            return 2 * inputs

    model.first = Explained()


def _of_instance(model: Model) -> None:
    def explain_message(self, inputs: Tensor, dim_size: Any) -> Tensor:
        return 3 * inputs

    model.first.explain_message = explain_message.__get__(model.first)


@pytest.mark.parametrize("change", [_of_class, _of_instance])
def test_an_explain_message_of_ones_own_is_left_to_pyg(change, edge_index):
    model, x = Model(LAYERS["SAGEConv"]), torch.randn(NODES, WIDTH)
    change(model)

    mask = torch.rand(edge_index.size(1))

    def run() -> Tensor:
        set_masks(model, mask, edge_index)
        out = model(x, edge_index)
        clear_masks(model)
        return out

    assert reasons(same(run)) == ["its explain_message is its own", None]


def test_a_mask_of_other_edges_is_pygs_error(edge_index):
    model, x = Model(LAYERS["SAGEConv"]), torch.randn(NODES, WIDTH)
    set_masks(model, torch.rand(7), edge_index[:, :7])
    same_error(lambda: model(x, edge_index))
