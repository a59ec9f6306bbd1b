import pytest

from onehop import config
from onehop.bench.cases import Case
from onehop.bench.ops import CaseResult, measure, measure_case, summarise
from onehop.bench.peers import PEERS
from onehop.bench.timing import Times
from tests.bench.small_graphs import workload


class Lying:
    """A peer whose results are wrong."""

    name = "lying"

    def available(self):
        return None

    def refuse(self, case):
        return None

    def extra_bytes(self, case):
        return 0

    def build(self, case):
        return lambda: case.x + 1


class Absent(Lying):
    name = "absent"

    def available(self):
        return "is not here"


def test_a_case_is_checked_timed_and_set_against_the_roof():
    result = measure_case(Case(workload(), "sum", 16), [PEERS["scipy"]], rounds=2, budget_s=1)
    assert list(result.times) == ["onehop", "scipy"]
    assert result.best_peer() == "scipy"
    assert result.percent_of_roof > 0
    assert result.checked_columns == 16
    assert result.wrong == {}


def test_the_roof_of_a_backward_pass_is_two_gathers():
    result = measure_case(Case(workload(), "sum_backward", 16), [], rounds=1, budget_s=1)
    assert result.roof.moved_bytes == 2 * 300 * (16 * 4 + 4)


def test_widths_off_the_gathers_grid_have_no_roof():
    result = measure_case(Case(workload(), "sum", 10), [], rounds=1, budget_s=1)
    assert result.roof is None
    assert result.percent_of_roof is None
    assert result.to_dict()["best_peer_ratio"] is None


def test_a_wrong_peer_is_reported_and_not_timed():
    result = measure_case(Case(workload(), "sum", 16), [Lying()], rounds=1, budget_s=1)
    assert "off the reference" in result.wrong["lying"]
    assert "lying" not in result.times


def test_an_absent_peer_is_left_out_with_its_reason():
    result = measure_case(Case(workload(), "sum", 16), [Absent()], rounds=1, budget_s=1)
    assert result.skipped == {"absent": "is not here"}


def test_a_peer_that_needs_too_much_memory_is_left_out(monkeypatch):
    monkeypatch.setattr("onehop.bench.ops.MEMORY_SHARE", config.physical_memory_bytes() // 1000)
    peer = PEERS["pyg-edge_index"]
    result = measure_case(Case(workload(), "sum", 16), [peer], rounds=1, budget_s=1)
    assert "B of intermediate results (limit " in result.skipped[peer.name]


def test_measure_goes_over_everything_and_forgets_what_peers_made():
    graph = workload()
    results = list(measure(graph, [("sum", 16), ("max", 32)], [PEERS["scipy"]], 1, 1.0))
    assert [(r.operation, r.width) for r in results] == [("sum", 16), ("max", 32)]
    assert graph.cache == {}


def times(**seconds):
    return {name.replace("_", "-"): Times((value,)) for name, value in seconds.items()}


def test_summaries_take_the_best_peer_of_each_case_and_the_worst_ratio_of_all():
    results = [
        CaseResult("a", "sum", 16, times=times(onehop=1.0, scipy=2.0, torch_csr=8.0), percent_of_roof=90),
        CaseResult("b", "sum", 32, times=times(onehop=1.0, scipy=9.0, torch_csr=8.0), percent_of_roof=70),
        CaseResult("b", "max", 32, times=times(onehop=1.0)),
    ]
    (summary,) = summarise(results)
    assert summary.operation == "sum"
    assert summary.cases == 2
    assert summary.best_peer_geomean == pytest.approx(4.0)
    assert summary.torch_geomean == pytest.approx(8.0)
    assert (summary.worst, summary.worst_case) == (2.0, "a 16, scipy")
    assert summary.least_percent_of_roof == 70
