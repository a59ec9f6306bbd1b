"""The tuner: its plan against all others, its choices, its speed in candidates."""

from dataclasses import replace

import pytest
import torch

from onehop import ArgumentError, Graph
from onehop.datasets import chung_lu
from onehop.machines.pim import BalancedShapes, Machine, PimPlan, prior_art, tune, upmem_v1a
from onehop.machines.pim.published_tuner import predictions
from onehop.machines.pim.search import Estimator, candidates
from onehop.machines.pim.shapes import CutRule
from onehop.machines.pim.tuner import exhaustive, simulated_ns
from tests.machines.pim.graphs import HOSTILE
from tests.machines.pim.machines import small

MACHINE = Machine(small())
SKEWED = Graph.from_edge_index(chung_lu(500, 6000, exponent=0.8), 500)


@pytest.mark.parametrize(("width", "dtype"), [(5, "int8"), (32, "int32"), (64, "float32")])
def test_regret_is_small(width: int, dtype: str) -> None:
    found = tune(MACHINE, SKEWED, width, dtype)
    best = exhaustive(MACHINE, SKEWED, width, dtype)
    assert found.candidates >= len(best) > 100
    assert found.predicted_ns <= 1.05 * best[0][1]
    assert found.predicted_ns == simulated_ns(MACHINE, found.plan, SKEWED, width, dtype)


def test_estimates_are_near_the_simulation() -> None:
    for plan, estimate in tune(MACHINE, SKEWED, 32, "int32").ranking:
        took = simulated_ns(MACHINE, plan, SKEWED, 32, "int32")
        assert 0.5 * took < estimate < 1.25 * took


def test_what_is_not_searched_stays_as_it_was() -> None:
    base = PimPlan(unit_weights=False, merge_threads=3, reader_bytes=64, accumulator="int64")
    plan = tune(MACHINE, SKEWED, 16, "int32", base=base).plan
    for name in ("unit_weights", "merge_threads", "reader_bytes", "accumulator"):
        assert getattr(plan, name) == getattr(base, name)


def test_tuned_is_no_worse_than_the_default_and_prior_art() -> None:
    tuned = tune(MACHINE, SKEWED, 32, "int32", base=prior_art.PUBLISHED).predicted_ns
    kernel = MACHINE.kernel(prior_art.PUBLISHED, "int32")
    sparsep = prior_art.best_sparsep(MACHINE.config, MACHINE.shapes(SKEWED), 32, kernel)
    assert sparsep is not None
    for plan in (prior_art.grande(MACHINE.config), sparsep, prior_art.published(1, 4)):
        assert tuned <= simulated_ns(MACHINE, plan, SKEWED, 32, "int32")


@pytest.mark.parametrize("name", HOSTILE)
def test_any_graph_gets_a_plan(name: str) -> None:
    found = tune(MACHINE, HOSTILE[name], 3, "float64")
    assert found.predicted_ns > 0
    assert simulated_ns(MACHINE, MACHINE.plan(HOSTILE[name], 3, "float64"), HOSTILE[name], 3, "float64") > 0


def test_a_size_alone_can_be_tuned() -> None:
    assert tune(MACHINE, BalancedShapes(1000, 1000, 5000), 64, "int32").plan.sp >= 1


def test_where_nothing_fits_in_one_go_the_plan_streams() -> None:
    tiny = Machine(small().with_(mram_bytes=1800))
    plan = tune(tiny, HOSTILE["uniform"], 64, "int32").plan
    assert plan.stream
    assert tiny.simulate(HOSTILE["uniform"], 64, plan, "int32").mram_bytes_max <= 1800
    with pytest.raises(ArgumentError, match="no plan"):
        tune(tiny, BalancedShapes(10**6, 10**6, 10**7), 64, "int32")


def test_candidates_cover_formats_balances_and_grids() -> None:
    plans = candidates(MACHINE.config, PimPlan())
    assert len(set(plans)) == len(plans)
    for name, values in {
        "format": {"csr", "coo"},
        "core_balance": {"row", "edge"},
        "thread_balance": {"row", "edge"},
        "column_cut": {"equal", "edge"},
        "tasklets": {8, 12, 16, 24},
        "sp": {1, 2, 4, 8, 16},
    }.items():
        assert {getattr(plan, name) for plan in plans} == values


@pytest.mark.parametrize("merge_threads", [1, 16])
def test_pygims_own_search_has_four_plans(merge_threads: int) -> None:
    shapes, kernel = MACHINE.shapes(SKEWED), MACHINE.kernel(prior_art.PUBLISHED, "int32")
    found = prior_art.pygim_search(MACHINE.config, shapes, 32, kernel, merge_threads)
    plans = [
        replace(prior_art.published(sp, 4 // sp), core_balance=balance, merge_threads=merge_threads)
        for sp in (1, 2)
        for balance in ("row", "edge")
    ]
    assert found == min(plans, key=lambda plan: simulated_ns(MACHINE, plan, SKEWED, 32, "int32"))
    tiny = small().with_(mram_bytes=64)
    assert prior_art.pygim_search(tiny, shapes, 32, kernel) is None


@pytest.mark.parametrize(
    ("nodes", "edges", "by_parts"),
    [
        (232_965, 114_615_892, {1: 1759, 2: 1753}),
        (132_534, 79_122_504, {1: 1125, 2: 1123}),
        (169_343, 1_166_243, {1: 526}),
        (19_717, 88_648, {1: 61}),
    ],
)
def test_pygims_cost_function_by_hand(nodes: int, edges: int, by_parts: dict[int, float]) -> None:
    found = predictions(upmem_v1a(), BalancedShapes(nodes, nodes, edges), 256)
    assert list(found) == prior_art.pygim_plans(upmem_v1a())
    # By hand with 62.25 cores a rank; ranks have 62 or 63.
    for plan, predicted in found.items():
        if plan.sp in by_parts:
            assert predicted == pytest.approx(by_parts[plan.sp], rel=0.005)
    assert min(found, key=found.__getitem__).sp == max(by_parts)


def test_pygims_cost_function_counts_the_fullest_core() -> None:
    by_balance = {
        plan.core_balance: ms
        for plan, ms in predictions(MACHINE.config, MACHINE.shapes(SKEWED), 32).items()
        if plan.sp == 1
    }
    rule = CutRule(MACHINE.config.cores // MACHINE.config.ranks, 1, False, False, False, 2)
    row_edges = MACHINE.shapes(SKEWED).counts(1, "equal", rule).core_edges.max()
    edges = MACHINE.shapes(SKEWED).counts(1, "equal", replace(rule, cores_by_edge=True))
    kernels = (row_edges - edges.core_edges.max()) / 1762.68
    # Rows that are shared out evenly are received in smaller blocks.
    more = edges.core_rows.max() - -(-500 // rule.cores)
    received = MACHINE.config.cores * more * 32 / 4.84e6
    assert by_balance["row"] - by_balance["edge"] == pytest.approx(kernels - received)


def test_pygims_tables_lack_other_widths() -> None:
    with pytest.raises(
        ArgumentError, match=r"width: expected slices of 4, 8, 16, 32 columns, .* got 20 in 4"
    ):
        predictions(MACHINE.config, MACHINE.shapes(SKEWED), 20)


def test_mappings_to_ranks_deal_out_rows() -> None:
    shapes, kernel = MACHINE.shapes(SKEWED), MACHINE.kernel(prior_art.PUBLISHED, "int32")
    rows = replace(prior_art.PUBLISHED, core_balance="row")
    assert prior_art.gnnear(MACHINE.config) == replace(rows, sp=2, ds=2)
    assert prior_art.gnnear(small().with_(ranks=3)) == replace(rows, sp=3, ds=1)
    both = [replace(rows, sp=4, ds=1, merge_threads=2), replace(rows, sp=1, ds=4, merge_threads=2)]
    found = prior_art.gnmp(MACHINE.config, shapes, 32, kernel, merge_threads=2)
    assert found == min(both, key=lambda plan: simulated_ns(MACHINE, plan, SKEWED, 32, "int32"))
    assert prior_art.gnmp(small().with_(mram_bytes=64), shapes, 32, kernel) is None


def test_sparsep_is_searched_with_the_threads_that_merge() -> None:
    shapes, kernel = MACHINE.shapes(SKEWED), MACHINE.kernel(prior_art.PUBLISHED, "int32")
    found = prior_art.best_sparsep(MACHINE.config, shapes, 32, kernel, merge_threads=16)
    assert found is not None
    assert found.merge_threads == 16


HUB = Graph.from_edge_index(
    torch.stack(
        [torch.arange(4000) % 300, torch.where(torch.arange(4000) % 3 > 0, 7, torch.arange(4000) % 300)]
    ),
    300,
)


def test_a_machine_tunes_by_default_and_remembers() -> None:
    machine = Machine(small())
    plan = machine.plan(HUB, 64, "float32")
    assert plan == replace(tune(machine, HUB, 64, "float32").plan, stream=True)
    assert machine.plan(HUB, 64, "float32") is plan
    assert machine.plan(HUB, 32, "float32") is not plan
    assert machine.simulate(HUB, 64).plan == plan
    assert machine.aggregate(HUB, torch.ones(300, 64))[1].plan == plan


def test_a_machine_that_does_not_tune_takes_the_default() -> None:
    machine = Machine(small(), tune=False)
    default = machine.default_plan(HUB, 64)
    assert machine.plan(HUB, 64) == default
    assert machine.simulate(HUB, 64).plan == default
    # On a hub the difference is what the tuner is for.
    assert Machine(small()).simulate(HUB, 64).total_ns < 0.7 * machine.simulate(HUB, 64).total_ns


def test_where_nothing_fits_at_once_a_machine_streams() -> None:
    tiny = Machine(small().with_(mram_bytes=1800))
    out, report = tiny.aggregate(HOSTILE["uniform"], torch.ones(100, 64))
    assert report.plan.rounds * report.plan.block_rounds > 1
    assert torch.equal(out, Machine(small()).aggregate(HOSTILE["uniform"], torch.ones(100, 64))[0])


@pytest.mark.parametrize(("sp", "ds"), [(1, 4), (8, 4), (8, 8), (4, 32)])
def test_on_an_even_graph_the_estimate_is_the_simulation(sp: int, ds: int) -> None:
    """Up to 32 clusters share a rank's features by broadcast; more of them are sent theirs."""
    edge_index = torch.randint(0, 20_000, (2, 200_000), generator=torch.Generator().manual_seed(0))
    graph = Graph.from_edge_index(edge_index, num_nodes=20_000)
    machine, plan = Machine(upmem_v1a()), PimPlan(sp=sp, ds=ds)
    estimator = Estimator(machine.config, machine.shapes(graph), 128, machine.kernel(plan, "int32", False))
    found = machine.simulate(graph, 128, plan, "int32")
    assert (found.phases_ns["broadcast"] > 0) == (sp * ds <= 32)
    assert estimator.estimates([plan])[0] == pytest.approx(found.total_ns, rel=0.01)
