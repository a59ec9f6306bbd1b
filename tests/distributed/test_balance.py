"""Rows and edges of the parts, which every method of partitioning balances both."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from onehop import Graph, datasets
from onehop.distributed import partition
from onehop.distributed.loads import admitted, imbalance, limits, loads
from onehop.distributed.partition import balanced
from onehop.distributed.refinement import BothWays, cut_edges, refined
from tests.distributed.cases import NODES, hostile


@pytest.fixture(params=["greedy", "streamed", "metis"])
def method(request: pytest.FixtureRequest) -> str:
    if request.param == "metis":
        pytest.importorskip("pymetis")
    return request.param


@pytest.fixture(scope="module")
def hubs() -> Graph:
    """A few thousand nodes whose degrees have a heavy tail."""
    found = datasets.twin("arxiv", scale=0.02)
    return Graph.from_edge_index(found.edge_index, found.num_nodes)


def naive_loads(graph: Graph, part: torch.Tensor, parts: int) -> list[list[int]]:
    found = [[0, 0] for _ in range(parts)]
    for each in part.tolist():
        found[each][0] += 1
    for target in graph.edge_index()[1].tolist():
        found[int(part[target])][1] += 1
    return found


@pytest.mark.parametrize("parts", [4, 16])
def test_rows_and_edges_are_within_a_tenth_of_the_mean(hubs: Graph, method: str, parts: int) -> None:
    part = partition(hubs, parts, method)
    assert part.dtype == torch.int32
    found = naive_loads(hubs, part, parts)
    assert loads(hubs, part, parts).tolist() == found
    for mean, each in ((hubs.num_dst / parts, 0), (hubs.num_edges / parts, 1)):
        most = max(load[each] for load in found)
        assert most <= max(1.1 * mean, mean + 2)
        assert imbalance(hubs, part, parts)[each] == pytest.approx(most / mean)


def test_more_parts_than_nodes(method: str) -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 0]]), 3)
    part = partition(graph, 8, method)
    assert len(part) == 3
    assert 0 <= int(part.min()) <= int(part.max()) < 8


def lopsided(graph: Graph, parts: int) -> torch.Tensor:
    """Nodes of many edges in the first parts, and all others in the last."""
    part = torch.full((graph.num_dst,), parts - 1, dtype=torch.int32)
    order = graph.in_degrees.argsort(descending=True, stable=True)
    for rank in range(parts - 1):
        part[order[rank * 5 : rank * 5 + 5]] = rank
    return part


def test_what_is_all_in_one_part_is_spread(hubs: Graph) -> None:
    both = BothWays(hubs, hubs.transpose())
    start = lopsided(hubs, 6)
    assert min(imbalance(hubs, start, 6)) > 3
    kept = start.clone()
    found = balanced(both, start, 6)
    assert torch.equal(start, kept)
    assert max(imbalance(hubs, found, 6)) < 1.11
    assert torch.equal(found, balanced(both, start, 6))


def test_what_is_balanced_stays(hubs: Graph) -> None:
    both = BothWays(hubs, hubs.transpose())
    part = balanced(both, lopsided(hubs, 4), 4)
    assert torch.equal(balanced(both, part, 4), part)


def test_a_hub_with_more_edges_than_a_part_may_have_makes_nothing_worse() -> None:
    targets = torch.cat([torch.zeros(500, dtype=torch.int64), torch.arange(100)])
    sources = torch.arange(600) % 100
    graph = Graph.from_edge_index(torch.stack([sources, targets]), 100)
    start = (torch.arange(100) % 4).int()
    found = balanced(BothWays(graph, graph.transpose()), start, 4)
    rows, edges = imbalance(graph, found, 4)
    assert rows <= 1.11
    assert edges <= imbalance(graph, start, 4)[1]


def test_moves_to_neighbours_cut_fewer_edges_and_keep_the_balance(hubs: Graph) -> None:
    both = BothWays(hubs, hubs.transpose())
    part = balanced(both, lopsided(hubs, 4), 4)
    found = refined(both, part, 4, seed=0)
    assert cut_edges(hubs, found) < cut_edges(hubs, part)
    assert bool((loads(hubs, found, 4) <= limits(hubs.num_dst, hubs.num_edges, 4)).all())


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 9)), max_size=30),
    st.lists(st.integers(0, 12), min_size=8, max_size=8),
)
@settings(max_examples=200, deadline=None)
def test_admission_is_that_of_a_loop(nodes: list[tuple[int, int, int]], before: list[int]) -> None:
    nodes = sorted(nodes, key=lambda node: node[0])
    most, sums = [15, 25], [list(each) for each in np.array(before).reshape(4, 2)]
    expected = []
    for goal, *work in nodes:
        for kind in range(2):
            sums[goal][kind] += work[kind]
        expected.append(all(work[k] == 0 or sums[goal][k] <= most[k] for k in range(2)))
    columns = torch.tensor(nodes, dtype=torch.int64).reshape(-1, 3)
    load = torch.tensor(before).view(4, 2)
    assert admitted(columns[:, 0], columns[:, 1:], load, torch.tensor(most)).tolist() == expected


def test_repeats(method: str) -> None:
    found = [partition(Graph.from_edge_index(hostile(), NODES), 3, method) for _ in range(2)]
    assert torch.equal(*found)
    assert len(found[0]) == NODES
    assert 0 <= int(found[0].min()) <= int(found[0].max()) < 3
