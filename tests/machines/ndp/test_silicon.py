"""Bounds of a unit's area and power, against sums by hand and the energies that a machine assumes."""

import json

import pytest

from onehop.machines.ndp import load, unit_bounds, whole_report
from onehop.machines.ndp.machine import Machine
from onehop.machines.ndp.silicon import FIGURES, NODES, _energy
from tests.machines.ndp.graphs import random_graph

GRANDE = load("grande_16")


def test_the_bounds_at_45_nm_are_those_of_a_sum_by_hand():
    found = unit_bounds(GRANDE)
    bits = 5 * 128 * 1024 * 8
    assert found.area_mm2(45).low == pytest.approx((16 * (4184 + 7700) + bits * 0.346) / 1e6)
    macro = 29_142 / 2**18 / 0.17
    assert found.area_mm2(45).high == pytest.approx((16 * 45_000 / 0.46 + bits * macro + 3 * 140_000) / 1e6)
    # 16 lanes at 1.2 GHz; the rank and the channel deliver 19.23 GB/s each.
    bytes_high = 8 * 19.2 + 2 * 2 * 19.2308
    assert found.power_w(45).high == pytest.approx(
        (19.2 * 52 + 16 * 0.1731 + bytes_high * 5 + bits * 7.4e-5 + 3 * 1.2 * 34) / 1e3, rel=1e-5
    )
    products = 19.2308 / 4
    scaled = 0.63906 * 0.69886 / 0.45714
    assert found.power_w(45).low == pytest.approx(products * (4.6 + 8 * scaled) / 1e3, rel=1e-4)


def test_energy_is_scaled_as_in_the_example_of_the_paper_that_scales_it():
    assert _energy(32) == pytest.approx(0.4571, abs=1e-4)


@pytest.mark.parametrize("name", ["grande_16", "gnnear"])
def test_every_least_is_below_its_greatest_and_the_whole_encloses_the_nodes(name):
    content = unit_bounds(load(name)).as_dict()
    for key in ("area_mm2", "power_w"):
        for node in content["nodes_nm"].values():
            low, high = node[key]
            assert content[key][0] <= low < high <= content[key][1]
            parts = [part[key] for part in node["parts"].values()]
            assert all(least < most for least, most in parts)
            assert (low, high) == pytest.approx([sum(bounds) for bounds in zip(*parts, strict=True)])
    assert json.loads(json.dumps(content))["nodes_nm"].keys() == {str(node) for node in NODES}


def test_the_energies_that_the_machine_assumes_are_within_the_bounds():
    energy = GRANDE.energy
    for assumed, name in (
        (energy.add_pj + energy.multiply_pj, "lane_pj"),
        (energy.buffer_pj_per_byte, "byte_pj"),
    ):
        low, high = FIGURES[name]
        assert low.value <= assumed <= high.value
        assert low.source
        assert high.source


def test_lanes_and_buffers_cost_area_and_the_clock_only_power():
    area, power = unit_bounds(GRANDE).area_mm2(45), unit_bounds(GRANDE).power_w(45)
    slow = unit_bounds(GRANDE.change(module={"clock_mhz": 300.0}))
    assert slow.area_mm2(45) == area
    assert slow.power_w(45).high < power.high
    wide = unit_bounds(GRANDE.change(module={"lanes": 32})).area_mm2(45)
    assert wide.low - area.low == pytest.approx(16 * 11_884e-6)
    large = unit_bounds(GRANDE.change(module={"buffer_kib": 256.0})).area_mm2(45)
    assert large.low - area.low == pytest.approx(5 * 2**20 * 0.346e-6)


def test_a_report_of_layers_has_the_bounds_of_its_machine():
    layers = Machine("grande_16").layers(random_graph(300, 3000), [16])
    assert whole_report(layers)["silicon"] == unit_bounds(GRANDE).as_dict()
