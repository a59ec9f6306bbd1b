"""Orders of nodes: permutations, of the expected kind, that leave every result as it was."""

import sys
import types

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import onehop
from onehop import ArgumentError, ConfigurationError, Graph
from onehop.datasets import grid, planted
from onehop.graph.orders import node_orders
from onehop.graph.reorder import ordered_csr

from .strategies import edge_lists

METHODS = ("degree", "rcm", "community")


def is_permutation(order, count):
    return order.dtype == torch.int32 and torch.equal(order.sort().values, torch.arange(count).int())


@settings(max_examples=40)
@given(edge_lists(), st.sampled_from(METHODS))
def test_orders_are_permutations(case, method):
    edge_index, size = case
    orders = node_orders(Graph.from_edge_index(edge_index, size=size).csr, method)
    assert is_permutation(orders.src, size[0])
    assert is_permutation(orders.dst, size[1])


def shuffled_blocks(blocks=20, size=50, inside=0.9):
    """A planted partition whose numbers tell nothing, and the block of every node."""
    rng = np.random.default_rng(3)
    labels = rng.permutation(np.repeat(np.arange(blocks), size))
    edge_index = planted.edges(rng, labels, 10 * blocks * size, exponent=0.0, same_class=inside)
    return Graph.from_edge_index(edge_index, num_nodes=len(labels)), torch.from_numpy(labels)


def ring():
    node = torch.arange(10)
    return Graph.from_edge_index(torch.stack([node, (node + 1) % 10]))


def changes(labels):
    """How often a neighbour in the order is of another block."""
    return int((labels.diff() != 0).sum())


def test_communities_are_found_and_kept_together():
    graph, labels = shuffled_blocks()
    assert changes(labels) > 900
    # 20 blocks in a row change 19 times; a few nodes may be misplaced.
    assert changes(labels[node_orders(graph.csr, "community").dst.long()]) < 60


def test_the_community_order_is_the_same_every_time():
    graph, _ = shuffled_blocks()
    again = Graph.from_edge_index(graph.edge_index(), num_nodes=graph.num_dst)
    assert torch.equal(node_orders(graph.csr, "community").dst, node_orders(again.csr, "community").dst)


def test_reverse_cuthill_mckee_narrows_a_shuffled_grid(generator):
    shuffle = torch.randperm(900, generator=generator)
    graph = Graph.from_edge_index(shuffle[grid(30, 30)], num_nodes=900)
    assert graph.statistics.mean_span > 0.2
    assert graph.reorder("rcm").graph.statistics.mean_span < 0.03


def test_degrees_fall():
    graph, _ = shuffled_blocks()
    assert (graph.in_degrees[node_orders(graph.csr, "degree").dst.long()].diff() <= 0).all()


def test_bipartite_graphs_are_ordered_on_both_sides():
    # Sources 0, 2, 4, ... belong to even destinations, the others to odd ones.
    source = torch.arange(40).repeat_interleave(10)
    target = (torch.arange(10).repeat(40) * 2 + source % 2) % 20
    orders = node_orders(Graph.from_edge_index(torch.stack([source, target]), size=(40, 20)).csr, "community")
    assert changes(orders.src % 2) == 1
    assert changes(orders.dst % 2) == 1


@settings(max_examples=30)
@given(edge_lists(), st.sampled_from(METHODS))
def test_aggregates_of_the_renumbered_graph_are_the_same(case, method):
    edge_index, size = case
    graph = Graph.from_edge_index(edge_index, size=size)
    reordering = graph.reorder(method)
    x = torch.arange(3.0 * size[0]).reshape(size[0], 3)
    weight = torch.arange(float(graph.num_edges)) % 5
    out = reordering.undo(onehop.aggregate(reordering.graph, reordering.apply(x), weight))
    assert torch.equal(out, onehop.aggregate(graph, x, weight))


def test_rows_of_an_ordered_graph_are_those_of_the_graph():
    graph, _ = shuffled_blocks()
    ordered, order = ordered_csr(graph, "community", False), node_orders(graph.csr, "community").dst.long()
    assert ordered_csr(graph, "community", False) is ordered
    assert ordered_csr(graph, "none", True) is graph.transposed_csr
    assert torch.equal(ordered.rowptr.diff(), graph.in_degrees[order])
    row = int(order[5])
    edges = slice(int(ordered.rowptr[5]), int(ordered.rowptr[6]))
    own = slice(int(graph.rowptr[row]), int(graph.rowptr[row + 1]))
    assert torch.equal(ordered.col[edges], graph.col[own])
    assert torch.equal(
        graph.edge_index()[1][ordered.perm[edges].long()], torch.full((own.stop - own.start,), row)
    )


def test_kept_orders_count_as_bytes_of_the_graph():
    graph, _ = shuffled_blocks()
    before = graph.nbytes
    ordered = ordered_csr(graph, "degree", False)
    assert graph.nbytes == before + ordered.bytes


def test_unknown_methods_are_refused():
    graph = ring()
    with pytest.raises(ArgumentError, match="expected one of degree, rcm, community, metis, got 'colour'"):
        graph.reorder("colour")


def test_wrong_rows_are_refused():
    graph = ring()
    reordering = graph.reorder("degree")
    with pytest.raises(ArgumentError, match="x: expected 10 rows, got shape \\[3, 2\\]"):
        reordering.apply(torch.zeros(3, 2))
    with pytest.raises(ArgumentError, match="out: expected 10 rows"):
        reordering.undo(torch.zeros(()))


def test_metis_without_pymetis_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    graph = ring()
    with pytest.raises(ConfigurationError, match="pip install 'onehop\\[partition\\]'"):
        graph.reorder("metis")


def test_metis_gets_the_graph_without_loops_and_its_parts_become_the_order(monkeypatch):
    def part_graph(parts, xadj, adjncy, vweights, recursive):
        assert parts >= 2
        assert vweights is None
        assert xadj.tolist() == [0, 1, 3, 4]
        assert adjncy.tolist() == [1, 0, 2, 1]
        return 2, [1, 0, 1]

    monkeypatch.setitem(
        sys.modules, "pymetis", types.SimpleNamespace(part_graph=part_graph, __spec__=object())
    )
    edge_index = torch.tensor([[1, 0, 2, 1, 2], [0, 1, 1, 2, 2]])
    assert node_orders(Graph.from_edge_index(edge_index, num_nodes=3).csr, "metis").dst.tolist() == [1, 0, 2]


def test_metis_puts_the_nodes_of_a_clique_side_by_side(monkeypatch):
    pytest.importorskip("pymetis")
    monkeypatch.setattr("onehop.graph.orders.caches", lambda: {2: 8 * 256})  # eight nodes a part
    shuffled = torch.randperm(16, generator=torch.Generator().manual_seed(0))
    cliques = [shuffled[:8], shuffled[8:]]
    edge_index = torch.cat([torch.cartesian_prod(nodes, nodes).T for nodes in cliques], 1)
    order = node_orders(Graph.from_edge_index(edge_index, num_nodes=16).csr, "metis").dst.tolist()
    assert {frozenset(order[:8]), frozenset(order[8:])} == {frozenset(nodes.tolist()) for nodes in cliques}
