"""Layers that refuse the rows of a divided graph; the graph is a stand-in, for one process divides none."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from onehop.distributed import alone, live
from onehop.errors import ArgumentError

pytest.importorskip("torch_geometric")

from torch_geometric import nn as gnn

from onehop.integrations.pyg.divided import refusals

ROWS = {(row.owner, row.attribute): row for row in refusals.rows()}
OWNED, NODES = 6, 40


@pytest.fixture
def divided(monkeypatch):
    """A graph is in use, of which this process owns some nodes."""
    graph = SimpleNamespace(
        num_nodes=OWNED,
        rank=0,
        part=SimpleNamespace(num_nodes=NODES, parts=2, sources=None),
        exchange=SimpleNamespace(group=None),
    )
    monkeypatch.setattr(live, "held_graphs", [graph])
    monkeypatch.setattr(dist, "is_initialized", lambda: True)


def _performer(rows, mask=None):
    return gnn.attention.PerformerAttention(4, 2), (torch.ones(1, rows, 4), mask)


def _pooling(rows, mask=None):
    if mask is None:
        return gnn.MemPooling(4, 5, 2, 3), (torch.ones(rows, 4), torch.zeros(rows, dtype=torch.int64))
    return gnn.MemPooling(4, 5, 2, 3), (torch.ones(1, rows, 4), None, mask)


def _types(rows):
    return gnn.HeteroBatchNorm(4, 2), (torch.randn(rows, 4), torch.arange(rows) % 2)


def _heads(rows):
    x = torch.ones(rows, 1, 4)
    return torch.nn.MultiheadAttention(4, 2), (x, x, x)


def _heads_batch_first(rows):
    x = torch.ones(1, rows, 4)
    return torch.nn.MultiheadAttention(4, 2, batch_first=True), (x, x, x)


def _heads_without_batch(rows):
    x = torch.ones(rows, 4)
    return torch.nn.MultiheadAttention(4, 2, batch_first=True), (x, x, x)


LAYERS = {
    "dense attention": _performer,
    "pooling": _pooling,
    "normalisation by types": _types,
    "attention over a sequence": _heads,
    "the same, batch first": _heads_batch_first,
    "the same, without a batch": _heads_without_batch,
}


def _first(out):
    return out[0] if isinstance(out, tuple) else out


def _ours(layer, *operands):
    (row,) = [row for (owner, _), row in ROWS.items() if isinstance(layer, owner)]
    return _first(row.ours(layer, *operands))


def _same(layer, operands):
    torch.manual_seed(0)
    expected = _first(layer(*operands))
    torch.manual_seed(0)
    return torch.equal(_ours(layer, *operands), expected)


@pytest.mark.parametrize("name", LAYERS)
def test_without_a_graph_they_are_their_own(name):
    layer, operands = LAYERS[name](OWNED)
    assert _same(layer, operands)


@pytest.mark.parametrize("name", LAYERS)
def test_owned_rows_are_refused(name, divided):
    layer, operands = LAYERS[name](OWNED)
    kind = type(layer).__name__
    with pytest.raises(ArgumentError, match=f"{kind} mixes .* got the 6 nodes that rank 0 owns"):
        _ours(layer, *operands)
    with alone():
        assert _same(layer, operands)


@pytest.mark.parametrize("name", LAYERS)
def test_all_rows_are_whole(name, divided):
    assert _same(*LAYERS[name](NODES))


@pytest.mark.parametrize("make_layer", [_performer, _pooling])
def test_rows_that_a_mask_omits_do_not_count(make_layer, divided):
    mask = torch.zeros(1, 9, dtype=torch.bool)
    mask[:, :OWNED] = True
    layer, operands = make_layer(9, mask)
    with pytest.raises(ArgumentError, match="got the 6 nodes"):
        _ours(layer, *operands)
    if make_layer is _performer:
        with pytest.raises(ArgumentError, match="got the 6 nodes"):
            ROWS[type(layer), "forward"].ours(layer, operands[0], mask=mask)


def test_other_sequences_are_left_alone(divided):
    assert _same(*_heads(OWNED + 1))


def test_types_are_normalised_in_evaluation(divided):
    layer, operands = _types(OWNED)
    assert _same(layer.eval(), operands)
    layer = gnn.HeteroBatchNorm(4, 2, track_running_stats=False).eval()
    with pytest.raises(ArgumentError, match="HeteroBatchNorm mixes"):
        _ours(layer, *operands)


def test_the_ratio_of_distances(divided):
    ratio = ROWS[gnn.DiffGroupNorm, "group_distance_ratio"].ours.__func__
    x, y = 1e-3 * torch.randn(NODES, 3), torch.arange(NODES) % 3
    assert ratio(x, y) == gnn.DiffGroupNorm.group_distance_ratio(x, y)
    assert ratio(x, y, 1.0) == gnn.DiffGroupNorm.group_distance_ratio(x, y, 1.0) != ratio(x, y)
    with pytest.raises(ArgumentError, match=r"DiffGroupNorm\.group_distance_ratio mixes .* got the 6 nodes"):
        ratio(x[:OWNED], y[:OWNED])


def test_semantic_labels(divided):
    labels = ROWS[gnn.models.RECT_L, "get_semantic_labels"].ours
    layer = gnn.models.RECT_L(4, 8)
    x, y, mask = torch.randn(NODES, 3), torch.arange(NODES) % 3, torch.ones(NODES, dtype=torch.bool)
    assert torch.equal(labels(layer, x, y, mask), layer.get_semantic_labels(x, y, mask))
    with pytest.raises(ArgumentError, match=r"RECT_L\.get_semantic_labels mixes"):
        labels(layer, x[:OWNED], y[:OWNED], mask[:OWNED])
