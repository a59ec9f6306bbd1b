import pytest
import torch

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.self_loops import with_self_loops


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
