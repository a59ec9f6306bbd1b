"""Which divided graph a tensor's rows belong to; graphs are stand-ins, for one process divides none."""

from types import SimpleNamespace

import pytest
import torch.distributed as dist

from onehop.distributed import alone, live
from onehop.errors import ArgumentError


def _graph(owned, nodes, group=None):
    return SimpleNamespace(
        num_nodes=owned,
        rank=1,
        part=SimpleNamespace(num_nodes=nodes, parts=2, sources=None),
        exchange=SimpleNamespace(group=group),
    )


@pytest.fixture
def held(monkeypatch):
    """The graphs that this process holds; the test appends to them."""
    graphs = []
    monkeypatch.setattr(live, "held_graphs", graphs)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    return graphs


def test_without_graphs_everything_is_whole(held):
    assert live.in_use() == []
    assert live.part_with(3) is None
    assert live.divided("it", 3) is None


def test_rows_of_the_owned_nodes(held):
    held += [_graph(4, 10), _graph(5, 12)]
    assert live.part_with(5) is held[1]
    assert live.divided("it", 4) is held[0]
    assert live.divided("it", 5) is held[1]
    assert live.part_with(6) is None


def test_rows_of_all_nodes_are_whole(held):
    held += [_graph(4, 10), _graph(5, 12)]
    assert live.divided("it", 10) is None
    assert live.divided("it", 12) is None


def test_two_divisions_of_one_graph_are_no_doubt(held):
    held += [_graph(4, 10), _graph(4, 10)]
    assert live.divided("it", 4) is held[0]


@pytest.mark.parametrize("other", [_graph(4, 11), _graph(4, 10, group="another")])
def test_rows_that_may_be_of_either_are_refused(held, other):
    held += [_graph(4, 10), other]
    with pytest.raises(ArgumentError, match="4 rows may be a part of several divided graphs"):
        live.divided("it", 4)


def test_other_rows_are_refused(held):
    held += [_graph(4, 10), _graph(5, 12)]
    with pytest.raises(
        ArgumentError, match=r"each of the 4 nodes that rank 1 owns .* over 2 processes, got 7"
    ):
        live.divided("it", 7)


def test_nothing_is_in_use_alone_or_without_processes(held, monkeypatch):
    held += [_graph(4, 10)]
    with alone():
        with alone():
            assert live.divided("it", 7) is None
        assert live.in_use() == []
    assert live.in_use() == held
    assert live.in_use() is not held
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    assert live.in_use() == []
