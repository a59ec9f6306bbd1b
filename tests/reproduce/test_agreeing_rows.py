"""No row agrees whatever is simulated: with a constant changed by a factor of 2, rows that agreed do not.

Rows whose graphs are too large for a test are computed on small graphs, with our own values in the place of
the published ones.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from onehop import Graph
from onehop.datasets import chung_lu
from onehop.machines.pim import Machine, PimReport
from onehop.reproduce import Row, grande, isplib
from onehop.reproduce.grande import graphs
from onehop.reproduce.grande.cases import RATES, combination_ns
from onehop.reproduce.grande.graphs import TWINS
from onehop.reproduce.io_aware import memory
from onehop.reproduce.pygim import assumptions, comparison, machine, schemes
from tests.reproduce.test_measured_works import timed

NODES = {"arxiv": 169_343, "amazon": 410_236, "mag": 736_389, "products": 2_449_029}


def agreeing(rows: Sequence[Row]) -> set[str]:
    return {row.figure for row in rows if row.verdict == "agrees"}


def test_memory_of_gpu_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    before = agreeing([*memory.savings(), *memory.memory()])
    assert len(before) >= 5
    # What DGL keeps for each edge.
    for constant in ("_FORWARD_EDGE_ROWS", "_BACKWARD_EDGE_ROWS", "_TRANSFORMER_NUMBERS"):
        monkeypatch.setattr(memory, constant, tuple(2 * each for each in getattr(memory, constant)))
    assert not before & agreeing([*memory.savings(), *memory.memory()])


def test_sizes_to_which_twins_were_made_have_no_verdict() -> None:
    rows = graphs.sizes("arxiv", [2.48e6], NODES["arxiv"], (20.0, 173.4), ("a", "b"))
    assert [row.verdict for row in rows] == ["fitted", "fitted"]
    assert "8 bytes for an edge and 1 for a node were fitted" in rows[0].note


def runs(host_factor: float = 1.0, unit_factor: float = 1.0) -> list[grande.Run]:
    """Runs whose shares of aggregation are the published ones, with a host's cache that saves a tenth."""
    found = []
    for one in TWINS:
        for case, kept in ((grande.BASE, 1.0), (grande.BASE._replace(llc_mib=27.5), 0.9)):
            run = grande.Run(one, case, 1.0, 1.0, 1.0, NODES[one.paper])
            share = one.aggregation_percent / 100
            host_ns = combination_ns(run, RATES[""]) * share / (1 - share)
            times = {
                "host_ns": host_ns * kept * host_factor,
                "time_ns": host_ns / 3 * unit_factor,
                "prior_ns": host_ns / 2,
            }
            found.append(replace(run, **times))
    return found


def test_shares_of_aggregation(monkeypatch: pytest.MonkeyPatch) -> None:
    before = agreeing(grande.shares(runs()))
    assert len(before) == 4
    assert not before & agreeing(grande.shares(runs(host_factor=2.0)))
    assert not before & agreeing(grande.shares(runs(host_factor=0.5)))
    monkeypatch.setattr(grande, "RATES", {label: 2 * rate for label, rate in RATES.items()})
    assert not before & agreeing(grande.shares(runs()))


def test_speed_ups_of_grande(monkeypatch: pytest.MonkeyPatch) -> None:
    def ours() -> dict[str, tuple[float, float]]:
        values = [row.ours or 0.0 for row in grande.speedups(runs())]
        return {name: (values[2 * at], values[2 * at + 1]) for at, name in enumerate(grande.PAPER)}

    monkeypatch.setattr(grande, "PAPER", ours())
    before = agreeing(grande.speedups(runs()))
    assert len(before) == 8
    for factor in (0.5, 2.0):
        assert not before & agreeing(grande.speedups(runs(unit_factor=factor)))


def slower(report: PimReport, factor: float) -> PimReport:
    return replace(
        report,
        phases_ns={phase: factor * ns for phase, ns in report.phases_ns.items()},
        energy_nj={part: factor * nj for part, nj in report.energy_nj.items()},
    )


def test_inference_of_pygim(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_edge_index(chung_lu(3_000, 60_000), 3_000)
    shapes = Machine().shapes(graph)
    monkeypatch.setattr(comparison, "machines", lambda: [assumptions.base()])
    cases = [case for case in comparison.measured("g", shapes, lambda *_: None) if case.threads == 1]

    def rows(factor: float = 1.0) -> list[Row]:
        """Every scheme but the published one takes this many times as long."""
        changed = [
            replace(
                case,
                outcomes=tuple(
                    replace(
                        one,
                        reports={
                            name: report if name == schemes.PUBLISHED else slower(report, factor)
                            for name, report in one.reports.items()
                        },
                    )
                    for one in case.outcomes
                ),
            )
            for case in cases
        ]
        return [row for row in comparison.rows(changed) if row.paper is not None]

    before = set()
    for prior in comparison.CLAIMED:
        own = [row for row in rows() if f" of {prior} " in row.figure]
        values = [row.ours or 0.0 for row in own]
        monkeypatch.setattr(comparison, "PAPER", {"time": values[:2], "energy": values[2:]})
        agreed = {figure for figure in agreeing(rows()) if f" of {prior} " in figure}
        for factor in (0.5, 2.0):
            assert not agreed & agreeing(rows(factor))
        before |= agreed
    assert before


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_rates_of_a_core(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    before = agreeing(machine.calibration())
    assert before == {"edges a millisecond and core, width 4"}
    rates = {width: factor * rate for width, rate in machine.EDGES_PER_MS.items()}
    monkeypatch.setattr(machine, "EDGES_PER_MS", rates)
    assert not before & agreeing(machine.calibration())


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_epochs_of_isplib(factor: float) -> None:
    def rows(seconds: float) -> list[Row]:
        graph = "reddit twin x 0.1"
        found = [
            timed(model, graph, pyg=seconds, pyg_torch_csr=seconds / 1.5) for model in isplib.epochs.MODELS
        ]
        return [isplib.headline(each, found) for each in isplib.PUBLISHED]

    for published in (54.0, 32.0, 23.0, 51.0, 93.0, 27.0):
        before = agreeing(rows(published))
        assert before
        assert not before & agreeing(rows(published * factor))
