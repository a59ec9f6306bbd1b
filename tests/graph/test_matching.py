"""Pairs of neighbours against a search one by one."""

import pytest
import torch

from onehop import ArgumentError, IndexRangeError
from onehop.graph.matching import matched


def naive(rowptr: list[int], col: list[int], weight: list[float], order: list[int]) -> list[int]:
    cluster = [-1] * (len(rowptr) - 1)
    for node in order:
        if cluster[node] < 0:
            near = [
                (-weight[edge], edge)
                for edge in range(rowptr[node], rowptr[node + 1])
                if col[edge] != node and cluster[col[edge]] < 0 <= weight[edge]
            ]
            other = col[min(near)[1]] if near else node
            cluster[node] = cluster[other] = min(node, other)
    return cluster


@pytest.mark.parametrize("weights", [None, "ties", "some negative"])
@pytest.mark.parametrize("seed", range(5))
def test_random_graphs(weights, seed):
    torch.manual_seed(seed)
    rowptr = torch.cat([torch.zeros(1), torch.randint(0, 5, (30,)).cumsum(0)]).long()
    edges = int(rowptr[-1])
    col = torch.randint(0, 30, (edges,))
    weight = (
        None if weights is None else torch.randint(-2 if "negative" in weights else 0, 3, (edges,)).float()
    )
    state = torch.get_rng_state()
    order = torch.randperm(30).tolist()
    torch.set_rng_state(state)
    given = [0.0] * edges if weight is None else weight.tolist()
    found = matched(rowptr, col, None if weight is None else weight.unsqueeze(1))
    assert found.tolist() == naive(rowptr.tolist(), col.tolist(), given, order)


def test_graphs_without_edges():
    none = torch.empty(0, dtype=torch.int64)
    assert matched(torch.zeros(4, dtype=torch.int64), none).tolist() == [0, 1, 2]
    assert matched(torch.zeros(1, dtype=torch.int64), none).tolist() == []


def test_bad_input():
    rowptr = torch.tensor([0, 1, 2])
    for wrong in (torch.tensor([0, 1, 3]), torch.tensor([1, 1, 2]), torch.tensor([0, 3, 2])):
        with pytest.raises(ArgumentError, match="rowptr: expected numbers that ascend from 0 to the 2"):
            matched(wrong, torch.tensor([1, 0]))
    with pytest.raises(ArgumentError, match="weight: expected 2 numbers"):
        matched(rowptr, torch.tensor([1, 0]), torch.ones(3))
    for node in (-1, 2):
        with pytest.raises(IndexRangeError, match=r"col: expected nodes in \[0, 2\)"):
            matched(rowptr, torch.tensor([node, node]))
