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


def operands(layer, nodes=NODES, count=HYPEREDGES):
    attributes = torch.randn(count, WIDTH).requires_grad_() if layer.use_attention else None
    return {
        "x": torch.randn(nodes, WIDTH).requires_grad_(),
        "hyperedge_weight": torch.rand(count).requires_grad_(),
        "hyperedge_attr": attributes,
    }


def results(layer, entries, given, **more):
    torch.manual_seed(3)
    out = layer(given["x"], entries, given["hyperedge_weight"], given["hyperedge_attr"], **more)
    loss = (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum()
    leaves = [t for t in (*given.values(), *layer.parameters()) if t is not None]
    return [out, *torch.autograd.grad(loss, leaves, allow_unused=True), torch.rand(1)]


def assert_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("name", OPTIONS)
def test_outputs_and_gradients(name, entries, took_fast_path):
    layer = gnn.HypergraphConv(WIDTH, 4, **OPTIONS[name])
    given = operands(layer)
    expected = results(layer, entries, given, num_edges=HYPEREDGES)
    with onehop.patch(), thresholds.lifted():
        for _ in range(2):
            assert_same(results(layer, entries, given, num_edges=HYPEREDGES), expected)
        call = (layer, given["x"], entries, given["hyperedge_weight"], given["hyperedge_attr"], HYPEREDGES)
        assert took_fast_path(*call) == [None, None]


def test_a_row_for_each_entry_is_not_made(entries):
    layer = gnn.HypergraphConv(WIDTH, 16, use_attention=True)
    given, sizes = operands(layer), []

    def note(tensor):
        sizes.append(tensor.numel())
        return tensor

    saving = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
    with onehop.patch(), thresholds.lifted(), saving:
        layer(given["x"], entries, given["hyperedge_weight"], given["hyperedge_attr"], HYPEREDGES)
    assert max(sizes) < ENTRIES * 16 / 4


def test_graphs_are_made_once_and_changes_are_noticed(entries):
    layer = gnn.HypergraphConv(WIDTH, 4)
    given = operands(layer)
    with onehop.patch(), thresholds.lifted():
        results(layer, entries, given, num_edges=HYPEREDGES)
        known = onehop.cache_info().entries
        results(layer, entries, given, num_edges=HYPEREDGES)
        assert onehop.cache_info().entries == known
        entries[0, ::3] = 1
        ours = results(layer, entries, given, num_edges=HYPEREDGES)
    assert_same(ours, results(layer, entries, given, num_edges=HYPEREDGES))


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_extreme_numbers(number, entries):
    layer = gnn.HypergraphConv(WIDTH, 4, use_attention=True)
    given = operands(layer)
    with torch.no_grad():
        given["x"][3, 1] = number
        given["hyperedge_attr"][2] = number
        given["hyperedge_weight"][1] = 0.0
    expected = results(layer, entries, given, num_edges=HYPEREDGES)[0]
    with onehop.patch(), thresholds.lifted():
        torch.testing.assert_close(
            results(layer, entries, given, num_edges=HYPEREDGES)[0], expected, equal_nan=True
        )


@pytest.mark.parametrize("wrong", ["node", "hyperedge", "width", "no attributes", "weights"])
def test_errors_are_pygs(wrong, entries):
    layer = gnn.HypergraphConv(WIDTH, 4, use_attention=True)
    given = operands(layer)
    entries = entries.clone()
    if wrong in ("node", "hyperedge"):
        entries[int(wrong == "hyperedge"), 5] = NODES + 3
    elif wrong == "width":
        given["x"] = given["x"][:, 1:]
    elif wrong == "no attributes":
        given["hyperedge_attr"] = None
    else:
        given["hyperedge_weight"] = torch.rand(2)
    call = (given["x"], entries, given["hyperedge_weight"], given["hyperedge_attr"], HYPEREDGES)
    with pytest.raises(Exception) as theirs:  # noqa: PT011  whatever PyG raises
        layer(*call)
    with onehop.patch(), thresholds.lifted(), pytest.raises(theirs.type) as ours:
        layer(*call)
    assert str(ours.value) == str(theirs.value)


def test_what_is_not_plain_is_pygs(entries, monkeypatch):
    layer = gnn.HypergraphConv(WIDTH, 4, use_attention=True)
    given = operands(layer)
    monkeypatch.setattr(hyperedges, "edge_softmax", lambda *_: pytest.fail("not PyG's code"))
    with onehop.patch():
        call = (given["x"], entries, None, given["hyperedge_attr"])
        monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
        layer(*call)
    with onehop.patch(), thresholds.lifted():
        layer(given["x"], torch.empty(2, 0, dtype=torch.long), None, given["hyperedge_attr"])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            layer(*call)
        with (
            set_experimental_mode(True, "disable_dynamic_shapes"),
            pytest.raises(ValueError, match="num_edges"),
        ):
            layer(*call)
    with onehop.patch(only=["GCNConv"]), thresholds.lifted():
        layer(*call)
