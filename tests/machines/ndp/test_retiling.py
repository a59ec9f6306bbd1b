"""The tiling of targets: chosen where a plan leaves it open, judged, and kept for later layers."""

import itertools
from dataclasses import replace

import pytest
import torch

import onehop
from onehop.errors import ArgumentError
from onehop.machines import ndp
from onehop.machines.ndp import Machine, NdpPlan, layer_report
from onehop.plans.ndp import TRIED_TILINGS
from tests.machines.ndp.graphs import random_graph
from tests.machines.ndp.naive_order import naive_order


@pytest.mark.parametrize("merge_nodes_per_us", [5.0, 1e9])
@pytest.mark.parametrize("widths", [[48], [16, 256, 256]])
def test_the_best_tiling_is_the_best_of_all_choices(graph, widths, merge_nodes_per_us):
    """Every list of index order and one other tiling; tiles are listed in the first layer that has it."""
    machine = Machine("grande_16").change(
        host={"merge_nodes_per_us": merge_nodes_per_us}, module={"clock_mhz": 9600.0}
    )
    tried = {each: machine.layers(graph, widths, NdpPlan(tile=64, retile=each)) for each in TRIED_TILINGS}
    totals = {}
    for name in TRIED_TILINGS:
        for choice in itertools.product(("index", name), repeat=len(widths)):
            begin = choice.index(name) if name in choice else len(choice)
            listed = machine.layers(graph, widths[begin:], NdpPlan(tile=64, retile=name))
            layers = [
                tried["index"][at] if each == "index" else listed[at - begin]
                for at, each in enumerate(choice)
            ]
            totals[choice] = sum(each.time_ns for each in layers)
    found = machine.layers(graph, widths, NdpPlan(tile=64, retile="adaptive"))
    assert sum(each.time_ns for each in found) == pytest.approx(min(totals.values()))
    assert totals[tuple(each.plan.retile for each in found)] == pytest.approx(min(totals.values()))
    for at, each in enumerate(found):
        expected = {name: layers[at].time_ns - layers[at].run.retiling_ns for name, layers in tried.items()}
        assert each.tilings_ns == pytest.approx(expected)


def test_the_best_tiling_in_reports_and_models(graph, x):
    machine, plan = Machine("grande_16"), NdpPlan(retile="adaptive")
    out, report = machine.aggregate(graph, x, plan)
    torch.testing.assert_close(out, onehop.aggregate(graph, x), rtol=1e-4, atol=1e-4)
    figures = report.as_dict()
    assert figures["retile"] in TRIED_TILINGS
    assert figures["tilings_ms"].keys() == set(TRIED_TILINGS)
    whole = {
        name: ndp.run_model(machine, graph, "gcn", [48, 32, 7], NdpPlan(retile=name)).overlapped_ns
        for name in (*TRIED_TILINGS, "adaptive")
    }
    assert whole.pop("adaptive") == min(whole.values())
    # What was only tried has to be paid for later.
    others = {"rows", "ranks"} - {min(whole, key=lambda name: whole[name])}
    for name in others:
        paid = machine.aggregate(graph, x, NdpPlan(retile=name))[1].as_dict()["phases_ms"]["re-tiling"]
        assert paid > 0, name
    with pytest.raises(ArgumentError, match="a sample has one; choose 'index', 'rows' or 'ranks'"):
        machine.sampled(graph, [48], plan)


def test_retiling_is_judged_by_the_same_mapping_in_index_order(graph):
    machine, plan = Machine("grande_16"), NdpPlan("channel")
    first, later = (ndp.layer_report(found).figures for found in machine.layers(graph, [64, 64], plan))
    by_index = machine.layers(graph, [64], replace(plan, retile="index"))[0]
    assert ndp.layer_report(by_index).figures["retiling"] is None
    for figures in (first, later):
        assert figures["retiling"]["index_order_ms"] == pytest.approx(by_index.time_ns / 1e6)
    assert first["retiling"]["gain_ms"] == pytest.approx(later["retiling"]["gain_ms"])
    assert first["retiling"]["cost_ms"] > 0
    assert later["retiling"]["cost_ms"] == 0
    assert later["retiling"]["cost"] is None


def test_a_batch_is_a_window_of_the_layer_that_lists_the_targets():
    """Merged unit by unit, the order depends on the batch, and later layers keep that of the first."""
    machine, graph, plan = Machine("grande_16"), random_graph(3000, 9000), NdpPlan("dimm", retile="ranks")
    first, later = machine.layers(graph, [256, 64], plan)
    # A DIMM's rank has half of a vector: 128 KiB hold 256 slices of 512 bytes.
    assert first.run.traffic.shape.window == first.run.retiling.batch == 256
    assert later.run.traffic.shape.window > 256
    expected = naive_order(graph, machine.config.topology, "ranks", 256)
    assert first.run.workload.order.tolist() == later.run.workload.order.tolist() == expected
    # As a model is run, its last layer comes first.
    works = ndp.layer_works("gcn", [256, 64, 7], machine.config.host)
    for layer in machine.chained(graph, works, plan):
        assert layer.run.workload.order.tolist() == expected
    one, other = (
        machine.layers(graph, [256], replace(plan, mapping=name))[0] for name in ("rank", "channel")
    )
    assert one.run.retiling.batch == 128
    assert other.run.retiling.batch == 512
    fixed = machine.layers(graph, [256], replace(plan, batch=777))[0]
    assert fixed.run.retiling.batch == 777
    with pytest.raises(ArgumentError, match="batch=None means a window of a layer"):
        machine.workload(graph, plan)


def test_an_open_tiling_has_the_times_of_all_that_were_tried():
    graph, machine = random_graph(600, 9000), Machine("grande_16")
    tilings = layer_report(machine.layers(graph, [48, 48], NdpPlan(retile="adaptive"))[1]).figures[
        "tilings_ms"
    ]
    assert len(tilings) == 3
    for retile, ms in tilings.items():
        alone = machine.layers(graph, [48, 48], NdpPlan(retile=retile))[1]
        assert ms == pytest.approx(min(alone.candidates_ms().values()))
