"""Gains at several clocks of the units."""

import pytest

from onehop.errors import ConfigurationError
from onehop.machines.ndp import CLOCKS_MHZ, Machine, NdpPlan, by_clock, load
from tests.machines.ndp.graphs import circulant, random_graph


def test_points_are_the_machines_own_at_these_clocks():
    graph, plan = random_graph(600, 9000), NdpPlan()
    points = by_clock(Machine("grande_16"), graph, [40, 256], plan, [100, 1200])
    for point in points:
        machine = Machine("grande_16").change(module={"clock_mhz": float(point.clock_mhz)})
        layers = machine.layers(graph, [40, 256], plan, record=0)
        total = sum(one.time_ns for one in layers)
        assert point.time_ms == pytest.approx(total / 1e6)
        assert point.speedup_over_baseline == pytest.approx(sum(o.baseline.time_ns for o in layers) / total)
        assert point.speedup_over_prior == pytest.approx(sum(o.best_prior.serial_ns for o in layers) / total)
        gains = [one.baseline.time_ns / one.time_ns for one in layers]
        assert point.best_layer_over_baseline == pytest.approx(max(gains))
        assert point.mappings == [one.run.mapping for one in layers]
        assert point.host_orders == [one.run.host_order for one in layers]


def test_units_that_keep_up_with_single_reads_gain_nothing_from_tiles():
    # Each source is needed by every target of a tile: the DRAM reads once what the units add up many times.
    graph, plan = circulant(4096, 64), NdpPlan("system", retile="index")
    slow, fast, faster = by_clock(Machine("grande_16"), graph, [256], plan, [300, 1200, 240_000])
    assert slow.time_ms > 2 * fast.time_ms
    assert fast.time_ms >= faster.time_ms
    assert slow.unit_bound_share > fast.unit_bound_share > faster.unit_bound_share == 0.0
    # The host has no units.
    base = [point.speedup_over_baseline * point.time_ms for point in (slow, fast, faster)]
    assert base == pytest.approx([base[0]] * 3)


def test_a_clock_of_nothing_is_refused():
    with pytest.raises(ConfigurationError, match=r"module.clock_mhz: expected a positive number, got 0"):
        by_clock(Machine("grande_16"), random_graph(30, 90), [16], NdpPlan(), [0])


def test_clocks_are_from_one_read_a_burst_slot_to_twice_the_default():
    device = load("grande_16").dram.device()
    assert CLOCKS_MHZ == (300, 400, 600, 1200, 2400)
    assert CLOCKS_MHZ[0] == pytest.approx(1e6 / (device.timing.bl * device.timing.clock_ps), rel=0.01)
    assert CLOCKS_MHZ[-1] == 2 * load("grande_16").module.clock_mhz
    found = by_clock(Machine("grande_16"), random_graph(30, 90), [16], NdpPlan())
    assert [point.clock_mhz for point in found] == list(CLOCKS_MHZ)
