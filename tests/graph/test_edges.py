"""Lists of edges: undirected graphs have both directions once."""

import torch
from hypothesis import given, strategies as st

from onehop.graph.edges import distinct, edges_of_keys, undirected

Edges = list[tuple[int, int]]
few_edges = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30)


def tensor_of(edges: Edges) -> torch.Tensor:
    return torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t()


@given(few_edges)
def test_undirected_has_every_edge_both_ways_once(edges: Edges) -> None:
    both = undirected(tensor_of(edges), 7)
    assert both.t().tolist() == [list(edge) for edge in sorted({*edges, *((b, a) for a, b in edges)})]


@given(st.lists(st.integers(0, 48), max_size=30))
def test_keys_become_edges(keys: list[int]) -> None:
    found = distinct(torch.tensor(keys, dtype=torch.long).numpy())
    assert found.tolist() == sorted(set(keys))
    assert edges_of_keys(found, 7).t().tolist() == [list(divmod(key, 7)) for key in found.tolist()]


def test_a_graph_without_nodes_has_no_edges() -> None:
    assert undirected(torch.empty(2, 0, dtype=torch.long), 0).shape == (2, 0)
