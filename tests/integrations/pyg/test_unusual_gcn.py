"""GCNConv with edges of its own, with a normalisation that somebody replaced, and with columns that tie."""

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv import gcn_conv

import onehop
from onehop.integrations.pyg.aggregation import Aggregation

NARROW, WIDE = 5, 24


@pytest.fixture
def x() -> Tensor:
    return torch.randn(20, NARROW, generator=torch.Generator().manual_seed(1))


def test_the_edges_that_a_layer_holds_are_used_whatever_it_says_now(x, edge_index):
    layer = GCNConv(NARROW, WIDE, cached=True)
    layer(x, edge_index)
    layer.cached = False
    other = edge_index.flip(0)
    expected = layer(x, other)
    with onehop.patch():
        torch.testing.assert_close(layer(x, other), expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(layer(x, edge_index), expected, rtol=1e-5, atol=1e-6)


def test_a_normalisation_that_is_replaced_after_the_patch_is_called(x, edge_index, monkeypatch):
    def ones(edge_index, edge_weight=None, *rest, **named):
        return edge_index, torch.full((edge_index.size(1),), 0.5)

    layer = GCNConv(NARROW, WIDE)
    with onehop.patch():
        ours = layer(x, edge_index)
        monkeypatch.setattr(gcn_conv, "gcn_norm", ones)
        found = layer(x, edge_index)
        monkeypatch.undo()
    monkeypatch.setattr(gcn_conv, "gcn_norm", ones)
    torch.testing.assert_close(found, layer(x, edge_index), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(found, ours)


def test_aggregates_are_kept_where_both_orders_have_as_many_columns(edge_index, bounds, monkeypatch):
    # Forward alone of 2 W columns, or forward and backward of W.
    bounds(kept_work=0, meetings=1, few_edges=0, few_work=0)
    counted = []
    compute = Aggregation.computed

    def counting(self):
        counted.append(self)
        return compute(self)

    monkeypatch.setattr(Aggregation, "computed", counting)
    layer, x = GCNConv(2 * NARROW, NARROW), torch.randn(20, 2 * NARROW)
    with onehop.patch(reuse=True):
        for _ in range(3):
            layer(x, edge_index).sum().backward()
        before = len(counted)
        for _ in range(4):
            layer(x, edge_index).sum().backward()
        assert len(counted) == before > 0
