"""Every field of a plan is a choice of how, never of what: all plans give the reference's result."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings, strategies as st

from onehop import Graph
from onehop.backends.cpu import CpuBackend
from onehop.calls import Aggregate, Extremum, on
from onehop.plans import CpuPlan
from onehop.reference.aggregate import aggregate as reference
from tests.graph.strategies import edge_lists
from tests.ops.hostile_graphs import HOSTILE

PLANS = st.builds(
    CpuPlan,
    edges_per_item=st.sampled_from([1, 2, 7, 64, 4096]),
    prefetch=st.integers(0, 64),
    column_tile=st.sampled_from([0, 1, 5, 16, 32, 1000]),
    register_block=st.integers(0, 16),
    nontemporal=st.booleans(),
    threads=st.integers(0, 3),
    ordering=st.sampled_from(["none", "degree", "rcm", "community"]),
    prefetch_hint=st.sampled_from(["L1", "L2"]),
)
WIDTHS = st.sampled_from([1, 3, 16, 17, 63, 129])
# The small whole numbers of these tests are exact in both.
DTYPES = st.sampled_from([torch.float32, torch.float64])


def operands(graph, width, dtype=torch.float64):
    """Small whole numbers: sums are exact, whatever their order."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-8, 9, (graph.num_src, width), generator=generator).to(dtype)
    acc = torch.float64 if dtype == torch.float64 else torch.float32
    return x, torch.randint(1, 4, (graph.num_edges,), generator=generator).to(acc)


def run(graph, plan, reduce, x, weight=None):
    backend = CpuBackend(plan)
    if reduce in ("sum", "mean"):
        return backend.run(graph, on(graph, Aggregate, x=x, weight=weight, mean=reduce == "mean"))
    return backend.run(graph, on(graph, Extremum, x=x, reduce=reduce, weight=weight))[0]


@settings(max_examples=40)
@given(edge_lists(), PLANS, WIDTHS, st.sampled_from(["sum", "mean", "max", "min"]), st.booleans(), DTYPES)
def test_every_plan_gives_the_reference(case, plan, width, reduce, weighted, dtype):
    edge_index, (num_src, num_dst) = case
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    x, weight = operands(graph, width, dtype)
    weight = weight if weighted else None
    expected = reference(edge_index.long(), x, num_dst, weight, reduce)
    # Small whole numbers: sums are exact, whatever their order.
    assert torch.equal(run(graph, plan, reduce, x, weight), expected)


@settings(max_examples=25)
@given(edge_lists(), PLANS, WIDTHS, st.booleans(), DTYPES)
def test_every_plan_gives_the_transposed_reference(case, plan, width, weighted, dtype):
    edge_index, (num_src, num_dst) = case
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    x, weight = operands(graph.transpose(), width, dtype)
    weight = weight if weighted else None
    out = CpuBackend(plan).run(graph, on(graph, Aggregate, x=x, weight=weight, transposed=True))
    assert torch.equal(out, reference(edge_index.long().flip(0), x, num_src, weight, "sum"))


@pytest.mark.parametrize("ordering", ["degree", "rcm", "community"])
@pytest.mark.parametrize("name", HOSTILE)
def test_orders_on_hostile_graphs(name, ordering):
    edge_index, num_src, num_dst = HOSTILE[name]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    x, weight = operands(graph, 17)
    scale = torch.arange(1.0, num_dst + 1, dtype=torch.float64)
    plan = CpuPlan(edges_per_item=16, ordering=ordering)
    out = CpuBackend(plan).run(graph, on(graph, Aggregate, x=x, weight=weight, dst_scale=scale))
    expected = reference(edge_index, x, num_dst, weight, "sum") * scale.unsqueeze(1)
    assert torch.equal(out, expected)


def test_rows_that_are_not_cut_keep_their_bits_in_any_order(generator):
    edge_index = torch.randint(0, 500, (2, 4000), generator=generator)
    graph = Graph.from_edge_index(edge_index, num_nodes=500)
    x = torch.randn(500, 33, generator=generator)
    plain = CpuPlan()
    expected = run(graph, plain, "sum", x)
    for ordering in ("degree", "rcm", "community"):
        assert torch.equal(run(graph, dataclasses.replace(plain, ordering=ordering), "sum", x), expected)


def test_ties_are_counted_in_their_own_rows(generator):
    edge_index = torch.randint(0, 50, (2, 600), generator=generator)
    graph = Graph.from_edge_index(edge_index, num_nodes=50)
    x, _ = operands(graph, 9)
    for reduce in ("max", "min"):
        call = on(graph, Extremum, x=x, reduce=reduce, with_ties=True)
        plain = CpuBackend(CpuPlan()).run(graph, call)
        ordered = CpuBackend(CpuPlan(ordering="degree")).run(graph, call)
        assert all(torch.equal(a, b) for a, b in zip(plain, ordered, strict=True))


def test_weights_kept_in_graph_order_follow_the_order_of_rows(generator):
    edge_index = torch.randint(0, 2000, (2, 70_000), generator=generator)
    graph = Graph.from_edge_index(edge_index, num_nodes=2000)
    x, weight = operands(graph, 4)
    expected = run(graph, CpuPlan(), "sum", x, weight)
    for ordering in ("none", "degree", "none", "degree", "degree"):
        assert torch.equal(run(graph, CpuPlan(ordering=ordering), "sum", x, weight), expected)


def test_storing_sources_in_16_bits_rounds_them_and_nothing_else(generator):
    edge_index = torch.randint(0, 40, (2, 300), generator=generator)
    graph = Graph.from_edge_index(edge_index, num_nodes=40)
    x = torch.randn(40, 24, generator=generator)
    lossy = run(graph, CpuPlan(storage="bfloat16"), "sum", x)
    assert lossy.dtype == torch.float32
    assert torch.equal(lossy, run(graph, CpuPlan(), "sum", x.bfloat16().float()))
    assert not torch.equal(lossy, run(graph, CpuPlan(), "sum", x))


def test_numbers_of_64_bits_are_left_alone_by_storage(generator):
    graph = Graph.from_edge_index(torch.randint(0, 40, (2, 300), generator=generator), num_nodes=40)
    x = torch.randn(40, 8, generator=generator, dtype=torch.float64)
    assert torch.equal(run(graph, CpuPlan(storage="bfloat16"), "sum", x), run(graph, CpuPlan(), "sum", x))
