"""Layers that stay with PyG for their size: found out once, and no more prepared from then on."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import EdgeIndex, nn as gnn

import onehop
from onehop import thresholds
from onehop.integrations.pyg import propagate, small
from onehop.integrations.pyg.conditions import FITS_CACHE
from onehop.integrations.pyg.steps import propagated

WIDTH, NODES, EDGES = 8, 20, 90
PNA = {"aggregators": ["mean", "max"], "scalers": ["identity"], "deg": torch.tensor([2, 9, 9])}
# Layers of PyG whose messages treat each edge on its own, and whether they take features of edges.
IN_CACHE = {
    "ResGated": (lambda **options: gnn.ResGatedGraphConv(WIDTH, 4, edge_dim=3, **options), True),
    "Edge": (lambda **options: gnn.EdgeConv(torch.nn.Linear(2 * WIDTH, 4), **options), False),
    "General": (lambda **options: gnn.GeneralConv(WIDTH, 4, in_edge_channels=3, **options), True),
    "FiLM": (lambda **options: gnn.FiLMConv(WIDTH, 4, **options), False),
    "FeaSt": (lambda **options: gnn.FeaStConv(WIDTH, 4, heads=2, **options), False),
    "GINE": (lambda **options: gnn.GINEConv(torch.nn.Linear(WIDTH, 4), edge_dim=3, **options), True),
    "CG": (lambda **options: gnn.CGConv(WIDTH, dim=3, **options), True),
    "PNA": (lambda **options: gnn.PNAConv(WIDTH, 4, **PNA, edge_dim=3, **options), True),
    "median": (lambda **options: gnn.SAGEConv(WIDTH, 4, aggr="median", **options), False),
    "dropout in it": (lambda **options: gnn.EdgeConv(_dropping(), **options), False),
}


def _dropping() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(2 * WIDTH, 4), torch.nn.Dropout(0.5))


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether PyG's steps ran, for each time that they were asked for."""
    ran: list[bool] = []

    def spy(*args: Any) -> Tensor | None:
        out = propagated(*args)
        ran.append(out is not None)
        return out

    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    monkeypatch.setattr(small, "propagated", spy)
    return ran


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("name", IN_CACHE)
def test_messages_that_fit_in_the_cache_have_the_bits_of_pyg(name, flow, edge_index, steps, took_fast_path):
    torch.manual_seed(0)
    make, takes_features = IN_CACHE[name]
    layer, x = make(flow=flow), torch.randn(NODES, WIDTH, requires_grad=True)
    others = [torch.randn(EDGES, 3)] if takes_features else []
    leaves = [x, *layer.parameters()]

    def passed() -> list[Tensor | None]:
        torch.manual_seed(1)
        out = layer(x, edge_index, *others)
        gradients = torch.autograd.grad(out.square().sum(), leaves, allow_unused=True)
        return [out, *gradients, torch.rand(3)]

    expected = passed()
    with onehop.patch():
        for _ in range(2):
            for ours, theirs in zip(passed(), expected, strict=True):
                assert (ours is None) == (theirs is None)
                assert ours is None or torch.equal(ours, theirs)
        assert took_fast_path(passed) == [FITS_CACHE]
    assert steps == [True] * 3


@pytest.mark.parametrize("case", ["its own message", "its own update", "a hook", "left out", "an EdgeIndex"])
def test_steps_are_left_to_pyg(case, edge_index, steps):
    class OwnMessage(gnn.EdgeConv):
        def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
            return self.nn(torch.cat([x_i, x_j], dim=-1))

    class OwnUpdate(gnn.EdgeConv):
        def update(self, inputs: Tensor) -> Tensor:
            return inputs + 1

    kinds = {"its own message": OwnMessage, "its own update": OwnUpdate}
    layer, x = kinds.get(case, gnn.EdgeConv)(torch.nn.Linear(2 * WIDTH, 4)), torch.randn(NODES, WIDTH)
    seen: list[str] = []
    if case == "a hook":
        layer.register_aggregate_forward_hook(lambda *_: seen.append(case))
    edges = EdgeIndex(edge_index, sparse_size=(NODES, NODES)) if case == "an EdgeIndex" else edge_index
    expected = layer(x, edges)
    seen.clear()
    with onehop.patch(only="SAGEConv" if case == "left out" else None):
        for _ in range(2):
            assert torch.equal(layer(x, edges), expected)
    assert steps == []
    assert seen == [case] * 2 * (case == "a hook")


def test_a_transform_has_the_result_of_pyg(edge_index, steps):
    layer, x = gnn.EdgeConv(torch.nn.Linear(2 * WIDTH, 4)), torch.randn(3, NODES, WIDTH)
    expected = torch.stack([layer(each, edge_index) for each in x])
    with onehop.patch():
        layer(x[0], edge_index)
        steps.clear()
        torch.testing.assert_close(torch.vmap(lambda each: layer(each, edge_index))(x), expected)
    assert steps == []


def test_the_second_call_goes_straight_to_pyg(edge_index, took_fast_path, monkeypatch):
    monkeypatch.setattr(thresholds, "now", thresholds.Thresholds(few_edges=0))
    layer, x = gnn.ResGatedGraphConv(WIDTH, 4), torch.randn(20, WIDTH)
    expected = layer(x, edge_index)
    with onehop.patch():
        assert took_fast_path(layer, x, edge_index) == [FITS_CACHE]
        monkeypatch.setattr(propagate, "prepare", lambda *_: pytest.fail("it was prepared again"))
        assert torch.equal(layer(x, edge_index), expected)


def test_a_larger_graph_of_the_same_class_is_prepared(edge_index, took_fast_path, monkeypatch):
    layer, x = gnn.ResGatedGraphConv(WIDTH, 4), torch.randn(20, WIDTH)
    many = edge_index.repeat(1, 40)
    bytes_of_an_edge = 4 * 4  # four columns of float32
    between = bytes_of_an_edge * (edge_index.size(1) + many.size(1)) // 2
    monkeypatch.setattr(thresholds, "now", thresholds.Thresholds(few_edges=0, cached_bytes=between))
    with onehop.patch():
        layer(x, edge_index)
        layer(x, edge_index)
        assert took_fast_path(layer, x, edge_index) == [FITS_CACHE]
        assert took_fast_path(layer, x, many) == [None]
