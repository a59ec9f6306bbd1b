"""How matrices are cut: every edge and every row exactly once, and the rules of each balance."""

from itertools import product

import numpy as np
import pytest

from onehop.errors import ArgumentError
from onehop.machines.pim.counted import GraphShapes
from onehop.machines.pim.shapes import CutRule, edge_bounds, equal_bounds
from tests.machines.pim.graphs import HOSTILE

RULES = [
    CutRule(cores, tasklets, coo, by_core, by_thread, granule)
    for cores, tasklets in ((1, 1), (9, 16), (10, 3))
    for coo, by_core, by_thread in product((False, True), repeat=3)
    for granule in (1, 8)
]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("cut", ["equal", "edge"])
def test_every_edge_belongs_to_one_tasklet(name: str, cut: str) -> None:
    graph = HOSTILE[name]
    shapes = GraphShapes(graph)
    for parts, rule in product((1, 3), RULES):
        cuts = shapes.cuts(parts, cut, rule)
        counts = shapes.counts(parts, cut, rule)
        assert counts.edges.sum() == graph.num_edges
        assert (counts.edges >= 0).all()
        begins, ends = cuts.tasklets[:, 0].ravel(), cuts.tasklets[:, 1].ravel()
        covered = np.concatenate([np.arange(b, e) for b, e in zip(begins, ends, strict=True)])
        assert np.array_equal(np.sort(covered), np.arange(graph.num_edges))


@pytest.mark.parametrize("name", HOSTILE)
def test_rows_are_disjoint_unless_edges_are_shared_out_exactly(name: str) -> None:
    graph = HOSTILE[name]
    shapes = GraphShapes(graph)
    for rule in RULES:
        if rule.straddling:
            continue
        rows = shapes.cuts(1, "equal", rule).core_rows[0]
        assert rows[0, 0] == 0
        assert rows[1, -1] == graph.num_dst
        assert np.array_equal(rows[0, 1:], rows[1, :-1])


@pytest.mark.parametrize("name", HOSTILE)
def test_exact_shares_differ_by_one_edge(name: str) -> None:
    shapes = GraphShapes(HOSTILE[name])
    for tasklets in (1, 7):
        rule = CutRule(9, tasklets, True, True, True, 1)
        counts = shapes.counts(2, "equal", rule)
        per_core = counts.core_edges
        assert (per_core.max(axis=1) - per_core.min(axis=1) <= 1).all()
        assert (counts.edges.max(axis=2) - counts.edges.min(axis=2) <= 1).all()


def test_rows_are_shared_out_evenly() -> None:
    rows = GraphShapes(HOSTILE["uniform"]).counts(1, "equal", CutRule(9, 1, False, False, False, 1)).core_rows
    assert rows.tolist() == [[12] + [11] * 8]


def test_greedy_edges_close_a_core_at_its_share_and_carry_nothing_over() -> None:
    import torch

    from onehop import Graph

    degrees = [3, 3, 3, 1, 1, 1]
    target = torch.repeat_interleave(torch.arange(6), torch.tensor(degrees))
    graph = Graph.from_edge_index(torch.stack([torch.zeros_like(target), target]), 6)
    counts = GraphShapes(graph).counts(1, "equal", CutRule(3, 1, False, True, False, 1))
    # A share is 4 edges: two rows reach it, then two more, and the rest is the last core's.
    assert counts.core_edges.tolist() == [[6, 4, 2]]


def test_filled_rows_are_those_with_edges() -> None:
    graph = HOSTILE["empty rows"]
    for rule in RULES:
        if not (rule.coo and rule.threads_by_edge):
            filled = GraphShapes(graph).counts(1, "equal", rule).filled.sum()
            if not rule.straddling:
                assert filled == int((graph.in_degrees > 0).sum())


def test_bounds_cover_all_columns() -> None:
    assert equal_bounds(10, 4).tolist() == [0, 3, 6, 9, 10]
    assert equal_bounds(2, 4).tolist() == [0, 1, 2, 2, 2]
    assert equal_bounds(0, 2).tolist() == [0, 0, 0]


def test_more_parts_than_any_machine_has_are_refused() -> None:
    for bounds in (lambda: equal_bounds(10_000, 4097), lambda: edge_bounds(np.ones(10_000, np.int64), 4097)):
        with pytest.raises(ArgumentError, match=r"sp \* block_rounds must be at most 4096, got 4097"):
            bounds()


def test_edge_bounds_balance_edges() -> None:
    degrees = np.array([100, 1, 1, 1, 1, 96])
    assert edge_bounds(degrees, 2).tolist() == [0, 1, 6]
    even = np.ones(100, dtype=np.int64)
    assert edge_bounds(even, 4).tolist() == [0, 25, 50, 75, 100]
    assert edge_bounds(np.zeros(5, dtype=np.int64), 2)[-1] == 5
