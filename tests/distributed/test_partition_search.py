"""How the partitioners choose among parts: what they try, in which order, and what they keep."""

import sys

import numpy as np
import pytest
import torch

from onehop import Graph
from onehop.datasets import planted
from onehop.distributed import partition
from onehop.distributed.partition import _gains, _move, _pieces, cut_edges
from onehop.distributed.streamed_partition import _placed
from tests.distributed.cases import NODES, hostile


@pytest.fixture(scope="module")
def communities() -> Graph:
    """12 communities of 20 nodes."""
    rng = np.random.default_rng(1)
    labels = rng.permutation(np.repeat(np.arange(12), 20))
    edge_index = planted.edges(rng, labels, num_pairs=1500, exponent=0.0, same_class=0.8)
    return Graph.from_edge_index(edge_index, len(labels))


def test_the_seed_is_zero_where_none_is_given(communities: Graph) -> None:
    found = [partition(communities, 4, "greedy", **given) for given in ({}, {"seed": 0}, {"seed": 1})]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_moves_of_single_nodes_cut_fewer_edges_than_pieces_of_an_order(communities: Graph) -> None:
    pieces = _pieces(communities, 1 + communities.in_degrees, 4)
    assert cut_edges(communities, partition(communities, 4, "greedy")) < cut_edges(communities, pieces)


@pytest.mark.parametrize("method", ["greedy", "streamed"])
def test_the_work_of_a_node_is_one_and_its_edges(method: str) -> None:
    ring = torch.arange(20)
    graph = Graph.from_edge_index(torch.stack([ring, ring.roll(1)]), 60)  # 40 nodes have no edges
    work = torch.bincount(partition(graph, 2, method).long(), 1.0 + graph.in_degrees, minlength=2)
    assert float(work.max()) <= 1.05 * 40


def test_nodes_without_edges_are_shared_evenly() -> None:
    graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), 6)
    assert partition(graph, 3).tolist() == [0, 0, 1, 1, 2, 2]
    assert partition(Graph.from_edge_index(torch.empty(2, 0).long(), 0), 3).tolist() == []


@pytest.mark.parametrize("counts", [1, 4 * 7, 4 * NODES - 1])
def test_neighbours_are_counted_block_by_block(counts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    edge_index = hostile()
    graph, part = Graph.from_edge_index(edge_index, NODES), (torch.arange(NODES) % 4).int()
    number = torch.zeros(NODES, 4, dtype=torch.int64)
    for node, other in torch.cat([edge_index, edge_index.flip(0)], 1).t().tolist():
        number[node, part[other]] += 1
    # By its full name, as the package has a function of this name.
    monkeypatch.setattr(sys.modules["onehop.distributed.partition"], "_COUNTS", counts)
    gain, goal = _gains(graph, graph.transpose(), part, 4)
    most, own = number.max(1).values, number[torch.arange(NODES), part.long()]
    assert torch.equal(gain, most - own)
    assert torch.equal(number[torch.arange(NODES), goal], most)


def test_the_largest_gain_moves_first() -> None:
    part = torch.tensor([0, 0, 0, 1], dtype=torch.int32)
    # Nodes 0 to 2 want to go to part 1, which has room for one more.
    _move(part, torch.tensor([1, 1, 1, 1]), torch.tensor([2, 5, 3, 0]), torch.ones(4).long(), 2.0, 2)
    assert part.tolist() == [0, 1, 0, 1]


def test_no_node_moves_without_a_gain() -> None:
    part = torch.tensor([0, 0, 1], dtype=torch.int32)
    _move(part, torch.tensor([1, 1, 1]), torch.tensor([0, 1, 0]), torch.ones(3).long(), 3.0, 2)
    assert part.tolist() == [0, 1, 1]


@pytest.mark.parametrize("second", [[0.5, 0.8], [0.0, 0.0]], ids=str)
def test_a_row_tries_its_second_part_where_the_first_is_full(second: list[float]) -> None:
    load = torch.tensor([2.0, 0.0, 0.5] if second[1] else [2.0, 0.5, 0.0])
    goal = _placed(torch.tensor([[3.0, *second]]), torch.ones(1), load, 2.0)
    expected = 2 if second[1] else 1  # not the emptiest part
    assert goal.tolist() == [expected]
    assert load.tolist()[expected] == 1.5


def test_the_clearest_row_has_the_first_choice() -> None:
    load = torch.zeros(2, dtype=torch.float64)
    score = torch.tensor([[1.0, 0.5], [3.0, 0.5], [2.0, 0.5]], dtype=torch.float64)
    assert _placed(score, torch.ones(3, dtype=torch.float64), load, 2.0).tolist() == [1, 0, 0]
    assert load.tolist() == [2.0, 1.0]


def test_of_equal_rows_the_first_has_the_first_choice() -> None:
    score = torch.tensor([[1.0, 0.5]] * 20, dtype=torch.float64)
    load = torch.zeros(2, dtype=torch.float64)
    goal = _placed(score, torch.ones(20, dtype=torch.float64), load, 12.0)
    assert goal.tolist() == [0] * 12 + [1] * 8
