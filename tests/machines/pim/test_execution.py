"""The machine's results against SciPy, on every axis of a plan."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from torch import Tensor

from onehop import Graph, MachineMemoryError
from onehop.machines.pim import Machine, PimPlan, prior_art
from tests.machines.ndp.graphs import random_graph
from tests.machines.pim.graphs import HOSTILE
from tests.machines.pim.machines import RANKS, plans, small

MACHINE = Machine(small())
WHOLE = ("int8", "int16", "int32", "int64")
DTYPES = (*WHOLE, "float32", "float64")
GRIDS = [(sp, RANKS * g // sp) for g in (1, 2) for sp in (1, 2, 4, 8) if sp <= RANKS * g] + [(1, 2), (2, 1)]


def features(rows: int, width: int, dtype: str) -> Tensor:
    generator = torch.Generator().manual_seed(rows + width)
    return torch.randint(-5, 6, (rows, width), generator=generator).to(getattr(torch, dtype))


def expected(graph: Graph, x: Tensor, weight: Tensor | None) -> np.ndarray:
    """By SciPy, in float64, in which these small whole numbers are exact."""
    values = torch.ones(graph.num_edges) if weight is None else weight
    return graph.to_scipy(values.double()).tocsr() @ x.double().numpy()


def check(graph: Graph, width: int, dtype: str, plan: PimPlan, weighted: bool) -> None:
    x = features(graph.num_src, width, dtype)
    weight = features(graph.num_edges, 1, dtype).view(-1) if weighted else None
    out, report = MACHINE.aggregate(graph, x, plan, weight=weight)
    assert np.array_equal(out.double().numpy(), expected(graph, x, weight))
    assert report.total_ns > 0


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(
    ("form", "by_core", "by_thread"), [*product(("csr", "coo"), ("row", "edge"), ("row", "edge"))]
)
def test_every_split_gives_scipys_sums(name: str, form: str, by_core: str, by_thread: str) -> None:
    plan = PimPlan(sp=2, ds=2, format=form, core_balance=by_core, thread_balance=by_thread)
    check(HOSTILE[name], 7, "int32", plan, weighted=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 3, 17, 63])
def test_every_dtype_and_odd_width_gives_scipys_sums(dtype: str, width: int) -> None:
    check(HOSTILE["hub"], width, dtype, PimPlan(sp=2, ds=4), weighted=dtype != "int8")


@pytest.mark.parametrize(("sp", "ds"), GRIDS)
@pytest.mark.parametrize("cut", ["equal", "edge"])
def test_every_grid_gives_scipys_sums(sp: int, ds: int, cut: str) -> None:
    for form in ("csr", "coo"):
        check(
            HOSTILE["hub"], 17, "float32", PimPlan(sp=sp, ds=ds, column_cut=cut, format=form), weighted=True
        )


@pytest.mark.parametrize(("rounds", "block_rounds"), [(2, 1), (1, 3), (3, 2), (50, 1)])
def test_rounds_change_no_number(rounds: int, block_rounds: int) -> None:
    check(
        HOSTILE["uniform"], 17, "int32", PimPlan(sp=2, ds=2, rounds=rounds, block_rounds=block_rounds), True
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_prior_art_gives_scipys_sums(name: str) -> None:
    check(HOSTILE[name], 11, "int32", prior_art.grande(MACHINE.config), weighted=False)
    for ranks_each in (1, 2, 4):
        check(HOSTILE[name], 11, "int32", prior_art.sparsep(MACHINE.config, 11, ranks_each), weighted=False)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    size=st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(0, 80), st.integers(0, 99)),
    plan=plans(
        GRIDS,
        most_tasklets=24,
        reader_bytes=st.sampled_from([8, 32, 64]),
        merge_order=st.sampled_from(["block", "row"]),
        unit_weights=st.booleans(),
        rounds=st.integers(1, 3),
        block_rounds=st.integers(1, 2),
    ),
    width=st.integers(1, 20),
    dtype=st.sampled_from(DTYPES),
    weighted=st.booleans(),
)
def test_any_plan_on_any_graph_gives_scipys_sums(
    size: tuple[int, int, int, int], plan: PimPlan, width: int, dtype: str, weighted: bool
) -> None:
    sources, targets, edges, seed = size
    check(random_graph(targets, edges, seed, sources), width, dtype, plan, weighted)


def test_same_bits_for_any_number_of_threads() -> None:
    graph = HOSTILE["hub"]
    x = torch.randn(graph.num_src, 33, generator=torch.Generator().manual_seed(1))
    outs = []
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        outs.append(MACHINE.aggregate(graph, x, PimPlan(sp=2, ds=2, format="coo"))[0])
    assert all(torch.equal(out, outs[0]) for out in outs)


def test_float_sums_follow_the_partition() -> None:
    """2^24 swallows ones that are added singly; cut apart, two of them are added up first."""
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2, 3], [0, 0, 0, 0]]), 4)
    x = torch.tensor([[2.0**24], [1.0], [1.0], [1.0]])
    machine = Machine(small().with_(cores=2, ranks=2))
    together = machine.aggregate(graph, x, PimPlan(sp=1, ds=2))[0]
    apart = machine.aggregate(graph, x, PimPlan(sp=2, ds=1))[0]
    assert (float(together[0, 0]), float(apart[0, 0])) == (2.0**24, 2.0**24 + 2)


def test_mean_and_scales_are_those_of_the_operator() -> None:
    import onehop

    graph = HOSTILE["bipartite"]
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(31, 9, generator=generator, dtype=torch.float64)
    left = torch.rand(31, generator=generator, dtype=torch.float64)
    right = torch.rand(77, generator=generator, dtype=torch.float64)
    for reduce in ("sum", "mean"):
        out, _ = MACHINE.aggregate(graph, x, reduce=reduce, src_scale=left, dst_scale=right)
        torch.testing.assert_close(out, onehop.aggregate(graph, x, None, reduce, left, right))


def test_nan_stays_in_its_rows_and_columns() -> None:
    graph = HOSTILE["uniform"]
    x = torch.ones(100, 5)
    x[3, 2] = float("nan")
    out, _ = MACHINE.aggregate(graph, x, PimPlan(sp=2, ds=2))
    reached = torch.zeros(100, dtype=torch.bool)
    source, target = graph.edge_index()
    reached[target[source == 3]] = True
    assert torch.equal(out[:, 2].isnan(), reached)
    assert not out[:, [0, 1, 3, 4]].isnan().any()


def test_features_need_not_be_contiguous() -> None:
    graph = HOSTILE["uniform"]
    x = features(8, 100, "float32").t()
    out, _ = MACHINE.aggregate(graph, x, PimPlan(sp=1, ds=4))
    assert np.array_equal(out.numpy(), expected(graph, x, None))


def test_a_plan_that_does_not_fit_streams_to_the_same_result() -> None:
    graph = HOSTILE["uniform"]
    tiny = Machine(small().with_(mram_bytes=2048))
    plan = PimPlan(sp=1, ds=4)
    x = features(100, 32, "int32")
    with pytest.raises(MachineMemoryError):
        tiny.aggregate(graph, x, plan)
    out, report = tiny.aggregate(graph, x, replace(plan, stream=True))
    assert np.array_equal(out.double().numpy(), expected(graph, x, None))
    assert report.plan.rounds * report.plan.block_rounds > 1
    assert report.mram_bytes_max <= 2048


def test_no_columns_and_no_nodes() -> None:
    graph = HOSTILE["uniform"]
    out, report = MACHINE.aggregate(graph, torch.ones(100, 0))
    assert out.shape == (100, 0)
    assert report.total_ns == 0
    empty = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), 0)
    out, report = MACHINE.aggregate(empty, torch.ones(0, 4))
    assert out.shape == (0, 4)
    assert report.bytes["retrieve"] == 0
