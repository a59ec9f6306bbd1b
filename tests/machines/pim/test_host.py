"""The host beside the machine."""

import pytest
import torch

from onehop.machines.pim import Machine, PimPlan, host
from tests.machines.pim.graphs import HOSTILE
from tests.machines.pim.machines import small


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "float32", "float64"])
def test_torchs_time_is_measured_for_every_dtype(dtype: str) -> None:
    graph = HOSTILE["uniform"]
    x = torch.ones(100, 8).to(getattr(torch, dtype))
    assert host.measured_ns(graph, x, rounds=1) > 0
    assert host.measured_ns(graph, x, torch.ones(900), rounds=1) > 0


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_error_is_the_difference_to_the_exact_sum(reduce: str) -> None:
    graph = HOSTILE["hub"]
    generator = torch.Generator().manual_seed(0)
    x, weight = (
        torch.randn(60, 40, generator=generator).double(),
        torch.rand(400, generator=generator).double(),
    )
    out, _ = Machine(small()).aggregate(graph, x, PimPlan(sp=2, ds=2), weight=weight, reduce=reduce)
    assert host.largest_error(graph, x, weight, reduce, out) < 1e-12
    out[7, 35] += 0.5
    assert host.largest_error(graph, x, weight, reduce, out) == pytest.approx(0.5)
