import pytest

from onehop.bench.ndp_models import output_errors
from onehop.machines.ndp import Machine, NdpPlan, functional
from onehop.machines.ndp.mapping import candidates
from tests.machines.ndp.graphs import random_graph


@pytest.fixture
def machine():
    return Machine("grande_16")


def names(machine):
    return [pods.name for pods in candidates(machine.config.topology)]


def test_right_results_have_small_errors(machine):
    errors = output_errors(machine, random_graph(900, 9000), NdpPlan(), 40, ["rank"], names(machine)[1:])
    assert list(errors) == names(machine)
    assert 0 < max(errors.values()) < 1e-4


@pytest.mark.parametrize("whole", [True, False])
def test_a_wrong_slice_is_found(machine, monkeypatch, whole):
    right = functional.aggregate

    def wrong(workload, pods, x, **arguments):
        out = right(workload, pods, x, **arguments)
        if arguments["columns"][0] == 16:
            out[-1, 3] += 1
        return out

    monkeypatch.setattr(functional, "aggregate", wrong)
    full, sampled = (["dimm"], []) if whole else ([], ["dimm"])
    errors = output_errors(machine, random_graph(900, 9000), NdpPlan(), 40, full, sampled)
    assert errors["dimm"] == pytest.approx(1, abs=1e-3)


def test_graphs_without_nodes(machine):
    assert output_errors(machine, random_graph(1, 0), NdpPlan(), 3, ["rank"], ["dimm"]) == {
        "rank": 0.0,
        "dimm": 0.0,
    }
