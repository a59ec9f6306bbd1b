"""Every field of a plan is a choice of how, never of what: all plans give the reference's result."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings, strategies as st

from onehop import ArgumentError, Graph
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
    index=st.sampled_from(["int32", "int16"]),
)
WIDTHS = st.sampled_from([1, 3, 16, 17, 63, 129])
# The small whole numbers of these tests are exact in both.
DTYPES = st.sampled_from([torch.float32, torch.float64])


def operands(graph, width, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-8, 9, (graph.num_src, width), generator=generator).to(dtype)
    weight = torch.randint(1, 4, (graph.num_edges,), generator=generator).to(dtype)
    return x, weight


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("width", [1, 3, 16, 17, 63, 300])
def test_columns_of_16_bits_change_no_bit(dtype, width, generator):
    # All 65,536 numbers that there are, also in the upper half, which a sign would turn round.
    edge_index = torch.stack([torch.arange(65_536), torch.randint(0, 300, (65_536,), generator=generator)])
    graph = Graph.from_edge_index(edge_index, size=(65_536, 300))
    x, weight = operands(graph, width, dtype)
    weight = weight.to(torch.float64 if dtype == torch.float64 else torch.float32)
    wide, narrow = CpuPlan(edges_per_item=512), CpuPlan(edges_per_item=512, index="int16")
    for reduce in ("sum", "mean", "max", "min"):
        for factor in (None, weight):
            expected = run(graph, wide, reduce, x, factor)
            assert torch.equal(run(graph, narrow, reduce, x, factor), expected)
    scale = torch.arange(1, 65_537, dtype=weight.dtype) % 3
    call = on(graph, Aggregate, x=x, src_scale=scale)
    assert torch.equal(CpuBackend(narrow).run(graph, call), CpuBackend(wide).run(graph, call))
    extremum = on(graph, Extremum, x=x, reduce="max", with_ties=True)
    ties = [CpuBackend(plan).run(graph, extremum)[1] for plan in (wide, narrow)]
    assert torch.equal(*ties)


def test_nan_passes_through_columns_of_16_bits(generator):
    graph = Graph.from_edge_index(torch.randint(0, 40, (2, 300), generator=generator), num_nodes=40)
    x = torch.randn(40, 17, generator=generator)
    x[3, 5] = float("nan")
    for reduce in ("sum", "max", "min"):
        wide, narrow = (run(graph, CpuPlan(index=index), reduce, x) for index in ("int32", "int16"))
        assert wide.isnan().any()
        torch.testing.assert_close(narrow, wide, rtol=0, atol=0, equal_nan=True)


def test_columns_of_16_bits_are_counted_and_freed(generator):
    graph = Graph.from_edge_index(torch.randint(0, 40, (2, 300), generator=generator), num_nodes=40)
    x, _ = operands(graph, 4)
    before = graph.nbytes
    run(graph, CpuPlan(index="int16"), "sum", x)
    made = graph.nbytes
    run(graph, CpuPlan(index="int16"), "max", x)
    assert graph.nbytes == made >= before + 2 * graph.num_edges
    graph.csr.free_narrow_col()
    assert graph.nbytes == before


def test_graphs_with_more_sources_than_16_bits_can_name_are_refused():
    graph = Graph.from_edge_index(torch.tensor([[0, 65_536], [0, 1]]), size=(65_537, 2))
    with pytest.raises(ArgumentError, match="can name 65536 sources, and this graph has 65537"):
        run(graph, CpuPlan(index="int16"), "sum", torch.ones(65_537, 2))
    # Its transpose has two sources.
    call = on(graph, Aggregate, x=torch.ones(2, 2), transposed=True)
    out = CpuBackend(CpuPlan(index="int16")).run(graph, call)
    assert out.sum() == 4


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
