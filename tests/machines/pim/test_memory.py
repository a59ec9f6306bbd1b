"""Memory of cores: the published facts, the typed error, the plan it names."""

import pytest
import torch

from onehop import Graph, MachineMemoryError
from onehop.machines.pim import BalancedShapes, Machine, PimPlan, prior_art, upmem_v1a
from onehop.machines.pim.counted import GraphShapes
from onehop.machines.pim.memory import mram_bytes, wram_bytes
from tests.machines.pim.graphs import HOSTILE
from tests.machines.pim.machines import small

MACHINE = Machine(upmem_v1a())
AMAZON = BalancedShapes(1_569_960, 1_569_960, 264_339_468)
REDDIT = BalancedShapes(232_965, 232_965, 114_615_892)
PROTEINS = BalancedShapes(132_534, 132_534, 79_122_504)
MIB = 2**20


@pytest.mark.parametrize("plan", [prior_art.published(1, 32), prior_art.published(2, 16)])
def test_amazon_products_does_not_fit_with_few_sparse_parts(plan: PimPlan) -> None:
    with pytest.raises(MachineMemoryError) as caught:
        MACHINE.simulate(AMAZON, 256, plan, "int32")
    error = caught.value
    assert (error.memory, error.limit_bytes) == ("MRAM", 64 * MIB)
    assert error.need_bytes > error.limit_bytes
    assert isinstance(error.plan, PimPlan)
    assert str(error.need_bytes) in str(error)
    assert f"core {error.core}" in str(error)
    assert MACHINE.simulate(AMAZON, 256, error.plan, "int32").mram_bytes_max <= 64 * MIB


def test_amazon_products_fits_in_4x8() -> None:
    report = MACHINE.simulate(AMAZON, 256, prior_art.published(4, 8), "int32")
    assert report.mram_bytes_max == pytest.approx(59 * MIB, rel=0.05)


@pytest.mark.parametrize("ranks", [4, 8, 16, 32])
def test_amazon_products_never_fits_grandes_mapping(ranks: int) -> None:
    """Whatever the grid: cores of a rank and ranks exchanged."""
    config = upmem_v1a().with_(ranks=ranks)
    with pytest.raises(MachineMemoryError) as caught:
        Machine(config).simulate(AMAZON, 256, prior_art.grande(config), "int32")
    if ranks == 32:
        assert caught.value.need_bytes == pytest.approx(106 * MIB, rel=0.05)


@pytest.mark.parametrize(
    ("size", "grid", "mib"),
    [
        (REDDIT, (1, 32), 21.3),
        (REDDIT, (2, 16), 14.4),
        (REDDIT, (4, 8), 11.1),
        (PROTEINS, (1, 32), 13.8),
        (PROTEINS, (2, 16), 9.0),
        (PROTEINS, (4, 8), 6.7),
    ],
)
def test_footprints_of_balanced_graphs(size: BalancedShapes, grid: tuple[int, int], mib: float) -> None:
    report = MACHINE.simulate(size, 256, prior_art.published(*grid), "int32")
    assert report.mram_bytes_max / MIB == pytest.approx(mib, rel=0.02)


@pytest.mark.parametrize(("size", "mib"), [(REDDIT, 33.7), (PROTEINS, 22.5)])
def test_grandes_mapping_fits_smaller_graphs(size: BalancedShapes, mib: float) -> None:
    report = MACHINE.simulate(size, 256, prior_art.grande(MACHINE.config), "int32")
    assert report.mram_bytes_max / MIB == pytest.approx(mib, rel=0.03)


def test_the_matrix_is_row_bounds_sources_and_values() -> None:
    # Ranks of ten and nine cores, of which each has 100 or 112 rows, 400 or 444.4 edges; padded to 8 bytes.
    plan = PimPlan(sp=1, ds=4)
    size, machine = BalancedShapes(1000, 1000, 4000), Machine(small())
    bounds, sources = (10 * 408, 27 * 456), (10 * 1600, 27 * 1784)
    assert machine.simulate(size, 8, plan, "int32").bytes["matrix"] == sum(bounds) + sum(sources)
    weighted = machine.simulate(size, 8, plan, "int32", weighted=True)
    assert weighted.bytes["matrix"] == sum(bounds) + 2 * sum(sources)
    # Two parts in a rank, of three edges and of one: both cores are sent as much as the fuller.
    lopsided = Graph.from_edge_index(torch.tensor([[0, 1, 0, 3], [0, 0, 0, 0]]), size=(4, 1))
    two = Machine(upmem_v1a().with_(cores=2, ranks=1))
    assert two.simulate(lopsided, 2, PimPlan(sp=2, ds=1), "int32").bytes["matrix"] == 2 * (8 + 16)


def test_values_count() -> None:
    """The published check forgets them."""
    kernel = MACHINE.kernel(PimPlan(unit_weights=False), "int32")
    without = MACHINE.kernel(PimPlan(), "int32")
    sizes = (MACHINE.config, PimPlan())
    assert (
        mram_bytes(*sizes, kernel, 8, 100, 50, 1000) - mram_bytes(*sizes, without, 8, 100, 50, 1000) == 4000
    )


def test_working_memory_limits_the_width() -> None:
    kernel = MACHINE.kernel(PimPlan(), "int32")
    assert wram_bytes(MACHINE.config, PimPlan(), kernel, 256) <= MACHINE.config.core.wram_bytes
    assert wram_bytes(MACHINE.config, PimPlan(), kernel, 512) > MACHINE.config.core.wram_bytes
    graph = HOSTILE["uniform"]
    with pytest.raises(MachineMemoryError) as caught:
        MACHINE.simulate(graph, 512, PimPlan(sp=32, ds=1), "int32")
    assert caught.value.memory == "WRAM"
    assert MACHINE.simulate(graph, 512, caught.value.plan, "int32").wram_bytes_max <= 64 * 1024


def test_error_names_the_fullest_core_of_an_unbalanced_graph() -> None:
    graph: Graph = HOSTILE["hub"]
    machine = Machine(small().with_(mram_bytes=1500))
    with pytest.raises(MachineMemoryError) as caught:
        machine.simulate(graph, 16, PimPlan(sp=1, ds=4, unit_weights=False), "int32")
    assert 0 <= caught.value.core < machine.config.cores
    assert isinstance(machine.shapes(graph), GraphShapes)


def test_no_plan_at_all_is_said_so() -> None:
    machine = Machine(small().with_(mram_bytes=16))
    with pytest.raises(MachineMemoryError, match="No plan was found"):
        machine.simulate(HOSTILE["uniform"], 16, PimPlan(sp=1, ds=4), "int32")
