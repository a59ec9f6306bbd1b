"""EGConv, which reduces the sources' rows in several ways, against PyG."""

import math

import pytest
import torch
from torch_geometric import nn as gnn

from onehop import thresholds
from onehop.integrations.pyg.leave import OWN_PRODUCT
from tests.integrations.pyg.conftest import make_edges
from tests.integrations.same import BITS, fast, refused, same, step

NODES, EDGES, WIDTH = 20, 120, 6
AGGREGATORS = [["symnorm"], ["sum"], ["std"], ["mean", "max", "min"], ["symnorm", "var", "std", "mean"]]

pytestmark = pytest.mark.usefixtures("in_doubles")


@pytest.fixture
def edges():
    return make_edges(NODES, NODES, EDGES)


def layer_of(aggregators, **options):
    return gnn.EGConv(WIDTH, 8, aggregators, num_heads=2, num_bases=3, **options)


@pytest.fixture(autouse=True)
def _at_every_size():
    with thresholds.lifted():
        yield


@pytest.mark.parametrize("options", [{}, {"add_self_loops": False}, {"cached": True}], ids=str)
@pytest.mark.parametrize("aggregators", AGGREGATORS, ids=" ".join)
def test_outputs_and_gradients(aggregators, options, edges):
    fast(step(layer_of(aggregators, **options), torch.randn(NODES, WIDTH), edges))


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_extreme_numbers(number, edges):
    layer, x = layer_of(["symnorm", "max", "std"]), torch.randn(NODES, WIDTH)
    x[3, 1] = number
    fast(lambda: layer(x, edges))


@pytest.mark.parametrize("count", [0, EDGES])
def test_few_edges_keep_the_bits(count, edges, monkeypatch):
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    layer, x = layer_of(["symnorm", "mean"]), torch.randn(NODES, WIDTH)
    same(lambda: layer(x, edges[:, :count]), **BITS)


class Mine(gnn.EGConv):
    def aggregate(self, inputs, index, dim_size=None, symnorm_weight=None):
        return super().aggregate(2 * inputs, index, dim_size, symnorm_weight)


@pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR:UserWarning")  # PyG's advice
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_what_is_left_to_pyg(edges):
    mine, x = Mine(WIDTH, 8, ["sum", "max"], num_heads=2), torch.randn(NODES, WIDTH)
    refused(lambda: mine(x, edges), "its class overrides aggregate, and its message mixes edges in stack")
    plain, matrix = layer_of(["sum"], add_self_loops=False), torch.ones(NODES, NODES).to_sparse()
    refused(lambda: plain(x, matrix), OWN_PRODUCT)


@pytest.mark.parametrize(
    "as_given", [lambda w: w.view(-1, 1), lambda w: w.float()], ids=["a column", "floats"]
)
def test_weights_of_another_form_are_left_to_pyg(as_given, edges):
    layer, x, weight = layer_of(["symnorm"]), torch.randn(NODES, WIDTH), as_given(torch.rand(EDGES))
    sentence = "the weights of its normalisation are not one number an edge"
    refused(lambda: layer.propagate(edges, x=x, symnorm_weight=weight), sentence, **BITS)
