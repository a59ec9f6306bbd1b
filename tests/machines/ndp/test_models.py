"""Whole models: the host's operations by hand, and the chain of layers against single ones."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from onehop.errors import ArgumentError, ConfigurationError
from onehop.machines.ndp import Host, Machine, ModelRun, NdpPlan, layer_works, load, run_model
from onehop.machines.ndp.case import LayerCase
from onehop.machines.ndp.layer import simulate
from onehop.machines.ndp.mapping import Pods
from onehop.machines.ndp.traffic import Finals
from tests.machines.ndp.graphs import random_graph

HOST = Host(combine_gflops=10.0, reduce_gbps=4.0)


# By hand, for layers 100 to 30 to 7. A pass reads and writes 4 bytes a number, 8 in all; an activation
# follows the first layer only.
@pytest.mark.parametrize(
    ("model", "flops", "passed"),
    [
        # One product; scaling of 100 and 30 numbers; activation of 30.
        ("gcn", [2 * 100 * 30, 2 * 30 * 7], [8 * (100 + 30), 8 * 30]),
        # Two products; division by the degree, and their sum.
        ("sage", [2 * 2 * 100 * 30, 2 * 2 * 30 * 7], [8 * (100 + 30 + 30), 8 * (30 + 7)]),
        # Two products, an activation between them.
        ("gin", [2 * 100 * 30 + 2 * 30 * 30, 2 * 30 * 7 + 2 * 7 * 7], [8 * (30 + 30), 8 * 7]),
    ],
)
def test_operations_by_hand(model, flops, passed):
    works = layer_works(model, [100, 30, 7], HOST)
    assert [(work.width, work.outputs) for work in works] == [(100, 30), (30, 7)]
    assert [work.flops for work in works] == flops
    assert [work.passed_bytes for work in works] == passed
    for work in works:
        assert work.ns == pytest.approx(work.flops / 10.0 + work.passed_bytes / 4.0)
        assert work.without_host == replace(work, ns=0.0)


def test_unknown_models_and_rates_are_refused():
    with pytest.raises(ArgumentError, match="model: expected one of gcn, sage, gin, got 'gat'"):
        layer_works("gat", [3, 4], HOST)
    with pytest.raises(ConfigurationError, match=r"host.combine_gflops: expected a positive number"):
        Host(combine_gflops=0.0)


def test_final_vectors_lie_in_the_next_layers_mapping():
    graph, machine = random_graph(700, 9000), Machine("grande_16")
    first, last = machine.chained(graph, layer_works("gcn", [96, 256, 40], machine.config.host))
    for layer, pods, columns in (
        (first, last.run.traffic.pods, 256),
        (last, last.run.traffic.pods, 40),
    ):
        moved = layer.run.bytes()
        assert moved["finals_write"] == moved["write_back_useful"] == 700 * columns * 4
        assert moved["write_back"] == 700 * int(pods.slice_bursts(columns, 64)[: pods.size].sum()) * 64
    assert first.run.retiling is not None
    assert last.run.retiling is None


def test_the_chain_is_its_layers():
    graph, machine = random_graph(700, 9000), Machine("grande_16")
    works = layer_works("sage", [96, 256, 40], machine.config.host)
    plan = NdpPlan("system", retile="index")
    first, last = machine.chained(graph, works, plan)
    workload = machine.workload(graph, plan)
    system = Pods.of(machine.config.topology, "system")
    for layer, work in ((first, works[0]), (last, works[1])):
        finals = Finals(work.outputs, work.ns, system)
        case = LayerCase(machine.config, machine.memory, plan, work.width, finals)
        alone = simulate(case, workload, system)
        assert layer.time_ns == alone.time_ns
        assert alone.schedule.events == []


def test_the_hosts_part_hides_where_it_is_short():
    graph = random_graph(8000, 200_000)
    # Windows of 128 targets and more: the host's part passes while modules work.
    fast = Machine(load("grande_16").change(host={"combine_gflops": 20_000.0}))
    found = run_model(fast, graph, "gcn", [128, 256, 40])
    assert found.overlapped_ns < found.serial_ns
    assert found.hidden_share > 0.5
    assert found.time_ns == found.overlapped_ns
    slow = Machine(load("grande_16").change(host={"combine_gflops": 1.0}))
    busy = run_model(slow, graph, "gcn", [128, 256, 40])
    assert busy.combine_ns[0] == pytest.approx(8000 * (2 * 128 * 256 / 1.0 + 8 * (128 + 256) / 200.0))
    assert busy.time_ns >= sum(busy.combine_ns)
    assert busy.time_ns <= busy.serial_ns
    # The host alone has the same part.
    for one in (found, busy):
        alone = sum(layer.baseline.time_ns for layer in one.layers) + sum(one.combine_ns)
        assert one.baseline_ns == pytest.approx(alone)


@pytest.mark.parametrize("width", [0, -3, 2.5, True])
def test_widths_that_cannot_be(width):
    for widths in ([width, 8], [8, width]):
        with pytest.raises(ArgumentError, match=r"width: expected an integer of at least 1, got"):
            layer_works("gcn", widths, HOST)


# Overlapped, the layers take 60 + 40 ns; the host's part takes 30 + 20.
@pytest.mark.parametrize(
    ("serial_ns", "time_ns", "hidden"), [(150.0, 100.0, 1.0), (120.0, 100.0, 0.4), (90.0, 90.0, 0.0)]
)
def test_the_figures_of_a_model_by_hand(serial_ns, time_ns, hidden):
    layers = [
        SimpleNamespace(time_ns=ns, run=SimpleNamespace(mapping=mapping, host_order=order))
        for ns, mapping, order in ((60e6, "dimm", "ahead"), (40e6, "system", "early"))
    ]
    found = ModelRun("gin", layers, [30e6, 20e6], serial_ns * 1e6, 250e6)
    assert found.as_dict() == {
        "model": "gin",
        "time_ms": time_ns,
        "overlapped_ms": 100.0,
        "serial_ms": serial_ns,
        "baseline_ms": 250.0,
        "speedup_over_baseline": 250.0 / time_ns,
        "serial_speedup_over_baseline": 250.0 / serial_ns,
        "overlapped_speedup_over_baseline": 2.5,
        "combine_ms": [30.0, 20.0],
        "combine_hidden_share": hidden,
        "mappings": ["dimm", "system"],
        "host_orders": ["ahead", "early"],
    }
    assert ModelRun("gin", layers, [0.0, 0.0], 100e6, 250e6).hidden_share == 1.0
