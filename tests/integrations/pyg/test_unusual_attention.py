"""Attention layers with parameters, operands, edges and functions as few people give them."""

import inspect
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch_geometric import nn as gnn

import onehop
from onehop.integrations.pyg.known import edge_updates

WIDTH = 6


@pytest.fixture
def x() -> Tensor:
    return torch.randn(20, WIDTH, generator=torch.Generator().manual_seed(5))


def assert_as_pygs(function: Callable[[], Tensor]) -> None:
    expected = function()
    with onehop.patch():
        found = function()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


class NarrowScores(gnn.AGNNConv):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, x_norm=normalize(x[:, :2], dim=-1))


def test_scores_of_agnn_from_some_of_the_columns(x, edge_index):
    layer = NarrowScores(add_self_loops=False)
    assert_as_pygs(lambda: layer(x, edge_index))


def test_a_factor_of_agnn_for_every_edge(x, edge_index):
    layer = gnn.AGNNConv(add_self_loops=False)
    layer.beta = torch.nn.Parameter(torch.linspace(-1, 2, edge_index.size(1)))
    assert_as_pygs(lambda: layer(x, edge_index))


class OtherScores(gnn.GATConv):
    """Weights of the edges turned round."""

    def edge_updater(self, edge_index: Tensor, **operands: object) -> Tensor:
        return super().edge_updater(edge_index.flip(0), **operands)


def test_weights_of_other_edges(x, edge_index):
    torch.manual_seed(0)
    layer = OtherScores(WIDTH, 4, heads=2, add_self_loops=False)
    assert_as_pygs(lambda: layer(x, edge_index))


@pytest.mark.parametrize("kind", [gnn.GATConv, gnn.GATv2Conv])
def test_a_function_of_the_scores_that_is_replaced_after_the_patch(kind, x, edge_index, monkeypatch):
    # As in a new process, where no layer has been called before the patch.
    edge_updates.cache_clear()
    torch.manual_seed(0)
    layer, theirs = kind(WIDTH, 4, heads=2).eval(), kind.edge_update

    def turned(self, *args, **kwargs):
        return 1 - theirs(self, *args, **kwargs)

    turned.__signature__ = inspect.signature(theirs)
    with onehop.patch():
        monkeypatch.setattr(kind, "edge_update", turned)
        found = layer(x, edge_index)
    expected = layer(x, edge_index)
    monkeypatch.undo()
    edge_updates.cache_clear()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(expected, layer(x, edge_index))
