"""Random walks: along edges, with the chances of first and second order."""

import math
from collections import Counter

import pytest
import torch
from torch import Tensor

from onehop import ArgumentError, IndexRangeError
from onehop.loaders import walks
from onehop.loaders.walks import random_walk

# Node 4 leads to 0 alone and node 5 nowhere; 0 leads to 1 twice.
NEIGHBOURS = {0: [1, 1, 2, 3], 1: [0, 2], 2: [0, 1, 3], 3: [0, 2, 4], 4: [0], 5: []}
WALKS = 60_000


@pytest.fixture
def graph() -> tuple[Tensor, Tensor]:
    rowptr = torch.tensor([0, *map(len, NEIGHBOURS.values())]).cumsum(0)
    # No row is sorted.
    return rowptr, torch.tensor([each for row in NEIGHBOURS.values() for each in row[::-1]])


def chances(before: int, now: int, p: float, q: float) -> dict[int, float]:
    """The chance of each node to come next."""
    weights: Counter[int] = Counter()
    for each in NEIGHBOURS[now]:
        weights[each] += 1 / p if each == before else 1 if each in NEIGHBOURS[before] else 1 / q
    total = sum(weights.values())
    return {each: weight / total for each, weight in weights.items()}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_first_order(graph, dtype):
    rowptr, col = (each.to(dtype) for each in graph)
    found = random_walk(rowptr, col, torch.zeros(WALKS, dtype=dtype), 1)
    assert found.dtype is dtype
    shares = torch.bincount(found[:, 1], minlength=6) / WALKS
    torch.testing.assert_close(shares, torch.tensor([0, 0.5, 0.25, 0.25, 0, 0]), atol=0.01, rtol=0)


@pytest.mark.parametrize("proposals", [0, 1, 32])
@pytest.mark.parametrize(("p", "q"), [(0.25, 4.0), (4.0, 0.5), (1e9, 1.0), (1.0, 1e-3)])
def test_second_order(graph, p, q, proposals, monkeypatch):
    monkeypatch.setattr(walks, "_PROPOSALS", proposals)
    found = random_walk(*graph, torch.full((WALKS,), 3), 2, p, q)
    for middle in NEIGHBOURS[3]:
        then = found[found[:, 1] == middle, 2]
        expected = chances(3, middle, p, q)
        for node in range(6):
            share = float((then == node).double().mean())
            assert share == pytest.approx(expected.get(node, 0.0), abs=0.02)


def of_weights(before: int | None, now: int, p: float, q: float) -> dict[int, float]:
    """The chance of each node to come next where an edge to a node has that node's number as its weight."""
    weights: Counter[int] = Counter()
    for each in NEIGHBOURS[now]:
        weights[each] += each * (
            1 if before is None or each in NEIGHBOURS[before] else 1 / p if each == before else 1 / q
        )
    total = sum(weights.values())
    return {each: weight / total for each, weight in weights.items()}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("proposals", [0, 1, 32])
@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (0.25, 4.0), (4.0, 0.5)])
def test_weights(graph, p, q, proposals, dtype, monkeypatch):
    monkeypatch.setattr(walks, "_PROPOSALS", proposals)
    rowptr, col = (each.to(dtype) for each in graph)
    found = random_walk(rowptr, col, torch.full((WALKS,), 3), 2, p, q, weight=graph[1].float())
    # The way to 0 has no weight.
    assert set(found[:, 1].tolist()) == {2, 4}
    second = None if p == q == 1 else 3
    for middle in (2, 4):
        then = found[found[:, 1] == middle, 2]
        expected = of_weights(second, middle, p, q) if middle == 2 else {4: 1.0}
        for node in range(6):
            share = float((then == node).double().mean())
            assert share == pytest.approx(expected.get(node, 0.0), abs=0.02)


def test_other_weights_in_the_same_tensor(graph):
    weight = torch.tensor([1.0, 0, 0, 0, *[1.0] * 9])
    assert set(random_walk(*graph, torch.zeros(50).long(), 1, weight=weight)[:, 1].tolist()) == {3}
    weight[:2] = torch.tensor([0.0, 1.0])
    assert set(random_walk(*graph, torch.zeros(50).long(), 1, weight=weight)[:, 1].tolist()) == {2}


@pytest.mark.parametrize("proposals", [0, 32])
@pytest.mark.parametrize(("p", "q"), [(0.5, 2.0), (1e9, 1e-3)])
def test_walks_that_end_among_others(p, q, proposals, monkeypatch):
    monkeypatch.setattr(walks, "_PROPOSALS", proposals)
    # 0 -> 1 -> 2, where walks end, and 3 -> 4 -> 3.
    rowptr, col = torch.tensor([0, 1, 2, 2, 3, 4]), torch.tensor([1, 2, 4, 3])
    found = random_walk(rowptr, col, torch.tensor([0, 3, 2, 1] * 50), 4, p, q)
    assert found.unique(dim=0).tolist() == [[0, 1, 2, 2, 2], [1, 2, 2, 2, 2], [2] * 5, [3, 4, 3, 4, 3]]


def test_other_edges_in_the_same_tensors(graph):
    rowptr, col = graph
    random_walk(rowptr, col, torch.tensor([3]), 3, 0.5, 2.0)
    col.copy_(torch.zeros_like(col))
    # From 0 all ways lead back to 0.
    assert random_walk(rowptr, col, torch.tensor([3]), 4, 1e9, 1e-9).tolist() == [[3, 0, 0, 0, 0]]


def test_another_default_device_changes_nothing(graph):
    found = []
    for device in ("cpu", "meta"):
        torch.manual_seed(0)
        with torch.device(device):
            found.append(random_walk(*graph, torch.tensor([0, 1, 2], device="cpu"), 5, 0.5, 2.0))
    assert torch.equal(*found)


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (0.5, 2.0)])
def test_walks_that_end(graph, p, q):
    rowptr, col = graph
    assert random_walk(rowptr, col, torch.tensor([5, 4]), 1, p, q).tolist() == [[5, 5], [4, 0]]
    assert random_walk(rowptr, col, torch.tensor([5]), 3, p, q).tolist() == [[5] * 4]
    nowhere = torch.zeros(4, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    assert random_walk(*nowhere, torch.tensor([2]), 2, p, q).tolist() == [[2, 2, 2]]
    assert random_walk(rowptr, col, torch.empty(0, dtype=torch.int64), 4, p, q).shape == (0, 5)
    assert random_walk(rowptr, col, torch.tensor([1]), 0, p, q).tolist() == [[1]]


@pytest.mark.parametrize("q", [1.0, 2.0])
def test_the_same_seed_gives_the_same_walks(graph, q):
    found = []
    for count in (1, 2):
        torch.manual_seed(3)
        torch.set_num_threads(count)
        found.append(random_walk(*graph, torch.arange(6).repeat(50), 9, 1.0, q))
    assert torch.equal(*found)
    assert not torch.equal(found[0], random_walk(*graph, torch.arange(6).repeat(50), 9, 1.0, q))


def test_a_row_ends_where_the_next_begins():
    # Between rows columns descend, within them they ascend; 4 is no neighbour of 1.
    rowptr, col = torch.tensor([0, 2, 4, 4, 6, 8]), torch.tensor([1, 3, 0, 2, 0, 4, 0, 3])
    found = random_walk(rowptr, col, torch.full((2000,), 0), 2, 1e9, 1e-9)
    ways = {tuple(each) for each in found.tolist()}
    assert ways == {(0, 1, 2), (0, 3, 4)}
    assert random_walk(rowptr.int(), col.int(), torch.tensor([4]), 1).dtype is torch.int32


@pytest.mark.parametrize("node", [-1, 6])
def test_starts_out_of_range(graph, node):
    with pytest.raises(IndexRangeError, match=rf"start: entry 1 is {node}, which is not in \[0, 6\)"):
        random_walk(*graph, torch.tensor([0, node]), 2)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"length": -1}, "length: expected at least 0"),
        ({"p": 0.0}, "p, q: expected positive finite numbers, got 0.0 and 1.0"),
        ({"q": float("inf")}, "p, q: expected positive finite"),
        ({"q": float("nan")}, "p, q: expected positive finite"),
        ({"weight": torch.ones(12)}, r"weight: expected shape \[13\], got \[12\]"),
        ({"weight": torch.full((13,), -1.0)}, "weight: expected finite numbers of at least 0"),
        ({"weight": torch.full((13,), math.nan)}, "weight: expected finite numbers of at least 0"),
    ],
)
def test_bad_input(graph, options, told):
    with pytest.raises(ArgumentError, match=told):
        random_walk(*graph, torch.tensor([0]), **{"length": 2, **options})


def test_dtypes_that_differ(graph):
    with pytest.raises(
        ArgumentError, match=r"expected int64 or int32 for both, got torch.int64, torch.int32"
    ):
        random_walk(graph[0], graph[1].int(), torch.tensor([0]), 2)


@pytest.mark.parametrize("q", [1.0, 2.0])
@pytest.mark.parametrize(
    ("rowptr", "col"),
    [
        ([0, 1, 2], [1, 7]),
        ([0, 1, 2], [1, -1]),
        ([0, 3, 2], [1, 0]),
        ([0, 1, 3], [1, 0]),
        ([-1, 1, 2], [1, 0]),
    ],
)
def test_damaged_graphs(rowptr, col, q):
    with pytest.raises(IndexRangeError, match=r"rowptr, col: expected bounds that ascend from 0 to 2, and"):
        random_walk(torch.tensor(rowptr), torch.tensor(col), torch.tensor([0, 1]), 3, 1.0, q)
