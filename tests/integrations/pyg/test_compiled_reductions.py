"""Compiled messages that are reduced in several ways at once, or weighted by a softmax, beside PyG's."""

import math

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.nn import aggr

import onehop
from tests.integrations.pyg import compiled_layers, small_blocks
from tests.integrations.pyg.conftest import make_edges

NODES, EDGES, WIDTH, DIM = 20, 120, 6, 3
DEGREES = torch.tensor([2, 3, 4, 5, 4, 2, 1])
SCALERS = ["identity", "amplification", "attenuation", "linear", "inverse_linear"]


@pytest.fixture(autouse=True)
def _compiled(monkeypatch):
    small_blocks.force(monkeypatch, compiled=True)


def pna(towers=1, aggregators=("mean", "min", "max", "std"), **kwargs):
    return gnn.PNAConv(WIDTH, 6, list(aggregators), SCALERS, DEGREES, towers=towers, **kwargs).double()


LAYERS = {
    "PNA": (pna, 0),
    "PNA attr": (lambda: pna(edge_dim=DIM), DIM),
    "PNA towers": (lambda: pna(towers=2), 0),
    "PNA towers attr": (lambda: pna(towers=3, edge_dim=DIM), DIM),
    "PNA towers divided": (lambda: pna(towers=2, divide_input=True), 0),
    "PNA towers divided attr": (lambda: pna(towers=3, divide_input=True, edge_dim=DIM), DIM),
    "PNA two layers": (lambda: pna(pre_layers=2, towers=2), 0),
    "PNA var": (lambda: pna(aggregators=("sum", "var", "std"), train_norm=True), 0),
    "PNA one": (lambda: pna(aggregators=("max",)), 0),
    "std": (lambda: gnn.CGConv(WIDTH, dim=DIM, aggr="std"), DIM),
    "var, half": (lambda: gnn.CGConv(WIDTH, aggr=aggr.VarAggregation(semi_grad=True)), 0),
    "several": (lambda: gnn.CGConv(WIDTH, aggr=aggr.MultiAggregation(["sum", "max", "min"], mode="sum")), 0),
    "half a gradient for all": (
        lambda: gnn.CGConv(
            WIDTH,
            aggr=aggr.MultiAggregation(
                [aggr.VarAggregation(semi_grad=True), aggr.StdAggregation(), "mean"], mode="max"
            ),
        ),
        0,
    ),
    "with a softmax": (
        lambda: gnn.CGConv(
            WIDTH, dim=DIM, aggr=aggr.MultiAggregation(["softmax", "std", "mean"], mode="mean")
        ),
        DIM,
    ),
    "GEN": (lambda: gnn.GENConv(WIDTH, 5), 0),
    "GEN attr": (lambda: gnn.GENConv(WIDTH, 5, edge_dim=DIM, t=0.7), DIM),
    "GEN learned": (lambda: gnn.GENConv(WIDTH, 5, learn_t=True, t=1.3, msg_norm=True), 0),
    "GEN sum": (lambda: gnn.GENConv(WIDTH, 5, aggr="add"), 0),
    "softmax, half": (lambda: gnn.CGConv(WIDTH, aggr=aggr.SoftmaxAggregation(t=2.0, semi_grad=True)), 0),
    "softmax, a factor a column": (
        lambda: gnn.CGConv(WIDTH, aggr=aggr.SoftmaxAggregation(learn=True, channels=WIDTH)), 0,
    ),
    "PNA softmax": (lambda: pna(towers=2, aggregators=("softmax", "mean")), 0),
}  # fmt: skip


def inputs_of(edge_width: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = {"x": torch.randn(NODES, WIDTH, dtype=torch.float64, generator=generator)}
    if edge_width:
        inputs["edge_attr"] = torch.randn(EDGES, edge_width, dtype=torch.float64, generator=generator)
    return inputs


def assert_as_pygs(layer, inputs, gradients_of, edges=None):
    edges = make_edges(NODES, NODES, EDGES) if edges is None else edges
    compiled_layers.assert_as_pygs(layer, compiled_layers.call_over(edges), inputs, gradients_of)


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, gradients_of):
    make, edge_width = LAYERS[name]
    torch.manual_seed(0)
    assert_as_pygs(make().double(), inputs_of(edge_width), gradients_of)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e200, 0.0])
@pytest.mark.parametrize("name", ["PNA", "PNA towers divided", "GEN", "GEN learned", "with a softmax"])
def test_extreme_numbers(name, number, gradients_of):
    make, edge_width = LAYERS[name]
    torch.manual_seed(0)
    inputs = inputs_of(edge_width)
    inputs["x"][3, 1:4] = number
    inputs["x"][-1] = number
    assert_as_pygs(make().double(), inputs, gradients_of)


@pytest.mark.parametrize("name", ["PNA", "PNA towers", "GEN", "with a softmax"])
def test_ties_and_equal_messages(name, gradients_of):
    # The standard deviation of equal messages is below its least, where its gradient ends.
    make, edge_width = LAYERS[name]
    torch.manual_seed(0)
    inputs = {key: tensor.mul(0.6).round() for key, tensor in inputs_of(edge_width).items()}
    inputs["x"][5:10] = inputs["x"][5]
    assert_as_pygs(make().double(), inputs, gradients_of)


@pytest.mark.parametrize("name", ["PNA", "GEN", "GEN learned"])
def test_one_edge_a_destination(name, gradients_of):
    make, edge_width = LAYERS[name]
    torch.manual_seed(0)
    nodes = torch.arange(NODES - 1)
    assert_as_pygs(make().double(), inputs_of(edge_width), gradients_of, torch.stack([nodes, nodes.roll(3)]))


@pytest.mark.parametrize("name", ["PNA", "GEN learned"])
def test_gradients_of_gradients(name):
    make, _ = LAYERS[name]
    torch.manual_seed(0)
    layer, x = make().double(), inputs_of(0)["x"].requires_grad_()
    edges, found = make_edges(NODES, NODES, EDGES), []
    for patched in (False, True):
        with onehop.patch() if patched else torch.enable_grad():
            (grad,) = torch.autograd.grad(layer(x, edges).tanh().sum(), x, create_graph=True)
            found.append(torch.autograd.grad(grad.square().sum(), x)[0])
    torch.testing.assert_close(found[1], found[0], rtol=1e-8, atol=1e-9)


def test_nothing_of_edges_times_width_is_kept():
    kept = []
    edges, x = make_edges(NODES, NODES, 4000), torch.randn(NODES, WIDTH, requires_grad=True)
    for layer in (pna().float(), gnn.GENConv(WIDTH, WIDTH)):
        with (
            onehop.patch(),
            torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t),
        ):
            layer(x, edges).sum().backward()
    assert max(kept) < 4000


def test_reductions_that_run_in_blocks():
    x, edges = inputs_of(0)["x"], make_edges(NODES, NODES, EDGES)
    (row,) = onehop.explain(gnn.CGConv(WIDTH, aggr="median").double(), x, edges).layers
    assert row.form == "its message in blocks"
    assert "its reduction, median, is not made of sums, means, extrema and softmax" in row.plan
    weighted = aggr.SoftmaxAggregation(learn=True, channels=WIDTH).float()
    (row,) = onehop.explain(gnn.CGConv(WIDTH, aggr=weighted).double(), x, edges).layers
    assert row.form == "its message, compiled"
    layer = gnn.CGConv(WIDTH).double()
    layer.aggr_module = weighted.float()
    (row,) = onehop.explain(layer, x, edges).layers
    assert "its softmax has a factor of another kind than its messages" in row.plan
