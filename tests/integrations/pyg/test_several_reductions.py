"""EGConv, which reduces the sources' rows in several ways, against PyG."""

import math

import pytest
import torch
from torch_geometric import nn as gnn

import onehop
from onehop import thresholds
from onehop.integrations.pyg.leave import OWN_PRODUCT
from tests.integrations.pyg.conftest import make_edges

NODES, EDGES, WIDTH = 20, 120, 6
AGGREGATORS = [["symnorm"], ["sum"], ["std"], ["mean", "max", "min"], ["symnorm", "var", "std", "mean"]]

pytestmark = pytest.mark.usefixtures("in_doubles")


@pytest.fixture
def edges():
    return make_edges(NODES, NODES, EDGES)


def layer_of(aggregators, **options):
    return gnn.EGConv(WIDTH, 8, aggregators, num_heads=2, num_bases=3, **options)


@pytest.mark.parametrize("options", [{}, {"add_self_loops": False}, {"cached": True}], ids=str)
@pytest.mark.parametrize("aggregators", AGGREGATORS, ids=" ".join)
def test_outputs_and_gradients(aggregators, options, edges, gradients_of, took_fast_path):
    layer, x = layer_of(aggregators, **options), torch.randn(NODES, WIDTH)
    expected = gradients_of(layer, lambda model, x: model(x, edges), x=x)
    with onehop.patch(), thresholds.lifted():
        assert took_fast_path(layer, x, edges) == [None]
        for _ in range(2):
            found = gradients_of(layer, lambda model, x: model(x, edges), x=x)
            for name, tensor in expected.items():
                torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_extreme_numbers(number, edges):
    layer, x = layer_of(["symnorm", "max", "std"]), torch.randn(NODES, WIDTH)
    x[3, 1] = number
    expected = layer(x, edges)
    with onehop.patch(), thresholds.lifted():
        torch.testing.assert_close(layer(x, edges), expected, equal_nan=True)


@pytest.mark.parametrize("count", [0, EDGES])
def test_few_edges_keep_the_bits(count, edges, monkeypatch):
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    layer, x = layer_of(["symnorm", "mean"]), torch.randn(NODES, WIDTH)
    expected = layer(x, edges[:, :count])
    with onehop.patch():
        assert torch.equal(layer(x, edges[:, :count]), expected)


class Mine(gnn.EGConv):
    def aggregate(self, inputs, index, dim_size=None, symnorm_weight=None):
        return super().aggregate(2 * inputs, index, dim_size, symnorm_weight)


@pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR:UserWarning")  # PyG's advice
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_what_is_left_to_pyg(edges, took_fast_path):
    mine, x = Mine(WIDTH, 8, ["sum", "max"], num_heads=2), torch.randn(NODES, WIDTH)
    expected = mine(x, edges)
    with onehop.patch(), thresholds.lifted():
        (reason,) = took_fast_path(mine, x, edges)
        assert reason.startswith("its class overrides aggregate, and its message mixes edges in stack")
        torch.testing.assert_close(mine(x, edges), expected)
    plain, matrix = layer_of(["sum"], add_self_loops=False), torch.ones(NODES, NODES).to_sparse()
    expected = plain(x, matrix)
    with onehop.patch(), thresholds.lifted():
        assert took_fast_path(plain, x, matrix) == [OWN_PRODUCT]
        torch.testing.assert_close(plain(x, matrix), expected)


@pytest.mark.parametrize(
    "as_given", [lambda w: w.view(-1, 1), lambda w: w.float()], ids=["a column", "floats"]
)
def test_weights_of_another_form_are_left_to_pyg(as_given, edges, took_fast_path):
    layer, x, weight = layer_of(["symnorm"]), torch.randn(NODES, WIDTH), as_given(torch.rand(EDGES))
    expected = layer.propagate(edges, x=x, symnorm_weight=weight)
    with onehop.patch(), thresholds.lifted():
        (reason,) = took_fast_path(layer.propagate, edges, x=x, symnorm_weight=weight)
        assert reason.startswith("the weights of its normalisation are not one number an edge")
        assert torch.equal(layer.propagate(edges, x=x, symnorm_weight=weight), expected)
