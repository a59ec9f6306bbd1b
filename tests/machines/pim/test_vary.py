"""Values of a machine, varied by name."""

import pytest

from onehop import ArgumentError
from onehop.machines.pim import BalancedShapes, Machine, PimPlan, upmem_v1a
from onehop.machines.pim.vary import names, varied

SIZE = BalancedShapes(100_000, 100_000, 3_000_000)
PLAN = PimPlan(sp=2, ds=16, unit_weights=False)


@pytest.mark.parametrize("name", names())
def test_every_name_can_be_varied(name: str) -> None:
    # A single core is no faster than its rank.
    value = 0.5 if name.startswith("core_pu") else 64
    assert Machine(varied(upmem_v1a(), name, value)).config is not None


def test_cores_bring_their_ranks() -> None:
    config = varied(upmem_v1a(), "cores", 498)
    assert (config.cores, config.ranks) == (498, 8)


@pytest.mark.parametrize(
    ("name", "value", "phases"),
    [
        ("clock_mhz", 700, {"kernel"}),
        ("multiply_instructions", 1, {"kernel"}),
        ("accumulate_instructions", 1, {"kernel"}),
        ("host_links", 4, {"send", "broadcast", "retrieve"}),
        ("merge_speed", 4, {"merge"}),
    ],
)
def test_each_helps_its_own_phases(name: str, value: float, phases: set[str]) -> None:
    before, after = (
        Machine(config).simulate(SIZE, 256, PLAN, "int32").phases_ns
        for config in (upmem_v1a(), varied(upmem_v1a(), name, value))
    )
    assert {phase for phase in before if after[phase] < before[phase]} == phases


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ArgumentError, match="host_links"):
        varied(upmem_v1a(), "kores", 3)
