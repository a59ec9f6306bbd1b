"""Cuts and bytes against a twin in plain Python."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from onehop import ArgumentError, Graph
from onehop.machines.pim import Machine, PimPlan
from onehop.machines.pim.counted import GraphShapes
from onehop.machines.pim.memory import cut_rule
from onehop.machines.pim.scheme import layout
from onehop.machines.pim.shapes import CutRule, edge_bounds, equal_bounds
from tests.machines.pim import naive
from tests.machines.pim.graphs import HOSTILE
from tests.machines.pim.machines import plans, small
from tests.pairs import pairwise

MACHINE = Machine(small())


def assert_span(found: np.ndarray, numbers: range | list[int]) -> None:
    """Two positions are the begin and the end of consecutive numbers, or equal where there are none."""
    begin, end = found.tolist()
    assert end - begin == len(numbers)
    assert not numbers or (begin, end) == (numbers[0], numbers[-1] + 1)


@pairwise(name=HOSTILE, sizes=[(1, 1, 1), (9, 4, 2), (3, 7, 8)], cut=["equal", "edge"])
@pytest.mark.parametrize(("coo", "by_core", "by_thread"), [*product((False, True), repeat=3)])
def test_every_piece_is_the_one_of_the_rules(
    name: str, sizes: tuple[int, int, int], cut: str, coo: bool, by_core: bool, by_thread: bool
) -> None:
    cores, tasklets, granule = sizes
    rule, graph = CutRule(cores, tasklets, coo, by_core, by_thread, granule), HOSTILE[name]
    shapes = GraphShapes(graph)
    cuts, counts = shapes.cuts(2, cut, rule), shapes.counts(2, cut, rule)
    for number, part in enumerate(naive.parts(graph, shapes.bounds(2, cut).tolist())):
        for core, (own, pieces) in enumerate(naive.cut(part, rule)):
            assert_span(cuts.core_rows[number, :, core], own.rows)
            for tasklet, piece in enumerate(pieces):
                assert_span(cuts.tasklets[number, :2, core, tasklet], piece.edges)
                assert_span(cuts.tasklets[number, 2:4, core, tasklet], piece.rows)
                each = [of[number, core, tasklet] for of in (counts.edges, counts.rows, counts.filled)]
                assert each == [len(piece.edges), len(piece.rows), naive.filled(part, piece)]


def test_greedy_edges_close_a_core_at_its_share_and_carry_nothing_over() -> None:
    target = torch.repeat_interleave(torch.arange(6), torch.tensor([3, 3, 3, 1, 1, 1]))
    graph = Graph.from_edge_index(torch.stack([torch.zeros_like(target), target]), 6)
    counts = GraphShapes(graph).counts(1, "equal", CutRule(3, 1, False, True, False, 1))
    # A share is 4 edges: two rows reach it, then two more, and the rest is the last core's.
    assert counts.core_edges.tolist() == [[6, 4, 2]]


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


@pytest.mark.parametrize("hubs", [1, 3, 1000])
@pytest.mark.parametrize("name", HOSTILE)
def test_edges_from_hubs_are_those_of_the_sources_with_most(name: str, hubs: int) -> None:
    graph, rule = HOSTILE[name], CutRule(3, 4, True, True, True, 1)
    shapes = GraphShapes(graph)
    found = shapes.hub_edges(2, "equal", rule, hubs)
    bounds = shapes.bounds(2, "equal").tolist()
    degrees = graph.out_degrees.tolist()
    for number in range(2):
        own = sorted(degrees[bounds[number] : bounds[number + 1]], reverse=True)
        assert found[number].sum() == sum(own[:hubs])
    assert (found <= shapes.counts(2, "equal", rule).edges).all()


def bytes_of(graph: Graph, plan: PimPlan, width: int) -> dict[str, int]:
    """What is moved in one pass of int32: blocks are filled up to the largest of their rank."""
    shapes, config = MACHINE.shapes(graph), MACHINE.config
    bounds = shapes.bounds(plan.sp, plan.column_cut).tolist()
    cut = naive.parts(graph, bounds)
    sent, received = [0] * config.ranks, [0] * config.ranks
    useful = 0
    for cluster in layout(config, plan, width).clusters:
        columns = bounds[cluster.part + 1] - bounds[cluster.part]
        if not cluster.width:
            continue
        row_bytes = -(-cluster.width // 2) * 2 * 4
        cores = naive.cut(cut[cluster.part], cut_rule(plan, MACHINE.kernel(plan, "int32"), cluster.cores))
        rows = [len(core.rows) for core, _ in cores]
        if plan.format == "csr" or plan.core_balance == "row":
            assert sum(rows) == graph.num_dst
        for rank in range(cluster.rank, cluster.rank + cluster.ranks):
            sent[rank] = max(sent[rank], columns * row_bytes)
            received[rank] = max(received[rank], max(rows) * row_bytes)
        useful += (columns * cluster.cores + sum(rows)) * cluster.width * 4
    moved = sum(size * cores for size, cores in zip(sent, config.rank_cores, strict=True))
    pulled = sum(size * cores for size, cores in zip(received, config.rank_cores, strict=True))
    return {"features": moved, "retrieve": pulled, "padding": moved + pulled - useful}


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["hub", "empty rows", "bipartite", "no edges"]),
    plan=plans([(1, 4), (2, 2), (4, 1), (2, 4), (1, 2), (1, 1)], most_tasklets=5),
    width=st.integers(1, 9),
)
def test_bytes_are_those_of_the_twin(name: str, plan: PimPlan, width: int) -> None:
    graph = HOSTILE[name]
    expected, moved = bytes_of(graph, plan, width), MACHINE.simulate(graph, width, plan, "int32").bytes
    arguments = 4 * (8 + 2 * plan.tasklets) * MACHINE.config.cores
    assert moved["broadcast"] + moved["send"] - arguments == expected["features"]
    assert moved["retrieve"] == expected["retrieve"]
    assert moved["padding"] == expected["padding"]
