import torch
from hypothesis import given, settings, strategies as st

from onehop import Graph
from onehop.ops.scaled_statistics import rows_by_degree
from tests.graph.strategies import edge_lists


@settings(max_examples=100, deadline=None)
@given(edge_lists(), st.integers(1, 6), st.integers(1, 5))
def test_blocks(edges, fewest, most):
    edge_index, size = edges
    graph = Graph.from_edge_index(edge_index, size=size)
    found = rows_by_degree(graph, fewest, most)
    order, degrees = found.order.tolist(), graph.in_degrees.tolist()
    assert sorted(order) == list(range(size[1]))
    places = [place for block in found.blocks for place in range(block.begin, block.end)]
    assert places == list(range(size[1]))
    for block in found.blocks:
        rows = order[block.begin : block.end]
        assert 1 <= len(rows) <= most
        for row in rows:
            assert block.alike == (degrees.count(degrees[row]) >= fewest)
        if block.alike:
            assert len({degrees[row] for row in rows}) == 1


def test_they_are_found_once():
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2, 0], [1, 1, 2, 0]]))
    before = graph.nbytes
    found = rows_by_degree(graph, 2, 4)
    assert rows_by_degree(graph, 2, 4) is found
    assert rows_by_degree(graph, 3, 4) is not found
    assert graph.nbytes == before + 2 * found.order.nbytes
