"""Sums that provably hold, and quantisation."""

import numpy as np
import pytest
import torch

import onehop
from onehop import ArgumentError, Graph
from onehop.machines.pim import Machine, PimPlan
from onehop.machines.pim.numbers import accumulator, degree_bound, largest, multiply_bits, quantise
from tests.machines.pim.graphs import HOSTILE
from tests.machines.pim.machines import small

MACHINE = Machine(small())
PLAN = PimPlan(sp=1, ds=4)


def star(leaves: int) -> Graph:
    """All leaves point to node 0."""
    return Graph.from_edge_index(
        torch.stack([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.long)]), leaves + 1
    )


@pytest.mark.parametrize(("leaves", "sums"), [(1, "int8"), (2, "int16"), (258, "int16"), (259, "int32")])
def test_sums_of_int8_get_the_narrowest_type_that_holds_them(leaves: int, sums: str) -> None:
    x = torch.full((leaves + 1, 2), 127, dtype=torch.int8)
    out, report = MACHINE.aggregate(star(leaves), x, PLAN)
    assert report.accumulator == sums
    assert out[0].tolist() == [127 * leaves] * 2
    assert out.dtype == getattr(torch, sums)


def test_a_plans_accumulator_that_could_overflow_is_refused() -> None:
    x = torch.full((3, 2), 127, dtype=torch.int8)
    with pytest.raises(ArgumentError, match=r"reach 254.*int8 holds at most 127.*int16"):
        MACHINE.aggregate(star(2), x, PimPlan(sp=1, ds=4, accumulator="int8"))
    with pytest.raises(ArgumentError, match="scale the features down"):
        MACHINE.aggregate(star(2), torch.full((3, 2), 2**62), PLAN)
    with pytest.raises(ArgumentError, match="accumulator of int32"):
        MACHINE.aggregate(star(2), x.int(), PimPlan(sp=1, ds=4, accumulator="int16"))
    with pytest.raises(ArgumentError, match="accumulator of float32"):
        MACHINE.aggregate(star(2), x.float(), PimPlan(sp=1, ds=4, accumulator="int32"))


def test_weights_count_in_the_bound() -> None:
    x = torch.full((3, 1), 100, dtype=torch.int8)
    weight = torch.tensor([-100, 100], dtype=torch.int8)
    out, report = MACHINE.aggregate(star(2), x, PLAN, weight=weight)
    assert (report.accumulator, out[0].item()) == ("int16", 0)


@pytest.mark.parametrize(("dtype", "steps"), [("int8", 127), ("int16", 2**15 - 1), ("int32", 2**20)])
@pytest.mark.parametrize("scale", ["tensor", "column"])
def test_quantised_sums_are_within_half_a_step_an_edge(dtype: str, steps: int, scale: str) -> None:
    graph = HOSTILE["hub"]
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    x[:, 3] *= 100
    plan = PimPlan(sp=2, ds=2, dtype=dtype, scale=scale)
    out, report = MACHINE.aggregate(graph, x, plan)
    most = x.abs().amax(0) if scale == "column" else x.abs().max().expand(6)
    bound = graph.in_degrees.unsqueeze(1) * (most / steps / 2) + 1e-3
    assert ((out - onehop.aggregate(graph, x)).abs() <= bound).all()
    assert report.dtype == dtype
    assert out.dtype == torch.float32


def test_factors_by_column_are_finer() -> None:
    graph = HOSTILE["uniform"]
    x = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    x[:, 3] *= 1000
    exact = onehop.aggregate(graph, x)
    errors = [
        (MACHINE.aggregate(graph, x, PimPlan(sp=1, ds=4, dtype="int8", scale=scale))[0] - exact)[:, :3]
        .abs()
        .max()
        for scale in ("tensor", "column")
    ]
    assert errors[1] < errors[0] / 100


def test_int32_features_leave_room_for_hubs() -> None:
    x = torch.ones(5001, 1)
    out, report = MACHINE.aggregate(star(5000), x, PimPlan(sp=1, ds=4, dtype="int32"))
    assert report.accumulator == "int32"
    assert out[0].item() == pytest.approx(5000, rel=1e-5)


def test_quantised_weights() -> None:
    graph = HOSTILE["uniform"]
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(100, 4, generator=generator), torch.rand(900, generator=generator)
    out, report = MACHINE.aggregate(graph, x, PimPlan(sp=1, ds=4, dtype="int32"), weight=weight)
    torch.testing.assert_close(out, onehop.aggregate(graph, x, weight), rtol=1e-2, atol=1e-2)
    assert report.accumulator == "int32"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_cannot_be_quantised(bad: float) -> None:
    x = torch.ones(100, 4)
    x[1, 1] = bad
    with pytest.raises(ArgumentError, match="finite"):
        MACHINE.aggregate(HOSTILE["uniform"], x, PimPlan(sp=1, ds=4, dtype="int8"))


def test_quantising_zeros_and_nothing() -> None:
    assert quantise(torch.zeros(3, 2), "int8", 127, by_column=True).values.tolist() == [[0, 0]] * 3
    assert quantise(torch.zeros(0, 2), "int8", 127, by_column=False).values.shape == (0, 2)


def test_means_of_integers_are_floats() -> None:
    out, _ = MACHINE.aggregate(star(2), torch.tensor([[0], [1], [2]]), PLAN, reduce="mean")
    assert out.dtype == torch.float32
    assert out[0].item() == 1.5


def test_accumulators_by_bound() -> None:
    assert [accumulator(PLAN, "int8", bound) for bound in (127, 128, 2**15, 2**31)] == [
        "int8",
        "int16",
        "int32",
        "int64",
    ]
    assert largest("int32") == 2**31 - 1


def test_bits_of_multiplies() -> None:
    ones = torch.ones(5, dtype=torch.int32)
    assert multiply_bits(torch.full((5,), 1000, dtype=torch.int32), ones) == 1
    assert multiply_bits(-ones, -ones) == 32
    assert multiply_bits(ones * 7, ones * 1000) == 3
    assert multiply_bits(torch.full((5,), 0.1), torch.ones(5)) == 1
    assert multiply_bits(torch.full((5,), 0.1), torch.full((5,), 0.3)) > 20


def test_int64_features_of_single_edges_stay_in_range() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]), 2)
    x = torch.tensor([[1.0], [-3.0]], dtype=torch.float64)
    out, _ = MACHINE.aggregate(graph, x, PimPlan(sp=1, ds=4, dtype="int64"))
    assert out[1].item() == pytest.approx(1.0)


def test_huge_weights_cannot_hide_an_overflow() -> None:
    weight = torch.full((4,), 2**62)
    graph, x = star(4), torch.ones(5, 1, dtype=torch.int64)
    with pytest.raises(ArgumentError, match="scale the features down"):
        MACHINE.aggregate(graph, x, PLAN, weight=weight)
    with pytest.raises(ArgumentError, match="scale the features down"):
        MACHINE.aggregate(graph, x, PLAN, weight=torch.full((4,), -(2**63)))
    out, _ = MACHINE.aggregate(graph, x, PLAN, weight=torch.full((4,), -(2**60)))
    assert out[0].item() == -(2**62)


@pytest.mark.parametrize("dtype", [np.int8, np.int64])
def test_bounds_count_the_last_edge_before_empty_rows(dtype: type) -> None:
    rowptr = np.array([0, 0, 1, 3, 3, 3])
    weight = np.array([-1, 2, -5], dtype=dtype)
    assert degree_bound(rowptr, weight) == pytest.approx(7, abs=1)
    assert degree_bound(rowptr, weight) >= 7
    assert degree_bound(rowptr, None) == 2
    assert degree_bound(np.array([0, 0]), np.array([], dtype=dtype)) == 0
