import pytest
import torch

from onehop.bench.cases import OPERATIONS, Case, Oracle
from onehop.bench.peers import PEERS, Onehop, choose
from onehop.bench.peers.base import beta_warnings_ignored, import_reason
from onehop.errors import ArgumentError
from tests.bench.small_graphs import workload

EVERYONE = {Onehop.name: Onehop(), **PEERS}
# It gives rows without edges the number that it begins with, the lowest or highest of float32.
KNOWN_WRONG = {("isplib", "max"), ("isplib", "min")}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", EVERYONE)
def test_peers_compute_what_the_reference_does(name, operation):
    peer = EVERYONE[name]
    case = Case(workload(), operation, width=17)
    reason = peer.available() or peer.refuse(case)
    if reason is not None:
        pytest.skip(f"{name}: {reason}")
    with beta_warnings_ignored():
        call = peer.build(case)
        if (name, operation) in KNOWN_WRONG:
            assert "off the reference" in Oracle(case).judge(call())
            return
        assert Oracle(case).judge(call()) is None
        assert Oracle(case).judge(call()) is None  # a second call finds nothing left over


def test_a_gather_and_scatter_needs_a_row_an_edge():
    case = Case(workload(num_edges=300), "sum", width=8)
    assert PEERS["pyg-edge_index"].extra_bytes(case) == 300 * 8 * 4
    assert Onehop().extra_bytes(case) == 0


def test_choose_finds_peers_by_name():
    assert choose(["scipy"]) == [PEERS["scipy"]]
    assert choose(None) == list(PEERS.values())
    with pytest.raises(ArgumentError, match="got 'cupy'"):
        choose(["cupy"])


def test_a_package_that_is_not_there_is_named():
    assert import_reason("torch") is None
    assert "no_such_package" in import_reason("no_such_package")


def test_cases_refuse_unknown_operations_and_widths():
    with pytest.raises(ArgumentError, match="got 'median'"):
        Case(workload(), "median", 4)
    with pytest.raises(ArgumentError, match="got 0"):
        Case(workload(), "sum", 0)


class TestOracle:
    @pytest.fixture
    def case(self):
        return Case(workload(), "mean", width=12)

    def result(self, case):
        return Onehop().build(case)()

    def test_accepts_the_right_result(self, case):
        assert Oracle(case).judge(self.result(case)) is None

    def test_finds_one_wrong_entry(self, case):
        result = self.result(case)
        result[5, 3] += 1e-3
        assert "off the reference" in Oracle(case).judge(result)

    def test_finds_nan(self, case):
        result = self.result(case)
        result[0, 0] = torch.nan
        assert "off the reference" in Oracle(case).judge(result)

    def test_finds_a_wrong_shape(self, case):
        assert "has shape" in Oracle(case).judge(self.result(case)[:, :4])

    def test_compares_the_first_and_last_columns_of_large_cases(self, case):
        oracle = Oracle(case, most_entries=3 * 300)
        assert oracle.columns.tolist() == [0, 6, 11]
        result = self.result(case)
        result[2, 11] += 1
        assert oracle.judge(result) is not None
