"""Reports: fixed keys, conserved bytes and edges, consistent times."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from onehop import Graph
from onehop.machines.pim import BalancedShapes, Machine, PimPlan, prior_art
from onehop.machines.pim.shapes import CutRule
from tests.machines.pim.graphs import HOSTILE
from tests.machines.pim.machines import CORES, RANKS, small
from tests.machines.pim.naive import cut, parts

MACHINE = Machine(small())
PLAN = PimPlan(sp=2, ds=2)
GRAPH = HOSTILE["uniform"]
NO_LATENCY = Machine(small().with_(call_us=0))


def report(plan: PimPlan = PLAN, width: int = 16, machine: Machine = MACHINE):
    return machine.simulate(GRAPH, width, plan, "int32")


def test_fixed_keys_survive_json(tmp_path: Path) -> None:
    found = report()
    found.to_json(tmp_path / "report.json")
    read = json.loads((tmp_path / "report.json").read_text())
    assert set(read["phases_ms"]) == {"send", "broadcast", "kernel", "retrieve", "merge"}
    for key in ("total_ms", "bytes", "energy_mj", "utilisation", "mram_bytes_max", "output_max_abs_error"):
        assert key in read
    for key in ("sp", "ds", "format", "core_balance", "thread_balance", "tasklets"):
        assert read["plan"][key] == getattr(PLAN, key)
    assert PimPlan(**read["plan"]) == PLAN
    assert read == json.loads(json.dumps(found.as_dict()))
    assert sum(read["phases_ms"].values()) == pytest.approx(read["total_ms"])
    assert found.prepare_ns > 0
    assert read["prepare_ms"] == pytest.approx(found.prepare_ns * 1e-6, rel=1e-9)


def test_edge_balance_retrieves_more_and_computes_less_on_a_hub() -> None:
    hub = HOSTILE["hub"]
    by_row, by_edge = (
        NO_LATENCY.simulate(hub, 64, PimPlan(sp=1, ds=4, core_balance=balance, format="coo"), "int32")
        for balance in ("row", "edge")
    )
    assert by_edge.phases_ns["kernel"] < by_row.phases_ns["kernel"]
    assert by_edge.core_busy_ns.max() < by_row.core_busy_ns.max()


def test_several_clusters_in_a_rank_are_sent_to_one_by_one() -> None:
    moved = report(PimPlan(sp=2, ds=2 * RANKS)).bytes
    assert moved["broadcast"] == 0
    assert moved["send"] > CORES * 50 * 2 * 4


def test_rounds_send_the_same_features_and_more_arguments() -> None:
    once, twice = report(PimPlan(sp=1, ds=4)), report(PimPlan(sp=1, ds=4, rounds=2))
    assert twice.bytes["broadcast"] == once.bytes["broadcast"]
    assert twice.bytes["send"] == 2 * once.bytes["send"]
    assert twice.total_ns > once.total_ns
    assert twice.mram_bytes_max < once.mram_bytes_max


def test_block_rounds_send_the_matrix_in_every_call() -> None:
    found = report(PimPlan(sp=1, ds=4, block_rounds=2))
    assert found.bytes["send"] > found.bytes["matrix"] > 0


@pytest.mark.parametrize("grid", [(1, 4), (2, 2), (4, 1)])
def test_ranks_begin_when_their_own_features_are_there(grid: tuple[int, int]) -> None:
    found = report(PimPlan(sp=grid[0], ds=grid[1]), machine=NO_LATENCY)
    loaded = found.phases_ns["send"] + found.phases_ns["broadcast"]
    kernels = [span for span in found.timeline.spans if span.name == "kernel"]
    assert len(kernels) == RANKS
    # One rank has 10 cores to be sent features, the others have 9.
    for span in kernels:
        assert (span.start_ns < 0.99 * loaded) == (span.args["cores"] == 9)
    assert max(span.start_ns for span in kernels) == pytest.approx(loaded)
    ends = [span.start_ns + span.duration_ns for span in kernels]
    assert found.phases_ns["kernel"] == pytest.approx(max(ends) - loaded)


@pytest.mark.parametrize(
    ("better", "phase"),
    [
        ({"merge_threads": 8}, "merge"),
        ({"reuse_buffers": True}, "retrieve"),
        ({"unit_weights": True}, "kernel"),
    ],
)
def test_each_improvement_shortens_its_phase_alone(better: dict, phase: str) -> None:
    plain = PimPlan(sp=2, ds=2, unit_weights=False)
    before, after = report(plain, 64), report(replace(plain, **better), 64)
    for name in before.phases_ns:
        if name == phase:
            assert after.phases_ns[name] < before.phases_ns[name]
        else:
            assert after.phases_ns[name] == before.phases_ns[name]


def test_merging_row_by_row_moves_fewer_bytes_of_narrow_slices() -> None:
    plan = PimPlan(sp=1, ds=4, merge_threads=10_000)
    block, row = report(plan, 16), report(replace(plan, merge_order="row"), 16)
    assert row.bytes["merge"] < block.bytes["merge"]
    assert row.phases_ns["merge"] < block.phases_ns["merge"]


def test_rows_of_several_cores_are_added_to_an_output_that_was_set_to_zero() -> None:
    plan = PimPlan(sp=1, ds=1, format="coo", core_balance="edge", merge_order="row")
    rule = CutRule(CORES, plan.tasklets, True, True, plan.thread_balance == "edge", 1)
    (part,) = parts(GRAPH, [0, GRAPH.num_src])
    rows = sum(len(core.rows) for core, _ in cut(part, rule))
    assert rows > 100
    # 16 columns of int32: read as a result, read and written as output.
    assert report(plan, width=16).bytes["merge"] == rows * 3 * 64 + 100 * 64


@pytest.mark.parametrize("fold", ["serial", "tree"])
def test_tasklets_without_edges_take_no_time(fold: str) -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2], [0, 0, 5]]), num_nodes=8)
    plan = PimPlan(sp=1, ds=1, format="coo", core_balance="edge", thread_balance="edge", fold=fold)
    busy = MACHINE.simulate(graph, 16, plan, "int32").tasklet_busy_ns
    assert busy.min() == 0
    assert (busy > 0).sum() == 3


def test_the_sums_that_a_tasklets_last_row_is_added_to_are_read_once() -> None:
    """Of six edges in one row to four: the second row costs that read more than the third and fourth."""
    machine = Machine(small().with_(cores=1, ranks=1))
    plan = PimPlan(sp=1, ds=1, format="coo", core_balance="edge", thread_balance="edge", tasklets=1)
    busy = []
    for rows in (1, 2, 3, 4):
        edge_index = torch.stack([torch.arange(6), torch.arange(6).clamp(max=rows - 1)])
        graph = Graph.from_edge_index(edge_index, num_nodes=8)
        busy.append(float(machine.simulate(graph, 16, plan, "int32").tasklet_busy_ns.max()))
    second, third, fourth = np.diff(busy)
    assert third == pytest.approx(fourth)
    read = np.interp(16 * 4, *zip(*machine.config.core.dma_read_cycles, strict=True))
    assert second - third == pytest.approx(read * machine.config.cycle_ns)


def test_links_between_cores_leave_one_part_to_retrieve() -> None:
    linked = Machine(small().with_(core_to_core_gbps=100))
    before, after = report(PimPlan(sp=4, ds=1)), report(PimPlan(sp=4, ds=1), machine=linked)
    assert after.bytes["retrieve"] < before.bytes["retrieve"]
    assert after.bytes["core_to_core"] == 3 * 100 * 16 * 4


def test_busy_times_cover_the_kernel() -> None:
    found = report(machine=NO_LATENCY)
    assert found.core_busy_ns.shape == (CORES,)
    assert found.tasklet_busy_ns.shape == (CORES, PLAN.tasklets)
    kernels = [span.duration_ns for span in found.timeline.spans if span.name == "kernel"]
    assert found.core_busy_ns.max() == pytest.approx(max(kernels))
    assert (found.tasklet_busy_ns.max(axis=1) <= found.core_busy_ns * (1 + 1e-12)).all()


def test_utilisation_is_below_one_and_of_the_kernel() -> None:
    found = report(width=64)
    assert 0 < found.utilisation_total < found.utilisation < 1


def test_energy_is_power_times_time() -> None:
    found = report(machine=NO_LATENCY)
    power = NO_LATENCY.config.power
    assert found.energy_nj["ranks"] == pytest.approx(power.rank_w * RANKS * found.total_ns)
    assert found.energy_nj["cores"] == pytest.approx(power.core_w * found.core_busy_ns.sum())
    kernel = found.phases_ns["kernel"]
    assert power.host_idle_w > 0
    assert found.energy_nj["host"] == pytest.approx(
        power.host_w * (found.total_ns - kernel) + power.host_idle_w * kernel
    )


def test_timeline_ends_when_the_run_ends() -> None:
    found = report(PimPlan(sp=2, ds=2, rounds=2))
    assert found.timeline.end_ns == pytest.approx(found.total_ns)
    lanes = {span.lane for span in found.timeline.spans}
    assert lanes == {"host/link", "host/merge", *(f"ranks/rank {r}" for r in range(RANKS))}


def test_same_run_same_report() -> None:
    first, second = report(), report()
    assert first.as_dict() == second.as_dict()
    assert np.array_equal(first.tasklet_busy_ns, second.tasklet_busy_ns)


def test_balanced_size_is_a_lower_bound_of_the_kernel() -> None:
    size = BalancedShapes(GRAPH.num_src, GRAPH.num_dst, GRAPH.num_edges)
    balanced = MACHINE.simulate(size, 16, PLAN, "int32")
    assert balanced.core_busy_ns.max() <= report().core_busy_ns.max()


def test_table_and_plot(tmp_path: Path) -> None:
    text = str(report())
    for part in ("broadcast", "utilisation", "plan", "2x2", "of a bank"):
        assert part in text
    report().plot(tmp_path / "phases.png")
    assert (tmp_path / "phases.png").stat().st_size > 1000


def test_random_multipliers_cost_more_than_ones() -> None:
    x = torch.randint(-(2**20), 2**20, (100, 16), dtype=torch.int32)
    generator = torch.Generator().manual_seed(0)
    small_weight = torch.ones(GRAPH.num_edges, dtype=torch.int32)
    large_weight = torch.randint(2**9, 2**10, (GRAPH.num_edges,), generator=generator, dtype=torch.int32)
    times = [
        MACHINE.aggregate(GRAPH, x, PLAN, weight=weight)[1].phases_ns["kernel"]
        for weight in (small_weight, large_weight)
    ]
    assert times[0] < times[1]


def test_summary_keeps_the_figures_and_not_what_grows() -> None:
    full = report()
    short = full.summary()
    assert (short.total_ns, short.plan, short.bytes) == (full.total_ns, full.plan, full.bytes)
    assert (short.core_busy_ns.size, short.tasklet_busy_ns.size, short.timeline.spans) == (0, 0, [])
    assert set(full.as_dict()) - set(short.as_dict()) == {"core_busy_ms", "tasklet_busy_ms"}
    assert "utilisation" in str(short)


def test_sparsep_sends_vectors_without_padding() -> None:
    plan = prior_art.sparsep(MACHINE.config, 6, RANKS)
    moved = report(plan, width=6).bytes
    # Six rounds of one vector of 100 numbers of 4 bytes, to every core.
    assert moved["broadcast"] == 6 * CORES * 100 * 4
    # Every core returns as many rows as the fullest of its rank, of 4 bytes each.
    assert moved["retrieve"] % (6 * 4) == 0
    assert moved["retrieve"] - moved["padding"] >= 6 * 4 * 100
