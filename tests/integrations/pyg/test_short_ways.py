"""Layers that stay with PyG for their size: found out once, and no more prepared from then on."""

import pytest
import torch
from torch_geometric import nn as gnn

import onehop
from onehop import thresholds
from onehop.integrations.pyg import propagate
from onehop.integrations.pyg.conditions import FITS_CACHE

WIDTH = 8


def test_the_second_call_goes_straight_to_pyg(edge_index, took_fast_path, monkeypatch):
    monkeypatch.setattr(thresholds, "now", thresholds.Thresholds(few_edges=0))
    layer, x = gnn.ResGatedGraphConv(WIDTH, 4), torch.randn(20, WIDTH)
    expected = layer(x, edge_index)
    with onehop.patch():
        assert took_fast_path(layer, x, edge_index) == [FITS_CACHE]
        monkeypatch.setattr(propagate, "_prepare", lambda *_: pytest.fail("it was prepared again"))
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
