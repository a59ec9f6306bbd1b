"""Cuts and bytes against a twin in plain Python."""

from itertools import product

import pytest
from hypothesis import given, settings, strategies as st

from onehop import Graph
from onehop.machines.pim import Machine, PimPlan
from onehop.machines.pim.counted import GraphShapes
from onehop.machines.pim.layout import layout
from onehop.machines.pim.memory import cut_rule
from onehop.machines.pim.shapes import CutRule
from tests.machines.pim import naive
from tests.machines.pim.graphs import HOSTILE
from tests.machines.pim.machines import small
from tests.pairs import pairwise

MACHINE = Machine(small())


@pairwise(
    name=["hub", "empty rows", "fewer rows than cores", "bipartite", "multi-edges"],
    sizes=[(1, 1, 1), (9, 4, 2), (3, 7, 8)],
)
@pytest.mark.parametrize(("coo", "by_core", "by_thread"), [*product((False, True), repeat=3)])
def test_every_piece_is_the_one_of_the_rules(
    name: str, sizes: tuple[int, int, int], coo: bool, by_core: bool, by_thread: bool
) -> None:
    cores, tasklets, granule = sizes
    rule, graph = CutRule(cores, tasklets, coo, by_core, by_thread, granule), HOSTILE[name]
    shapes = GraphShapes(graph)
    bounds = shapes.bounds(2, "edge").tolist()
    counts = shapes.counts(2, "edge", rule)
    for number, part in enumerate(naive.parts(graph, bounds)):
        cores = [tasklets for _, tasklets in naive.cut(part, rule)]
        assert counts.edges[number].tolist() == [[len(t.edges) for t in core] for core in cores]
        assert counts.rows[number].tolist() == [[len(t.rows) for t in core] for core in cores]
        assert counts.filled[number].tolist() == [[naive.filled(part, t) for t in core] for core in cores]


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
@given(data=st.data())
def test_bytes_are_those_of_the_twin(data: st.DataObject) -> None:
    graph = HOSTILE[data.draw(st.sampled_from(["hub", "empty rows", "bipartite", "no edges"]))]
    sp, ds = data.draw(st.sampled_from([(1, 4), (2, 2), (4, 1), (2, 4), (1, 2), (1, 1)]))
    plan = PimPlan(
        sp=sp,
        ds=ds,
        format=data.draw(st.sampled_from(["csr", "coo"])),
        core_balance=data.draw(st.sampled_from(["row", "edge"])),
        thread_balance=data.draw(st.sampled_from(["row", "edge"])),
        column_cut=data.draw(st.sampled_from(["equal", "edge"])),
        tasklets=data.draw(st.integers(1, 5)),
    )
    width = data.draw(st.integers(1, 9))
    expected, moved = bytes_of(graph, plan, width), MACHINE.simulate(graph, width, plan, "int32").bytes
    arguments = 4 * (8 + 2 * plan.tasklets) * MACHINE.config.cores
    assert moved["broadcast"] + moved["send"] - arguments == expected["features"]
    assert moved["retrieve"] == expected["retrieve"]
    assert moved["padding"] == expected["padding"]
