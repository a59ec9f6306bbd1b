"""PyGim: machines that evidence allows, schemes on equal terms, intervals, and the host by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onehop import Graph
from onehop.datasets import chung_lu
from onehop.machines import gpu
from onehop.machines.pim import BalancedShapes, Machine, PimPlan, prior_art, upmem_v1a
from onehop.machines.pim.combination import Network, combination_energy_nj
from onehop.machines.pim.costs import arithmetic_instructions
from onehop.machines.pim.provenance import BOUNDS
from onehop.reproduce.pygim import (
    assumptions,
    comparison,
    machine,
    nearest,
    schemes,
    sweeps,
    tuners,
    utilisation,
)
from tests.cli.running import written

GRAPH = Graph.from_edge_index(chung_lu(3_000, 60_000), 3_000)
SHAPES = Machine().shapes(GRAPH)


def fast() -> assumptions.Assumption:
    labels = ("1 instruction for each element", "page faults of 1,600 ns", assumptions.FAST_MERGE)
    return assumptions.assumption(frozenset(labels))


@pytest.fixture(scope="module")
def cases() -> list[comparison.Case]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "machines", lambda: [assumptions.base(), fast()])
        return comparison.measured("a graph", SHAPES, lambda _what, _done: None)


@pytest.fixture
def two_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "machines", lambda: [assumptions.base(), fast()])


def test_machines_are_all_combinations_of_the_bounds() -> None:
    found = list(assumptions.of_time())
    assert len({(each.config.to_toml(), each.prior.to_toml()) for each in found}) == 16
    for name in ("page_fault_ns", "element_instructions", "coo_edge_instructions"):
        part = "links" if name == "page_fault_ns" else "core"
        assert {getattr(getattr(each.config, part), name) for each in found} == set(BOUNDS[name])


@pytest.mark.parametrize("element", [0.0, 1.0, 8.44])
def test_the_split_keeps_what_was_measured(element: float) -> None:
    config = assumptions.with_element(upmem_v1a(), element)
    published = Machine(config).kernel(prior_art.PUBLISHED, "int32")
    total = config.core.element_instructions + arithmetic_instructions(config, published)
    assert total == pytest.approx(20.47)
    without = Machine(config).kernel(PimPlan(), "int32")
    assert config.core.element_instructions + arithmetic_instructions(config, without) == pytest.approx(
        6 + element
    )


def test_a_faster_merge_leaves_the_cores_alone() -> None:
    config = assumptions.with_merge(upmem_v1a(), 3.0)
    assert config.links.copy_ns[0][1] * 3 == pytest.approx(upmem_v1a().links.copy_ns[0][1])
    assert config.links.host_dram_gbps == upmem_v1a().links.host_dram_gbps
    assert config.core == upmem_v1a().core


@pytest.mark.parametrize("threads", assumptions.THREADS)
def test_every_scheme_merges_with_the_same_threads_and_ours_wins(
    cases: list[comparison.Case], threads: int
) -> None:
    (case,) = [each for each in cases if each.threads == threads]
    reports = case.base.reports
    assert set(reports) == set(schemes.SCHEMES)
    assert {report.plan.merge_threads for report in reports.values()} == {threads}
    priors = (*schemes.PRIOR, *schemes.MAPPED)
    assert not any(reports[name].plan.unit_weights for name in (*priors, schemes.PUBLISHED))
    assert reports[schemes.PUBLISHED].plan.format == "csr"
    assert reports[schemes.PUBLISHED].plan.sp in (1, 2)
    assert reports[schemes.SPARSEP].plan.scheme == "sparsep"
    assert reports[schemes.OURS].total_ns < reports[schemes.PUBLISHED].total_ns
    for prior in priors:
        assert case.base.ratio(prior, schemes.PUBLISHED) == pytest.approx(
            reports[prior].total_ns / reports[schemes.PUBLISHED].total_ns
        )
    # A faster merge of prior schemes; by many threads, the memory is the limit already.
    faster, merge = (
        each.reports[schemes.GRANDE].phases_ns["merge"] for each in (case.outcomes[1], case.base)
    )
    assert faster == merge if threads == 16 else faster < merge


def test_energy_taken_again_is_the_reports(cases: list[comparison.Case]) -> None:
    config = upmem_v1a()
    for report in cases[0].base.reports.values():
        assert comparison.aggregation_energy_nj(report, config) == pytest.approx(report.energy_mj * 1e6)
        dear = config.with_(rank_w=config.power.rank_w + 1)
        more = comparison.aggregation_energy_nj(report, dear) - report.energy_mj * 1e6
        assert more == pytest.approx(32 * report.total_ns)


def test_whole_models_are_combination_and_a_sum_a_layer(cases: list[comparison.Case]) -> None:
    config, report = upmem_v1a(), cases[0].base.reports[schemes.PUBLISHED]
    network = Network("gin", 3_000, 256, 256, 256, layers=3)
    host_ns = network.time_ns(config)
    assert comparison.whole(report, config, network, energy=False) == pytest.approx(
        host_ns + 3 * report.total_ns
    )
    expected = combination_energy_nj(config.power, 32, host_ns) + 3e6 * report.energy_mj
    assert comparison.whole(report, config, network, energy=True) == pytest.approx(expected)


@pytest.mark.usefixtures("two_machines")
def test_rows_for_each_baseline_and_scheme(cases: list[comparison.Case]) -> None:
    rows = comparison.rows(cases)
    models = [row for row in rows if row.figure.startswith("inference")]
    assert len(models) == 4 * (2 * 2 + 2)
    # One number of threads alone spans less.
    alone = comparison.rows([case for case in cases if case.threads == 1])
    assert alone[0].ours == models[0].ours
    assert alone[0].low > models[0].low
    # A graph apart is in the intervals, and not in ours.
    other = [replace(case, graph="another", nodes=30_000) for case in cases]
    with_another = comparison.rows(cases, apart=other)
    assert [row.ours for row in with_another[: len(models)]] == [row.ours for row in models]
    assert all(one.low <= two.low for one, two in zip(with_another, models, strict=False))
    assert with_another[0].high > models[0].high or with_another[0].low < models[0].low
    assert sum("another" in row.figure for row in with_another) == 4 + 2
    compared = [row for row in models if row.paper is not None]
    claimed = [4.38, 7.20, 2.86, 3.68]
    assert [row.paper for row in compared] == 3 * claimed
    for prior, start in (("GraNDe-like", 0), ("GNNear-like", 4), ("G-NMP-like", 8)):
        assert all(f"{prior} over PaF, published, " in row.figure for row in compared[start : start + 4])
    # Times of all three are headlines, energies of the scheme that is known as its authors ran it.
    assert [row.headline for row in compared] == [True] * 6 + [False] * 2 + [True] * 2 + [False] * 2
    for row in models:
        assert row.low < row.high
        assert ("winner is open" in row.note) == (row.low < 1 < row.high)
    mean, best, energy, _ = (row.ours for row in compared[:4])
    assert mean <= best
    assert ("As in the paper, energy gains less" in compared[2].note) == (energy < mean)
    assert ("here more" in compared[2].note) == (energy >= mean)


@pytest.mark.usefixtures("two_machines")
def test_one_unknown_is_treated_alike_in_all_rows(cases: list[comparison.Case]) -> None:
    rows = [*comparison.rows(cases), *machine.over_host(cases, {"a graph": SHAPES})]
    inference = [row for row in rows if row.figure.startswith("inference") and row.paper is not None]
    times = [row for row in inference if " time " in row.figure]
    energies = [row for row in inference if " energy " in row.figure]
    for group in (times, energies):
        shared = {tuple(each for each in row.unknowns if each not in assumptions.HOSTS) for row in group}
        assert len(shared) == 1
    named = {each.name for row in energies for each in row.unknowns}
    assert {"merging threads", "a core's power, W", "a rank's power, W"} <= named
    # Each unknown has a source and something that settles it, and no two have the same label.
    unknowns = (*assumptions.UNKNOWNS, *assumptions.HOSTS, *assumptions.POWERS)
    assert all(each.source and each.settled_by and each.others for each in unknowns)
    labels = [label for each in unknowns for label in each.others]
    assert len(labels) == len(set(labels))


def test_the_host_draws_the_same_power_for_products_on_both_sides(cases: list[comparison.Case]) -> None:
    report = cases[0].base.reports[schemes.PUBLISHED]
    full = assumptions.assumption(frozenset({assumptions.FULL_LOAD}))
    config = full.config
    assert full.product_w == 170.0
    network = Network("gcn", 3_000, 256, 256, 256, layers=2)
    host_ns = network.time_ns(config)
    expected = (170.0 + 32 * config.power.rank_w) * host_ns + 2e6 * report.energy_mj
    assert comparison.whole(report, config, network, True, full.product_w) == pytest.approx(expected)
    (gcn, *_) = machine.host_ratios(report, SHAPES, full, False, True)
    floats = Network("gcn", 3_000, 256, 256, 256, layers=2, quantised=False)
    alone = 170.0 * (floats.time_ns(config) + 2 * machine.sum_ns(config, SHAPES, False))
    assert gcn == pytest.approx(alone / expected)


@pytest.mark.usefixtures("two_machines")
def test_schemes_that_do_not_fit_have_no_value(cases: list[comparison.Case]) -> None:
    outcomes = tuple(
        replace(each, reports={k: v for k, v in each.reports.items() if k != schemes.GRANDE})
        for each in cases[0].outcomes
    )
    rows = comparison.rows([replace(cases[0], outcomes=outcomes)])
    own = [row for row in rows if f"{schemes.GRANDE} over" in row.figure]
    assert own
    assert all(row.ours is None and "fits no core's memory" in row.note for row in own)


def test_winners_are_open_where_the_interval_holds_one(cases: list[comparison.Case]) -> None:
    for row in comparison.winners(cases):
        assert ("open" in row.note) == (row.low < 1 < row.high)


def test_both_tuners_side_by_side(cases: list[comparison.Case]) -> None:
    (found,) = tuners.choices(cases, [SHAPES])
    four = prior_art.pygim_plans(upmem_v1a())
    assert found.theirs in four
    assert found.best_of_four_ms == cases[0].base.reports[schemes.PUBLISHED].total_ms
    assert found.ours_ms <= found.best_of_four_ms <= found.simulated_ms
    assert not found.ours.unit_weights
    search, tuner = tuners.rows([found])
    assert search.ours == found.best_of_four_ms / found.ours_ms
    assert tuner.ours == found.simulated_ms / found.ours_ms
    assert str(found.theirs) in tuner.note
    assert str(found.ours) in tuner.note
    assert [series.values for series in tuners.chart([found]).series][1] == (found.simulated_ms,)


def test_the_host_reads_a_row_an_edge_or_a_node() -> None:
    config, size = upmem_v1a(), BalancedShapes(100, 50, 1_000)
    each_edge = (1_000 * 8 + (1_000 + 50) * 1024) / 23.1
    assert machine.sum_ns(config, size, cached=False) == pytest.approx(each_edge)
    assert machine.sum_ns(config, size, cached=True) == pytest.approx((1_000 * 8 + 150 * 1024) / 23.1)


@pytest.mark.usefixtures("two_machines")
def test_rows_over_the_host(cases: list[comparison.Case]) -> None:
    rows = machine.over_host(cases, {"a graph": SHAPES})
    assert [row.paper for row in rows[:4]] == [3.04, 3.44, 1.55, 1.75]
    for row in rows[:4]:
        assert ("winner is open" in row.note) == (row.low < 1 < row.high)


def test_a_gpu_is_bound_by_the_bytes_of_its_memory() -> None:
    # Without reuse: in each of 8 passes 128 bytes of a row, an index and a value an edge.
    moved = 8 * (60_000 * (128 + 12) + 3_000 * (128 + 8))
    found = utilisation.shares(GRAPH)
    for name, (least, cached) in found.items():
        device = gpu.load(name)
        assert least == pytest.approx(2 * 60_000 * 256 / (moved / device.dram_gbps) / device.fp32_gflops)
        # All of 128 bytes of 3,000 rows fit every cache: each sector is fetched once in a pass.
        distinct = len(GRAPH.col.unique()) * 128
        assert cached / least == pytest.approx(moved / (moved - 8 * (60_000 * 128 - distinct)))


def test_utilisation_over_gpus(cases: list[comparison.Case]) -> None:
    shares = {"a graph": utilisation.shares(GRAPH)}
    cores, headline, *others = utilisation.rows(cases, shares)
    report = cases[0].base.reports[schemes.PUBLISHED]
    assert cores.ours == pytest.approx(100 * report.utilisation)
    assert headline.paper == 11.6
    assert headline.ours == pytest.approx(report.utilisation / shares["a graph"]["rtx_3090"][1])
    assert len(others) == len(gpu.presets())
    assert headline.low == min(row.low for row in others)
    assert headline.high == max(row.high for row in others)
    assert headline.low == pytest.approx(
        report.utilisation_total / max(cached for _, cached in shares["a graph"].values())
    )
    chart = utilisation.chart(cases, shares)
    assert chart.series[0].values[0] == cores.ours
    assert utilisation.rows([], {}) == []


def test_sweeps_have_a_row_and_a_picture_each() -> None:
    found = sweeps.times(SHAPES)
    rows, charts = sweeps.rows({"a graph": found}), sweeps.charts({"a graph": found})
    assert len(rows) == len(charts) == len(sweeps.SWEEPS)
    by_name = dict(zip([sweep.name for sweep in sweeps.SWEEPS], rows, strict=True))
    alone, best = found["tasklets"][0], min(found["tasklets"])
    assert by_name["tasklets"].ours == alone / best
    assert f"tasklets 1: {alone:.4g} ms" in by_name["tasklets"].note
    plan = replace(prior_art.published(1, 32), format="coo", core_balance="edge", thread_balance="row")
    assert found["balance_coo"][2] == Machine().simulate(SHAPES, 256, plan, "int32").total_ms
    assert charts[1].groups[2] == "core balance edge, thread balance row"
    missing = {name: [None] * len(values) for name, values in found.items()}
    assert all(row.ours is None for row in sweeps.rows({"a graph": missing}))


@pytest.mark.parametrize("sweep", sweeps.SWEEPS, ids=lambda sweep: sweep.name)
def test_the_page_has_the_command_of_each_sweep_which_gives_the_same(
    sweep: sweeps.Sweep, tmp_path: Path
) -> None:
    assert sweep.command in (Path(__file__).parents[2] / "docs" / "machines" / "pim.md").read_text()
    graph = tmp_path / "graph.txt"
    np.savetxt(graph, GRAPH.edge_index().T.numpy(), fmt="%d")
    command = sweep.command.removeprefix("onehop ")
    content, _ = written(tmp_path / "found.json", command, "--graph", graph)
    assert content["graph"]["nodes"] == GRAPH.num_dst
    lines = content.get("grid") or content["sweep"]
    assert [line["total_ms"] for line in lines] == pytest.approx(sweeps.times(SHAPES)[sweep.name])


def test_ranks_scale_and_their_phases_are_drawn() -> None:
    found = machine.phases(SHAPES)
    assert all(row.ours is not None for row in machine.ranks("a graph", found))
    assert machine.ranks_chart("a graph", found).groups == ("4 ranks", "8 ranks", "16 ranks", "32 ranks")
    assert [row.ours for row in machine.ranks("a graph", {4: {}})] == [None]


@pytest.mark.usefixtures("two_machines")
def test_charts_have_every_scheme_beside_ours(cases: list[comparison.Case]) -> None:
    rows = [*comparison.rows(cases), *machine.over_host(cases, {"a graph": SHAPES})]
    found = comparison.charts(cases, rows)
    assert [chart.name for chart in found] == ["time", "energy", "speedups"]
    assert [series.label for series in found[0].series] == list(schemes.SCHEMES)
    assert len(found[-1].groups) == 8


def test_memory_and_calibration() -> None:
    grids = {row.figure.rpartition(", ")[2]: row for row in machine.memory()}
    assert grids["PaF 4x8"].note.startswith("It fits")
    for name in ("PaF 1x32", "PaF 2x16", "GraNDe-like"):
        assert grids[name].note.startswith("It does not fit")
        assert (grids[name].ours or 0) > 64
    rows = machine.calibration()
    rates = {row.figure: row for row in rows if row.unit == "edges/ms"}
    assert [row.verdict for row in rates.values()] == ["differs", "agrees", "fitted", "fitted", "fitted"]
    assert "Held out" in rates["edges a millisecond and core, width 2"].note
    assert "were fitted" in rates["edges a millisecond and core, width 8"].note
    assert all("in their repository" in row.note for row in rates.values())
    transfers = [row for row in rows if row.unit == "%"]
    assert len(transfers) == 10
    assert "R2" in transfers[0].note


@pytest.mark.parametrize(
    ("nodes", "edges", "totals"),
    [
        (232_965, 114_615_892, {(1, 32): 1759, (2, 16): 1753, (4, 8): 1941, (32, 1): 5195}),
        (132_534, 79_122_504, {(1, 32): 1125, (2, 16): 1123}),
        (169_343, 1_166_243, {(1, 32): 526}),
        (19_717, 88_648, {(1, 32): 61}),
    ],
)
def test_the_published_constants_give_the_totals_that_were_derived_from_them(
    nodes: int, edges: int, totals: dict[tuple[int, int], float]
) -> None:
    # The ms of balanced graphs, 256 columns of int32, by an independent use of the same constants.
    size = BalancedShapes(nodes, nodes, edges)
    for (sp, ds), total in totals.items():
        report = Machine(upmem_v1a()).simulate(size, 256, prior_art.published(sp, ds), "int32")
        assert report.total_ms == pytest.approx(total, rel=0.005)


@pytest.mark.usefixtures("two_machines")
def test_the_nearest_machine_has_the_figures_of_the_rows(cases: list[comparison.Case]) -> None:
    apart = {"another": Machine().shapes(GRAPH)}
    runs = nearest.Runs({"a graph": SHAPES}, apart)
    at_base = runs.values(frozenset())
    rows = [*comparison.rows(cases), *machine.over_host(cases, {"a graph": SHAPES})]
    by_figure = {row.figure: row.ours for row in rows}
    for target, value in zip(nearest.targets(), at_base, strict=True):
        [ours] = [
            ours for figure, ours in by_figure.items() if figure.startswith(f"inference, {target.figure}")
        ]
        assert value == pytest.approx(ours)
    # Every label of every unknown changes a figure, or is known to change none.
    without_effect = {"1 instruction for each element", *assumptions.UNKNOWNS[5].others}
    for unknown in (*assumptions.UNKNOWNS, *assumptions.HOSTS, *assumptions.POWERS):
        for label in unknown.others:
            changed = runs.values(frozenset({label})) != at_base
            assert (
                changed
                or label in without_effect
                or "page faults" in label
                or label == "arxiv among the graphs"
            )
    found = nearest.search({"a graph": SHAPES}, apart)
    assert found.work == "pygim"
    assert len(found.targets) == 8
    assert found.largest_error == max(
        abs(v / t.paper - 1) for v, t in zip(found.values, found.targets, strict=True)
    )
    assert all(
        found.largest_error
        <= max(abs(v / t.paper - 1) for v, t in zip(move.values, found.targets, strict=True))
        for move in found.moves
    )
