"""HypergraphConv, with and without attention, against PyG."""

import math

import pytest
import torch
from torch_geometric import nn as gnn
from torch_geometric.experimental import set_experimental_mode

import onehop
from onehop import thresholds
from onehop.integrations.pyg import hyperedges
from tests.integrations.pyg.conftest import make_edges
from tests.integrations.same import fast, learned, same_after, same_error, saved_sizes

NODES, HYPEREDGES, ENTRIES, WIDTH = 20, 9, 120, 6
OPTIONS = {
    "plain": {},
    "nodes": {"use_attention": True, "heads": 2},
    "hyperedges": {"use_attention": True, "heads": 2, "attention_mode": "edge", "concat": False},
    "dropout": {"use_attention": True, "dropout": 0.4, "bias": False},
    "mean": {"use_attention": True, "aggr": "mean"},
}

pytestmark = pytest.mark.usefixtures("in_doubles")


@pytest.fixture
def entries():
    """The last node and the last hyperedge have none."""
    return make_edges(NODES, HYPEREDGES, ENTRIES)


@pytest.fixture(autouse=True)
def _at_every_size():
    with thresholds.lifted():
        yield


def operands(layer):
    attributes = torch.randn(HYPEREDGES, WIDTH).requires_grad_() if layer.use_attention else None
    x, weight = torch.randn(NODES, WIDTH).requires_grad_(), torch.rand(HYPEREDGES).requires_grad_()
    return [x, weight, attributes]


def results(layer, entries, x, weight, attributes):
    return learned(layer(x, entries, weight, attributes, HYPEREDGES), x, weight, attributes, layer)


@pytest.mark.parametrize("name", OPTIONS)
def test_outputs_and_gradients(name, entries):
    layer = gnn.HypergraphConv(WIDTH, 4, **OPTIONS[name])
    given = operands(layer)
    assert len(fast(lambda: results(layer, entries, *given))) == 2


def test_a_row_for_each_entry_is_not_made(entries):
    layer = gnn.HypergraphConv(WIDTH, 16, use_attention=True)
    x, *given = operands(layer)
    with onehop.patch(), saved_sizes() as sizes:
        layer(x, entries, *given, HYPEREDGES)
    assert max(sizes) < ENTRIES * 16 / 4


def test_graphs_are_made_once_and_changes_are_noticed(entries):
    layer = gnn.HypergraphConv(WIDTH, 4)
    given = operands(layer)
    with onehop.patch():
        results(layer, entries, *given)
        known = onehop.cache_info().entries
        results(layer, entries, *given)
        assert onehop.cache_info().entries == known
    same_after(lambda: results(layer, entries, *given), lambda: entries[0, ::3].fill_(1))


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_extreme_numbers(number, entries):
    layer = gnn.HypergraphConv(WIDTH, 4, use_attention=True)
    x, weight, attributes = operands(layer)
    with torch.no_grad():
        x[3, 1] = attributes[2] = number
        weight[1] = 0.0
    fast(lambda: layer(x, entries, weight, attributes, HYPEREDGES))


@pytest.mark.parametrize("wrong", ["node", "hyperedge", "width", "no attributes", "weights"])
def test_errors_are_pygs(wrong, entries):
    layer = gnn.HypergraphConv(WIDTH, 4, use_attention=True)
    x, weight, attributes = operands(layer)
    if wrong in ("node", "hyperedge"):
        entries[int(wrong == "hyperedge"), 5] = NODES + 3
    elif wrong == "width":
        x = x[:, 1:]
    elif wrong == "no attributes":
        attributes = None
    else:
        weight = torch.rand(2)
    same_error(lambda: layer(x, entries, weight, attributes, HYPEREDGES))


def test_what_is_not_plain_is_pygs(entries, monkeypatch):
    layer = gnn.HypergraphConv(WIDTH, 4, use_attention=True)
    x, _, attributes = operands(layer)
    monkeypatch.setattr(hyperedges, "edge_softmax", lambda *_: pytest.fail("not PyG's code"))
    with onehop.patch():
        call = (x, entries, None, attributes)
        with monkeypatch.context() as small:
            small.setattr(thresholds, "now", thresholds.ORDINARY)
            layer(*call)
        layer(x, torch.empty(2, 0, dtype=torch.long), None, attributes)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            layer(*call)
        with (
            set_experimental_mode(True, "disable_dynamic_shapes"),
            pytest.raises(ValueError, match="num_edges"),
        ):
            layer(*call)
    with onehop.patch(only=["GCNConv"]):
        layer(*call)
