"""Layers that refuse rows that may be a part, and run as they are where nothing is divided."""

import pytest
import torch

from onehop.distributed import alone, converted
from onehop.errors import ArgumentError

pytest.importorskip("torch_geometric")

from torch_geometric import nn as gnn

from onehop.integrations.pyg.divided import rows as rows_of_divided

ROWS = {(row.owner, row.attribute): row for row in rows_of_divided() if isinstance(row.owner, type)}
ROW_COUNT = 6


@pytest.fixture
def divided():
    """Says that a model runs whose rows are divided."""
    with converted._now.set(converted.Processes(None, 2)):
        yield


def _performer():
    return gnn.attention.PerformerAttention(4, 2), (torch.ones(1, ROW_COUNT, 4), None)


def _pooling():
    x, batch = torch.ones(ROW_COUNT, 4), torch.zeros(ROW_COUNT, dtype=torch.int64)
    return gnn.MemPooling(4, 5, 2, 3), (x, batch)


def _types():
    layer = gnn.HeteroBatchNorm(4, 2)
    return layer, (torch.randn(ROW_COUNT, 4), torch.arange(ROW_COUNT) % 2)


def _heads():
    x = torch.ones(ROW_COUNT, 1, 4)
    return torch.nn.MultiheadAttention(4, 2), (x, x, x)


LAYERS = {
    "dense attention": _performer,
    "pooling": _pooling,
    "normalisation by types": _types,
    "attention over a sequence": _heads,
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
    assert _same(*LAYERS[name]())


@pytest.mark.parametrize("name", LAYERS)
def test_divided_rows_are_refused(name, divided):
    layer, operands = LAYERS[name]()
    kind = type(layer).__name__
    with pytest.raises(ArgumentError, match=f"x: {kind} mixes rows and has no path over several processes"):
        _ours(layer, *operands)
    with alone():
        assert _same(layer, operands)


def test_types_are_normalised_in_evaluation(divided):
    layer, operands = _types()
    assert _same(layer.eval(), operands)
    layer = gnn.HeteroBatchNorm(4, 2, track_running_stats=False).eval()
    with pytest.raises(ArgumentError, match="HeteroBatchNorm mixes"):
        _ours(layer, *operands)


def test_the_ratio_of_distances(divided):
    ratio = ROWS[gnn.DiffGroupNorm, "group_distance_ratio"].ours.__func__
    x, y = 1e-3 * torch.randn(40, 3), torch.arange(40) % 3
    with alone():
        assert ratio(x, y) == gnn.DiffGroupNorm.group_distance_ratio(x, y)
        assert ratio(x, y, 1.0) == gnn.DiffGroupNorm.group_distance_ratio(x, y, 1.0) != ratio(x, y)
    with pytest.raises(ArgumentError, match=r"DiffGroupNorm\.group_distance_ratio mixes"):
        ratio(x=x, y=y)


def test_semantic_labels(divided):
    labels = ROWS[gnn.models.RECT_L, "get_semantic_labels"].ours
    layer = gnn.models.RECT_L(4, 8)
    x, y, mask = torch.randn(40, 3), torch.arange(40) % 3, torch.ones(40, dtype=torch.bool)
    with alone():
        assert torch.equal(labels(layer, x, y, mask), layer.get_semantic_labels(x, y, mask))
    with pytest.raises(ArgumentError, match=r"RECT_L\.get_semantic_labels mixes"):
        labels(layer, x, y, mask)
