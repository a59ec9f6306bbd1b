import pytest
import torch

from onehop import thresholds
from onehop.errors import ArgumentError, IndexRangeError
from onehop.graph import Graph
from onehop.graph.self_loops import one_loop_each, with_self_loops
from tests.pairs import pairwise


def test_nodes_without_a_loop_get_one():
    edge_index = torch.tensor([[0, 2, 1, 1, 1], [1, 1, 1, 1, 3]])
    found = with_self_loops(Graph.from_edge_index(edge_index, num_nodes=4))
    assert found.rowptr.tolist() == [0, 1, 5, 6, 8]
    assert found.col.tolist() == [0, 0, 2, 1, 1, 2, 1, 3]


def test_graphs_without_nodes_or_edges():
    empty = torch.empty(2, 0, dtype=torch.long)
    assert with_self_loops(Graph.from_edge_index(empty, num_nodes=0)).num_edges == 0
    assert with_self_loops(Graph.from_edge_index(empty, num_nodes=3)).col.tolist() == [0, 1, 2]


def test_bipartite_graphs_are_refused():
    with pytest.raises(ArgumentError, match="2 sources and 3 destinations"):
        with_self_loops(Graph.from_edge_index(torch.zeros(2, 1, dtype=torch.long), size=(2, 3)))


def naive(edge_index, nodes):
    """The edges that are no loops in their order, then a loop each, as PyG aggregates over them."""
    edges = [(int(a), int(b)) for a, b in edge_index.t() if a != b] + [(i, i) for i in range(nodes)]
    return torch.tensor(edges, dtype=torch.long).view(-1, 2).t()


@pairwise(forwards=[True, False], dtype=[torch.int32, torch.int64], threads=[1, 2])
@pytest.mark.parametrize(
    ("nodes", "count", "loops"), [(1, 0, 0), (1, 4, 4), (30, 200, 0), (30, 200, 7), (900, 70_000, 9)]
)
def test_one_loop_each_is_the_graph_of_the_rewritten_edges(nodes, count, loops, forwards, dtype, threads):
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(nodes, (2, count), generator=generator)
    if nodes > 1:
        edge_index[1] = (edge_index[0] + 1 + edge_index[1] % (nodes - 1)) % nodes  # no loop
    edge_index[1, :loops] = edge_index[0, :loops]
    torch.set_num_threads(threads)
    found = one_loop_each(edge_index.to(dtype), nodes, forwards)
    # Columns that are no neighbours in memory.
    strided = one_loop_each(edge_index.to(dtype).t().contiguous().t(), nodes, forwards)
    edges = naive(edge_index, nodes)
    expected = Graph.from_edge_index(edges if forwards else edges.flip(0), num_nodes=nodes)
    numbers = torch.arange(edges.size(1)) if expected.perm is None else expected.perm
    for graph in (found, strided):
        assert torch.equal(graph.rowptr, expected.rowptr)
        assert torch.equal(graph.col, expected.col)
        assert graph.perm is not None
        assert torch.equal(graph.perm.long(), numbers.long())


def test_one_loop_each_with_wide_edge_numbers():
    with thresholds.changed(wide_edges=5):
        found = one_loop_each(torch.tensor([[0, 2, 1], [1, 1, 3]]), 4)
    assert found.perm is not None
    assert found.perm.dtype is torch.int64
    assert found.perm.tolist() == [3, 0, 1, 4, 5, 2, 6]


@pytest.mark.parametrize("rows", [[0], [1], [0, 1]])
@pytest.mark.parametrize("node", [-1, 4])
@pytest.mark.parametrize("other", [0, 1])
def test_one_loop_each_refuses_nodes_out_of_range(rows, node, other):
    """Loops among them, which would be omitted; an edge that is a loop comes before, or none does."""
    edge_index = torch.tensor([[0, 2, other, 1], [1, 1, 1, 3]])
    edge_index[rows, 3] = node
    with pytest.raises(IndexRangeError, match=rf"{node} of edge 3 is not in \[0, 4\)"):
        one_loop_each(edge_index, 4)


def test_one_loop_each_refuses_other_shapes():
    with pytest.raises(ArgumentError, match="edge_index"):
        one_loop_each(torch.zeros(3, 4, dtype=torch.long), 4)
