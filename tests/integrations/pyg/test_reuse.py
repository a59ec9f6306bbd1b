"""Aggregates of constant features are kept, never outlive what they were made from, and change no result."""

import pytest
import torch
from torch import Tensor
from torch.nn import Linear
from torch_geometric.nn import GCNConv, GINConv, SAGEConv, SGConv, SimpleConv

import onehop
from onehop import thresholds
from onehop.graph.identity import CACHE
from onehop.integrations.pyg import reuse
from onehop.integrations.pyg.rules.plain import Aggregation

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
    counted = []
    compute = Aggregation.computed

    def counting(self):
        counted.append(self)
        return compute(self)

    monkeypatch.setattr(Aggregation, "computed", counting)
    return counted


def results(layer, x: Tensor, edge_index: Tensor) -> list[Tensor]:
    layer.zero_grad()
    out = layer(x, edge_index)
    out.square().sum().backward()
    return [out.detach(), *(parameter.grad.clone() for parameter in layer.parameters())]


@pytest.mark.parametrize("kind", LAYERS)
def test_results_and_gradients_stay_those_of_pyg(kind, x, edge_index):
    torch.manual_seed(2)
    layer = LAYERS[kind]()
    expected = results(layer, x, edge_index)
    with onehop.patch():
        for _ in range(4):
            for got, want in zip(results(layer, x, edge_index), expected, strict=True):
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4 * float(want.abs().max()))


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


def test_without_reuse_every_call_computes(x, edge_index, sums):
    layer = LAYERS["SAGE"]()
    with onehop.patch(reuse=False):
        for _ in range(4):
            layer(x, edge_index)
    assert len(sums) == 4


def test_the_environment_turns_it_off(x, edge_index, sums, monkeypatch):
    monkeypatch.setenv("ONEHOP_REUSE", "0")
    layer = LAYERS["SAGE"]()
    with onehop.patch():
        for _ in range(4):
            layer(x, edge_index)
    assert len(sums) == 4


def test_leaving_the_block_turns_it_off_again(x, edge_index, sums):
    with onehop.patch(reuse=False):
        with onehop.patch(reuse=True):
            pass
        for _ in range(4):
            LAYERS["SAGE"]()(x, edge_index)
    assert len(sums) == 4


@pytest.mark.parametrize("kind", ["SAGE", "GCN"])
@pytest.mark.parametrize("hidden", [False, True], ids=["counted write", "write past the version counter"])
def test_written_features_are_seen(kind, hidden, x, edge_index):
    layer = LAYERS[kind]()
    with onehop.patch():
        for _ in range(4):
            results(layer, x, edge_index)
        (x.data if hidden else x)[5, 3] += 100
        got = layer(x, edge_index)
    torch.testing.assert_close(got, layer(x, edge_index), rtol=1e-4, atol=1e-3)


def test_written_edges_are_seen(x, edge_index):
    layer = LAYERS["SAGE"]()
    with onehop.patch():
        for _ in range(4):
            results(layer, x, edge_index)
        edge_index[0, :100] = 0
        got = layer(x, edge_index)
    torch.testing.assert_close(got, layer(x, edge_index), rtol=1e-4, atol=1e-4)


def test_an_aggregate_that_the_caller_changed_is_not_given_back(x, edge_index):
    layer = SimpleConv(aggr="sum")
    expected = layer(x, edge_index)
    with onehop.patch():
        for _ in range(5):
            got = layer(x, edge_index)
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
            got.zero_()


def test_new_weights_give_new_sums(x, edge_index):
    layer = SimpleConv(aggr="sum")
    weight = torch.rand(EDGES)
    with onehop.patch():
        for _ in range(4):
            layer(x, edge_index, weight)
        weight *= 2
        got = [layer(x, edge_index, w) for w in (weight, torch.ones(EDGES), None)]
    for result, w in zip(got, (weight, torch.ones(EDGES), None), strict=True):
        torch.testing.assert_close(result, layer(x, edge_index, w), rtol=1e-4, atol=1e-4)


def test_features_with_a_gradient_are_computed_anew(x, edge_index, sums):
    x.requires_grad_()
    layer = LAYERS["GCN"]()
    with onehop.patch():
        for _ in range(4):
            layer(x, edge_index).sum().backward()
    assert len(sums) == 4


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
