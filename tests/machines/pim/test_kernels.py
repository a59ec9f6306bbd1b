"""What kernels can do better than the published ones: where it helps, what it costs, where it is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from onehop import MachineMemoryError
from onehop.machines.pim import BalancedShapes, Machine, PimPlan, prior_art
from onehop.machines.pim.costs import core_cycles
from onehop.machines.pim.memory import wram_bytes
from onehop.machines.pim.shapes import WorkCounts
from tests.machines.pim.graphs import HOSTILE
from tests.machines.pim.machines import small

MACHINE = Machine(small())
GRAPH = HOSTILE["hub"]
# One column a slice: there, cores wait for transfers.
NARROW = PimPlan(sp=1, ds=4, reader="paged", clear="first", fold="serial")
COO = replace(NARROW, format="coo")


def kernel_ns(plan: PimPlan, width: int) -> float:
    return MACHINE.simulate(GRAPH, width, plan, "int32").phases_ns["kernel"]


@pytest.mark.parametrize(
    ("plan", "better", "width"),
    [
        (NARROW, {"reader": "block"}, 4),
        (NARROW, {"hub_bytes": 256}, 4),
        (COO, {"clear": "shared"}, 4),
        (COO, {"fold": "tree"}, 64),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_shortens_the_kernel_and_changes_no_number(plan: PimPlan, better: dict, width: int) -> None:
    improved = replace(plan, **better)
    assert kernel_ns(improved, width) < kernel_ns(plan, width)
    x = torch.randint(-5, 6, (GRAPH.num_src, width), dtype=torch.int32)
    assert torch.equal(MACHINE.aggregate(GRAPH, x, improved)[0], MACHINE.aggregate(GRAPH, x, plan)[0])


def test_hubs_cost_a_look_at_every_edge_where_cores_wait_for_nothing() -> None:
    size, machine = BalancedShapes(10_000, 10_000, 10_000_000), Machine()
    plan = PimPlan(sp=1, ds=32)
    plain, hubs = (
        machine.simulate(size, 1024, each, "int32").phases_ns["kernel"]
        for each in (plan, replace(plan, hub_bytes=8192))
    )
    assert plain < hubs < 1.02 * plain


def counts(edges: list[int], rows: list[int]) -> WorkCounts:
    each, own = np.array([[edges]], dtype=float), np.array([[rows]], dtype=float)
    return WorkCounts(each, own, own, own.sum(axis=2))


def cycles(plan: PimPlan, found: WorkCounts, width: int) -> float:
    kernel = MACHINE.kernel(plan, "int32")
    return float(core_cycles(MACHINE.config, plan, kernel, found, width)[0][0, 0])


def test_a_tree_of_sixteen_has_four_levels() -> None:
    core, adds = MACHINE.config.core, 8 * 6.0
    found = counts([5] * 16, [1] * 16)
    serial = cycles(replace(COO, fold="serial"), found, 8)
    tree = cycles(replace(COO, fold="tree"), found, 8)
    level = core.reissue_cycles * (core.row_instructions + adds)
    assert serial - tree == pytest.approx(16 * core.reissue_cycles * adds - 4 * level)


def test_working_memory_counts_hubs() -> None:
    kernel = MACHINE.kernel(NARROW, "int32")

    def need(**fields: object) -> int:
        return wram_bytes(MACHINE.config, replace(NARROW, **fields), kernel, 8)

    plain = need()
    assert need(hub_bytes=1000) - plain == 1000 // 32 * 32
    with pytest.raises(MachineMemoryError, match="WRAM"):
        MACHINE.simulate(GRAPH, 4, replace(NARROW, hub_bytes=1 << 16), "int32")


def test_merges_hide_behind_the_next_rounds_kernels() -> None:
    plan = PimPlan(sp=2, ds=2, rounds=3)
    plain = MACHINE.simulate(GRAPH, 24, plan, "int32")
    hidden = MACHINE.simulate(GRAPH, 24, replace(plan, pipelined=True), "int32")
    saved = plain.phases_ns["merge"] - hidden.phases_ns["merge"]
    # Three rounds alike: two of their merges are hidden, for here they are shorter than kernels.
    assert saved == pytest.approx(2 / 3 * plain.phases_ns["merge"])
    assert {k: v for k, v in hidden.phases_ns.items() if k != "merge"} == {
        k: v for k, v in plain.phases_ns.items() if k != "merge"
    }
    assert hidden.timeline.end_ns == pytest.approx(hidden.total_ns)
    # The host merges as long as before, and idles for the rest of a shorter run.
    idle = MACHINE.config.power.host_idle_w
    assert plain.energy_nj["host"] - hidden.energy_nj["host"] == pytest.approx(idle * saved)
    once = replace(plan, rounds=1)
    assert (
        MACHINE.simulate(GRAPH, 24, replace(once, pipelined=True), "int32").total_ns
        == MACHINE.simulate(GRAPH, 24, once, "int32").total_ns
    )


@pytest.mark.parametrize("rounds", [1, 2])
def test_pieces_of_the_matrix_are_sent_in_their_rounds(rounds: int) -> None:
    found = MACHINE.simulate(GRAPH, 16, PimPlan(sp=1, ds=4, block_rounds=3, rounds=rounds), "int32")
    assert found.timeline.end_ns == pytest.approx(found.total_ns)
    arguments = 4 * (8 + 2 * 16) * MACHINE.config.cores * 3 * rounds
    assert found.bytes["send"] == found.bytes["matrix"] + arguments
    assert found.prepare_ns == 0


def test_published_kernels_have_none_of_this() -> None:
    plan = prior_art.PUBLISHED
    assert (plan.reader, plan.clear, plan.fold) == ("paged", "first", "serial")
    assert (plan.hub_bytes, plan.unit_weights) == (0, False)


def test_coo_reads_a_third_stream() -> None:
    found, dear = counts([5] * 16, [1] * 16), MACHINE.config.with_(coo_edge_instructions=26.0)
    plans = (COO, NARROW)
    cheap_cycles, dear_cycles = (
        [float(core_cycles(config, plan, MACHINE.kernel(plan, "int32"), found, 8)[0][0, 0]) for plan in plans]
        for config in (MACHINE.config, dear)
    )
    # 20 more instructions for each of a tasklet's 5 edges, in COO alone.
    reissue = MACHINE.config.core.reissue_cycles
    assert dear_cycles[0] - cheap_cycles[0] == pytest.approx(5 * 20 * max(reissue, 16))
    assert dear_cycles[1] == cheap_cycles[1]
