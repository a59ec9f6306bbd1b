"""Aggregates of constant features are kept, never outlive what they were made from, and change no result."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import Linear
from torch_geometric.nn import GCNConv, GINConv, SAGEConv, SGConv, SimpleConv

import onehop
from onehop import thresholds
from onehop.graph.identity import CACHE
from onehop.integrations.pyg import reuse
from onehop.integrations.pyg.aggregation import Aggregation
from tests.integrations.same import learned, noted, same, same_after

NODES, EDGES, WIDTH = 300, 8_000, 160
assert thresholds.ORDINARY.kept_work <= EDGES * WIDTH

LAYERS = {
    "GCN": lambda: GCNConv(WIDTH, 7),
    "GCN cached": lambda: GCNConv(WIDTH, 7, cached=True),
    "GCN without normalisation": lambda: GCNConv(WIDTH, 7, normalize=False, bias=False),
    "SAGE": lambda: SAGEConv(WIDTH, 7),
    "SAGE max": lambda: SAGEConv(WIDTH, 7, aggr="max"),
    "GIN": lambda: GINConv(Linear(WIDTH, 7), train_eps=True),
    "SG": lambda: SGConv(WIDTH, 7, K=2),
}


@pytest.fixture
def edge_index() -> Tensor:
    return torch.randint(NODES, (2, EDGES), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def x() -> Tensor:
    return torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def sums(monkeypatch):
    """Counts the aggregations that are computed."""
    return noted(monkeypatch, Aggregation, "computed")


def results(layer, x: Tensor, edge_index: Tensor) -> list[Tensor]:
    return learned(layer(x, edge_index), layer)


@pytest.mark.parametrize("kind", LAYERS)
def test_results_and_gradients_stay_those_of_pyg(kind, x, edge_index):
    layer, x = LAYERS[kind]().double(), x.double()
    same(lambda: results(layer, x, edge_index), times=4)


@pytest.mark.parametrize(("kind", "computed"), [("SAGE", 2), ("GIN", 2), ("GCN", 2), ("SG", 6)])
@pytest.mark.usefixtures("ordinary_bounds")
def test_computed_until_kept_and_then_no_more(kind, computed, x, edge_index, sums):
    # SGConv has two hops, which multiply first until it was trained. What the first hop gives is constant
    # once it is kept, and the second is kept when it has met that twice.
    layer = LAYERS[kind]()
    with onehop.patch():
        for _ in range(6):
            results(layer, x, edge_index)
    assert len(sums) == computed


@pytest.mark.parametrize("kind", LAYERS)
def test_forward_passes_alone_change_nothing(kind, x, edge_index):
    layer = LAYERS[kind]()
    with onehop.patch():
        first = layer(x, edge_index)
        for _ in range(5):
            assert torch.equal(layer(x, edge_index), first)
            with torch.no_grad():
                assert torch.equal(layer(x, edge_index), first)


@pytest.mark.parametrize("how", ["argument", "environment", "after a block", "features with a gradient"])
def test_every_call_computes_without_reuse(how, x, edge_index, sums, monkeypatch):
    layer = LAYERS["GCN"]()
    if how == "environment":
        monkeypatch.setenv("ONEHOP_REUSE", "0")
    x.requires_grad_(how == "features with a gradient")
    with onehop.patch(reuse=False if how in ("argument", "after a block") else None):
        if how == "after a block":
            with onehop.patch(reuse=True):
                pass
        for _ in range(4):
            layer(x, edge_index).sum().backward()
    assert len(sums) == 4


WRITES = {
    "features": lambda x, edge_index: x[5, 3].add_(100),
    "features, past the version counter": lambda x, edge_index: x.data[5, 3].add_(100),
    "edges": lambda x, edge_index: edge_index[0, :100].fill_(0),
}


@pytest.mark.parametrize("kind", ["SAGE", "GCN"])
@pytest.mark.parametrize("write", WRITES)
def test_writes_are_seen(kind, write, x, edge_index):
    layer, x = LAYERS[kind]().double(), x.double()
    same_after(lambda: results(layer, x, edge_index), lambda: WRITES[write](x, edge_index), times=4)


@pytest.mark.parametrize("counted", [True, False])
def test_a_write_while_an_aggregate_is_kept_is_one_afterwards(counted, x, edge_index, monkeypatch):
    # As another thread may write, at the last moment at which the features are those that were met.
    real, layer = reuse._met_before, SimpleConv()

    def met_before(x: Tensor) -> bool:
        met = real(x)
        x.mul_(2) if counted else np.multiply(x.numpy(), 2, out=x.numpy())
        return met

    with onehop.patch():
        layer(x, edge_index)
        monkeypatch.setattr(reuse, "_met_before", met_before)
        layer(x, edge_index)
        monkeypatch.setattr(reuse, "_met_before", real)
        found = layer(x, edge_index)
    torch.testing.assert_close(found, layer(x, edge_index))


def test_new_weights_give_new_sums(x, edge_index):
    layer, weight, x = SimpleConv(aggr="sum"), torch.rand(EDGES).double(), x.double()
    same_after(lambda: layer(x, edge_index, weight), lambda: weight.mul_(2), times=4)
    same(lambda: [layer(x, edge_index, each) for each in (weight, torch.ones(EDGES).double(), None)])


def test_kept_in_inference_mode_is_not_given_to_training(x, edge_index):
    layer = LAYERS["SAGE"]()
    with onehop.patch():
        with torch.inference_mode():
            for _ in range(4):
                layer(x, edge_index)
        layer(x, edge_index).sum().backward()
    assert layer.lin_l.weight.grad is not None


def test_a_hook_on_the_linear_step_sees_what_pyg_shows_it(x, edge_index):
    layer, seen = LAYERS["GCN"](), []
    layer.lin.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    with onehop.patch():
        for _ in range(4):
            layer(x, edge_index)
    assert all(inputs is x for inputs in seen)


def test_what_is_kept_dies_with_the_features(edge_index):
    layer = LAYERS["SAGE"]()
    onehop.clear_cache()
    x = torch.randn(NODES, WIDTH)
    with onehop.patch():
        for _ in range(4):
            results(layer, x, edge_index)
        held = onehop.cache_info().bytes
        size = x.nbytes
        del x
        assert onehop.cache_info().bytes == held - size


def test_explain_says_so(x, edge_index):
    with onehop.patch():
        assert "kept while the features do not change" in str(onehop.explain(LAYERS["SAGE"](), x, edge_index))


@pytest.mark.usefixtures("ordinary_bounds")
def test_nothing_is_kept_over_graphs_that_are_new_each_time(x, edge_index):
    layer = LAYERS["SAGE"]()
    with onehop.patch():
        for _ in range(4):
            results(layer, x, edge_index.clone())
        assert CACHE.find(x, reuse._AGGREGATES) is None
        for _ in range(2):
            results(layer, x, edge_index)
        assert CACHE.find(x, reuse._AGGREGATES) is not None
