"""The cut of a graph into pieces of work: every edge and every row once, long rows cut, short ones never."""

import itertools

import pytest
import torch
from hypothesis import given, strategies as st

from onehop import Graph

from .strategies import edge_lists


def check(graph: Graph, edges_per_item: int) -> list[list[int]]:
    """Checks everything that the kernels rely on; returns the items."""
    items = graph.csr.work_items(edges_per_item)
    rowptr = graph.rowptr.tolist()
    pieces: dict[int, list[tuple[int, int]]] = {row: [] for row in range(graph.num_dst)}
    edge = 0
    slots_used: list[int] = []
    slot_of_row: dict[int, list[int]] = {}
    for row_begin, row_end, edge_begin, edge_end, head, tail in items:
        assert edge_begin == edge, "items follow one another"
        assert edge_end >= edge_begin
        assert 0 <= row_begin < row_end <= graph.num_dst, "an item has rows"
        edge = edge_end
        for row in range(row_begin, row_end):
            begin, end = max(rowptr[row], edge_begin), min(rowptr[row + 1], edge_end)
            pieces[row].append((begin, end))
            whole = (begin, end) == (rowptr[row], rowptr[row + 1])
            first, last = row == row_begin, row == row_end - 1
            # A cut row is at an end of its item, and has the slot of that end.
            slot = max(head if first else -1, tail if last else -1)
            if whole:
                assert not (first and begin > rowptr[row])
            else:
                assert first or last, "only the rows at the ends are cut"
                assert rowptr[row + 1] - rowptr[row] > edges_per_item, "short rows stay whole"
                assert slot >= 0, "a piece of a row has a slot"
                slots_used.append(slot)
                slot_of_row.setdefault(row, []).append(slot)
        if head >= 0:
            assert edge_begin > rowptr[row_begin], "a head slot is for a row that began before"
        if tail >= 0:
            assert edge_end < rowptr[row_end] or head == tail, "a tail slot is for a row that goes on"
    assert edge == graph.num_edges
    for row, row_pieces in pieces.items():
        assert row_pieces, f"row {row} belongs to an item"
        joined = [piece for piece in row_pieces if piece[0] < piece[1]] or row_pieces[:1]
        assert joined[0][0] == rowptr[row]
        assert joined[-1][1] == rowptr[row + 1]
        for (_, end), (begin, _) in itertools.pairwise(joined):
            assert end == begin, f"the pieces of row {row} follow one another"
        if len(row_pieces) > 1:
            assert row in slot_of_row, f"row {row} is shared, so it needs slots"
    assert slots_used == list(range(len(slots_used))), "slots are given out in order"
    for slots in slot_of_row.values():
        assert slots == list(range(slots[0], slots[0] + len(slots)))
        assert len(slots) > 1
    return items


def graph_of_degrees(degrees: list[int]) -> Graph:
    rowptr = torch.tensor([0, *degrees]).cumsum(0)
    return Graph.from_csr(rowptr, torch.zeros(int(rowptr[-1]), dtype=torch.int32), num_src=1)


@pytest.mark.parametrize("edges_per_item", [1, 2, 7, 64, 1000])
@pytest.mark.parametrize(
    "degrees",
    [
        [],
        [0],
        [0, 0, 0, 0],
        [5],
        [300],
        [0, 300, 0],
        [1] * 100,
        [300, 300, 300],
        [64, 65, 64],
        [7, 8, 6, 14, 15, 0, 1],
        [0] * 50 + [128] + [0] * 50,
        [1000, *([1] * 500)],
        [*([1] * 500), 1000],
    ],
    ids=lambda degrees: f"{len(degrees)} rows, {sum(degrees)} edges, longest {max(degrees, default=0)}",
)
def test_cut(degrees: list[int], edges_per_item: int) -> None:
    check(graph_of_degrees(degrees), edges_per_item)


@given(st.lists(st.one_of(st.integers(0, 4), st.integers(0, 200)), max_size=40), st.integers(1, 70))
def test_cut_of_random_degrees(degrees: list[int], edges_per_item: int) -> None:
    check(graph_of_degrees(degrees), edges_per_item)


@given(edge_lists(), st.integers(1, 20))
def test_cut_of_random_graphs_and_their_transposes(case, edges_per_item: int) -> None:
    graph = Graph.from_edge_index(case[0], size=case[1])
    check(graph, edges_per_item)
    check(graph.transpose(), edges_per_item)


def test_a_hub_with_all_edges_is_shared_out_evenly() -> None:
    items = check(graph_of_degrees([0, 6400, 0]), 64)
    sizes = [edge_end - edge_begin for _, _, edge_begin, edge_end, _, _ in items]
    assert len(items) >= 100
    assert max(sizes) <= 64


def test_items_hold_about_as_many_edges_as_asked() -> None:
    # Nothing is larger than an item and the longest row that is not cut.
    graph = graph_of_degrees([50, 3, 60, 0, 10] * 200)
    sizes = [edge_end - edge_begin for _, _, edge_begin, edge_end, _, _ in check(graph, 64)]
    assert max(sizes) <= 64 + 60


def test_the_cut_is_the_same_every_time() -> None:
    degrees = [3, 400, 0, 9] * 20
    assert check(graph_of_degrees(degrees), 32) == check(graph_of_degrees(degrees), 32)
