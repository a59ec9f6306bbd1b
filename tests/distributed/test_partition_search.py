"""How the partitioners choose among parts: what they try, in which order, and what they keep."""

import sys
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from onehop import Graph
from onehop.datasets import planted
from onehop.distributed import partition, refinement
from onehop.distributed.partition import _pieces, _placed
from onehop.distributed.refinement import BothWays, cut_edges, move, wishes_of
from tests.distributed.cases import NODES, hostile

Edges = Sequence[tuple[int, int]]


@pytest.fixture(scope="module")
def communities() -> Graph:
    """12 communities of 20 nodes."""
    rng = np.random.default_rng(1)
    labels = rng.permutation(np.repeat(np.arange(12), 20))
    edge_index = planted.edges(rng, labels, num_pairs=1500, exponent=0.0, same_class=0.8)
    return Graph.from_edge_index(edge_index, len(labels))


def test_the_seed_is_zero_where_none_is_given() -> None:
    graph = Graph.from_edge_index(hostile(), NODES)
    found = [partition(graph, 4, "greedy", **given) for given in ({}, {"seed": 0}, {"seed": 1})]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("method", ["auto", "metis", "greedy"])
def test_methods_differ_in_where_the_search_begins(
    method: str, communities: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pymetis")
    module, begun = sys.modules[partition.__module__], []

    def watched(name: str) -> None:
        plain = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given: begun.append(name) or plain(*given))

    watched("_metis")
    watched("_pieces")
    partition(communities, 3, method)
    assert begun[0] == ("_pieces" if method == "greedy" else "_metis")


def test_moves_of_single_nodes_cut_fewer_edges_than_pieces_of_an_order(communities: Graph) -> None:
    pieces = _pieces(communities, 4)
    assert cut_edges(communities, partition(communities, 4, "greedy")) < cut_edges(communities, pieces)


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
    monkeypatch.setattr(refinement, "_COUNTS", counts)
    gain, goal = wishes_of(BothWays(graph, graph.transpose()), torch.arange(NODES), part, 4)
    most, own = number.max(1).values, number[torch.arange(NODES), part.long()]
    assert torch.equal(gain, most - own)
    assert torch.equal(number[torch.arange(NODES), goal], most)


def test_closed_parts_are_no_goals() -> None:
    graph = Graph.from_edge_index(hostile(), NODES)
    both, part = BothWays(graph, graph.transpose()), (torch.arange(NODES) % 4).int()
    closed = torch.tensor([True, False, True, False])
    some = torch.tensor([7, 3, 50, 3])
    gain, goal = wishes_of(both, some, part, 4, closed)
    assert not bool(closed[goal].any())
    full = wishes_of(both, torch.arange(NODES), part, 4, closed)
    assert torch.equal(full.gain[some], gain)
    assert torch.equal(full.goal[some], goal)


def moved(part: list[int], goal: list[int], gain: list[int], most: float, edges: Edges = ()) -> list[int]:
    found = torch.tensor(part, dtype=torch.int32)
    ends = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    graph = Graph.from_edge_index(ends, len(part))
    move(graph, found, torch.tensor(goal), torch.tensor(gain), torch.tensor([most, most]))
    return found.tolist()


def test_the_largest_gain_moves_first() -> None:
    # Nodes 0 to 2 want to go to part 1, which has room for one more.
    assert moved([0, 0, 0, 1], [1, 1, 1, 1], [2, 5, 3, 0], 2.0) == [0, 1, 0, 1]


def test_no_node_moves_without_a_gain() -> None:
    assert moved([0, 0, 1], [1, 1, 1], [0, 1, 0], 3.0) == [0, 1, 1]


def test_no_node_moves_where_its_edges_have_no_room() -> None:
    # Node 0 has four edges and part 1 has one; five are too many there, and node 1 has a single one.
    edges = [(2, 0), (2, 0), (2, 0), (2, 0), (2, 1), (0, 2)]
    assert moved([0, 0, 1], [1, 1, 1], [1, 2, 0], 4.0, edges) == [0, 1, 1]
    assert moved([0, 0, 1], [1, 1, 1], [2, 1, 0], 6.0, edges) == [1, 1, 1]


def placed(score: list[list[float]], load: list[int], most: float) -> tuple[list[int], list[int]]:
    """Goals and loads afterwards, where every row is one of load and has no edges."""
    loads = torch.tensor([[each, 0] for each in load])
    work = torch.tensor([[1, 0]] * len(score))
    scores = torch.tensor(score, dtype=torch.float64)
    goal = _placed(scores, work, loads, torch.tensor([most, 1.0], dtype=torch.float64))
    return goal.tolist(), loads[:, 0].tolist()


@pytest.mark.parametrize("second", [[0.5, 0.8], [0.0, 0.0]], ids=str)
def test_a_row_tries_its_second_part_where_the_first_is_full(second: list[float]) -> None:
    goal, load = placed([[3.0, *second]], [4, 0, 1] if second[1] else [4, 1, 0], 4.0)
    expected = 2 if second[1] else 1  # not the emptiest part
    assert goal == [expected]
    assert load[expected] == 2


def test_the_clearest_row_has_the_first_choice() -> None:
    assert placed([[1.0, 0.5], [3.0, 0.5], [2.0, 0.5]], [0, 0], 2.0) == ([1, 0, 0], [2, 1])


def test_of_equal_rows_the_first_has_the_first_choice() -> None:
    assert placed([[1.0, 0.5]] * 20, [0, 0], 12.0)[0] == [0] * 12 + [1] * 8


def test_rows_without_room_anywhere_go_where_the_load_is_least() -> None:
    assert placed([[2.0, 1.0]] * 3, [4, 3], 3.0) == ([1, 0, 1], [5, 5])
