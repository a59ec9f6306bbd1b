"""Every constant has a kind of evidence."""

import pytest

from onehop.machines.pim import preset, upmem_v1a
from onehop.machines.pim.config import settable
from onehop.machines.pim.provenance import ASSUMED, BOUNDS, CONSTANTS, KINDS, names, provenance


def test_every_constant_of_upmem_is_marked_and_nothing_else() -> None:
    assert set(CONSTANTS) == set(names(upmem_v1a()))
    assert all(each.kind in KINDS and each.text for each in CONSTANTS.values())
    assert provenance(upmem_v1a()) == dict(CONSTANTS)


def test_exponentials_are_made_of_the_measured_products_and_sums() -> None:
    """40 instructions to split off the exponent and look up; then 1 product and 2 sums, or 6 of both."""
    machine = upmem_v1a()
    for dtype, products, sums in (("float32", 1, 2), ("float64", 6, 6)):
        costs = machine.arithmetic[dtype]
        expected = 40 + products * costs.multiply_full + sums * costs.accumulate
        assert machine.functions[dtype].exponential == pytest.approx(expected)


def test_comparisons_are_sums_of_integers_and_the_steps_that_order_floats() -> None:
    machine = upmem_v1a()
    for dtype, integer, steps in (("float32", "int32", 5), ("float64", "int64", 9)):
        assert machine.functions[dtype].compare == machine.arithmetic[integer].accumulate + steps


@pytest.mark.parametrize("name", ["hbm_pim_like", "aim_like"])
def test_estimates_are_assumed_throughout(name: str) -> None:
    assert {each.kind for each in provenance(preset(name)).values()} == {ASSUMED}


def test_changed_values_lose_their_source() -> None:
    found = provenance(upmem_v1a().with_(clock_mhz=425.0, push_gbps=9.9))
    changed = {name for name, each in found.items() if each.text == "given with the machine"}
    assert changed == {"core.clock_mhz", "links.push_gbps"}
    assert {each.kind for each in provenance(upmem_v1a().with_(name="mine")).values()} == {ASSUMED}


def test_bounds_are_of_assumed_constants_and_hold_them() -> None:
    config = upmem_v1a()
    for name, (low, high) in BOUNDS.items():
        assert name in settable()
        part = next(
            part for part in ("core", "links", "power", "host") if hasattr(getattr(config, part), name)
        )
        assert CONSTANTS[f"{part}.{name}"].kind == ASSUMED
        assert low <= getattr(getattr(config, part), name) <= high
