import pytest
import torch

from onehop.bench.ndp_models import EndToEnd, TimedMachine, end_to_end
from onehop.machines.ndp import Machine, NdpPlan
from tests.machines.ndp.graphs import random_graph


def test_a_model_is_its_hosts_part_and_its_aggregations():
    nn = pytest.importorskip("torch_geometric.nn")
    x, edge_index = torch.randn(300, 24), random_graph(300, 4000).edge_index()
    machine = Machine("grande_16", NdpPlan("channel"))
    model = nn.GCN(24, 40, 2, 7)
    found = end_to_end(machine, model, x, edge_index, rounds=1)
    assert found.host_ms > 0
    assert found.machine_ms > 0
    again = end_to_end(machine, model, x, edge_index, rounds=2)
    assert (again.machine_ms, again.baseline_ms, again.prior_ms) == (
        found.machine_ms,
        found.baseline_ms,
        found.prior_ms,
    )


def test_speedups_have_the_host_on_either_side():
    found = EndToEnd(host_ms=10.0, machine_ms=10.0, baseline_ms=40.0, prior_ms=20.0)
    assert found.speedup_over_baseline == 2.5
    assert found.speedup_over_prior == 1.5


def test_a_timed_machine_is_the_machine():
    graph, x, machine = random_graph(60, 500), torch.randn(60, 5), Machine("grande_16")
    timed = TimedMachine(machine)
    out, report = timed.aggregate(graph, x, NdpPlan("rank"), reduce="mean")
    expected, expected_report = Machine("grande_16").aggregate(graph, x, NdpPlan("rank"), reduce="mean")
    assert torch.equal(out, expected)
    assert report.as_dict() == expected_report.as_dict()
    assert timed.seconds > 0
    assert timed.name == machine.name
    assert timed.describe() == machine.describe()
    assert timed.refuse(torch.float64) == machine.refuse(torch.float64)
