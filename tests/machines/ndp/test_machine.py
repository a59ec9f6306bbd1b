import json
import math
from dataclasses import replace

import pytest
import torch

import onehop
from onehop import reference
from onehop.errors import ArgumentError, ConfigurationError
from onehop.machines import ndp
from onehop.machines.ndp import Machine, NdpPlan
from onehop.plans.ndp import HOST_ORDERS, PODS
from tests.machines.ndp.graphs import random_graph


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("retile", ["rows", "index", "none"])
def test_results_with_everything_on(graph, x, reduce, retile):
    generator = torch.Generator().manual_seed(2)
    weight, src, dst = (torch.rand(n, generator=generator) for n in (6000, 600, 600))
    expected = reference.aggregate(
        graph.edge_index(), x.double(), 600, weight.double(), reduce, src.double(), dst.double()
    )
    plan = NdpPlan(retile=retile)
    out, report = Machine("grande_16").aggregate(
        graph, x, plan, weight=weight, reduce=reduce, src_scale=src, dst_scale=dst
    )
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
    assert report.total_ms > 0


@pytest.mark.parametrize("mapping", ["adaptive", *PODS])
def test_every_mapping_can_be_asked_for(graph, x, mapping):
    _, report = Machine("grande_32").aggregate(graph, x, NdpPlan(mapping))
    figures = report.as_dict()
    assert set(figures["candidates_ms"]) == set(PODS)
    if mapping == "adaptive":
        assert figures["candidates_ms"][figures["mapping"]] == min(figures["candidates_ms"].values())
    else:
        assert figures["mapping"] == mapping
    assert figures["total_ms"] == pytest.approx(figures["candidates_ms"][figures["mapping"]])


@pytest.mark.parametrize("order", HOST_ORDERS)
def test_every_order_can_be_asked_for(graph, x, order):
    out, report = Machine("grande_32").aggregate(graph, x, NdpPlan("channel", host_order=order))
    figures = report.as_dict()
    assert figures["host_order"] == order
    assert figures["candidates"]["channel"]["orders_ms"] == pytest.approx({order: figures["total_ms"]})
    assert figures["total_ms"] >= figures["bound_ms"]
    assert 0 <= figures["hidden_share"] <= 1
    torch.testing.assert_close(out, Machine("grande_32").aggregate(graph, x)[0])


def test_adaptive_takes_the_fastest_mapping_and_order(graph, x):
    figures = Machine("grande_32").aggregate(graph, x)[1].as_dict()
    times = {
        (mapping, order): ms
        for mapping, found in figures["candidates"].items()
        for order, ms in found["orders_ms"].items()
    }
    # Rank- and DIMM-pods move no bundles over the channels.
    assert len(times) == 4 * 6 - 2 * 2
    chosen = figures["mapping"], figures["host_order"]
    assert times[chosen] == min(times.values()) == pytest.approx(figures["total_ms"])
    for mapping, found in figures["candidates"].items():
        assert found["host_order"] == min(found["orders_ms"], key=lambda order: found["orders_ms"][order])
        assert figures["candidates_ms"][mapping] == pytest.approx(min(found["orders_ms"].values()))
        assert found["bound_ms"] <= min(found["orders_ms"].values())


def test_the_bound_is_control_and_the_busier_path(graph, x):
    figures = Machine("grande_16").aggregate(graph, x, NdpPlan("system", host_order="after"))[1].as_dict()
    phases, paths = figures["phases_ms"], figures["paths_ms"]
    assert figures["bound_ms"] == pytest.approx(phases["control"] + max(paths["dram"], paths["host"]))
    for path, lines, parts in (
        ("dram", "ranks", ("adjacency_ms", "features_ms", "write_back_ms", "listing_ms")),
        ("host", "channels", ("bundle_read_ms", "bundle_write_ms", "outputs_ms", "finals_ms", "lists_ms")),
    ):
        assert paths[path] == pytest.approx(max(sum(line[p] for p in parts) for line in figures[lines]))


def test_an_order_that_a_mapping_cannot_have(graph, x):
    machine = Machine("grande_16")
    for mapping in ("rank", "dimm"):
        plan = NdpPlan(mapping, host_order="between")
        with pytest.raises(ArgumentError, match=rf"host_order 'between' .* mapping '{mapping}' no bundle"):
            machine.aggregate(graph, x, plan)
    # Without broadcasting, DIMM-pods move theirs over the channels.
    plan = NdpPlan("dimm", host_order="between", broadcast=False)
    assert machine.aggregate(graph, x, plan)[1].as_dict()["host_order"] == "between"
    figures = machine.aggregate(graph, x, NdpPlan(host_order="between"))[1].as_dict()
    assert set(figures["candidates_ms"]) == {"channel", "2-channel", "system"}
    assert "no bundle uses the channels" in figures["impossible"]["rank"]
    single = Machine(ndp.NdpConfig("single", ndp.Topology(1, 1, 1)))
    with pytest.raises(ArgumentError, match="host_order 'between'"):
        single.aggregate(graph, x, NdpPlan(host_order="between"))


def test_reports_are_the_same_every_time(graph, x):
    first, second = (Machine("grande_16").aggregate(graph, x)[1].as_dict() for _ in range(2))
    assert first == second


def test_reports_survive_json(graph, x, tmp_path):
    report = Machine("grande_16").aggregate(graph, x)[1]
    report.to_json(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text()) == report.as_dict()


def test_ranks_and_channels_add_up(graph, x):
    figures = Machine("grande_16").aggregate(graph, x, NdpPlan("channel"))[1].as_dict()
    moved = figures["bytes"]
    by_rank = sum(line["bytes"] for line in figures["ranks"])
    assert by_rank == (
        moved["adjacency_read"]
        + moved["row_pointer_read"]
        + moved["tile_list_read"]
        + moved["feature_read"]
        + moved["write_back"]
    )
    useful = sum(line["useful_bytes"] for line in figures["ranks"])
    assert useful == moved["adjacency_useful"] + moved["feature_useful"] + moved["finals_write"]
    by_channel = sum(line["bytes"] for line in figures["channels"])
    assert by_channel == (
        moved["bundle_read"] + moved["bundle_write"] + moved["outputs_read"] + moved["finals_write"]
    )
    assert sum(figures["windows_bound_by"].values()) == figures["windows"]
    assert sum(count for _, count in figures["bounds"]) == figures["windows"]
    assert 0 <= figures["rows"]["row_hit_percent"] <= 100
    assert figures["energy_mj"] == pytest.approx(sum(figures["energy_parts_mj"].values()))
    by_number = Machine("grande_16").aggregate(graph, x, NdpPlan("system", retile="index"))[1].as_dict()
    opened = sum(line["activations"] for line in by_number["ranks"])
    assert opened == pytest.approx(by_number["rows"]["activations"])
    assert by_number["energy_parts_mj"]["dram_activate"] == pytest.approx(opened * 5.87e-6)


@pytest.mark.parametrize("mapping", ["rank", "2-channel"])
def test_lines_of_ranks_and_channels_follow_from_their_parts(graph, x, mapping):
    machine = Machine("grande_16")
    figures = machine.aggregate(graph, x, NdpPlan(mapping, host_order="after"))[1].as_dict()
    phases = figures["phases_ms"]
    windows_ms = figures["total_ms"] - phases["control"]
    for line in figures["ranks"]:
        busy = line["adjacency_ms"] + line["features_ms"] + line["write_back_ms"] + line["listing_ms"]
        assert line["idle_ms"] == pytest.approx(windows_ms - busy)
        assert line["gbps"] == pytest.approx(line["bytes"] / windows_ms / 1e6)
        assert line["percent_of_peak"] == pytest.approx(100 * line["gbps"] / machine.memory.device.peak_gbps)
        hits = 1 - line["activations"] / (line["bytes"] / 64)
        # Tile lists are read as fractions of a burst.
        assert line["row_hit_percent"] == pytest.approx(100 * hits, rel=0.01)
    for line in figures["channels"]:
        busy = line["bundle_read_ms"] + line["bundle_write_ms"] + line["outputs_ms"] + line["finals_ms"]
        busy += line["lists_ms"]
        assert line["idle_ms"] == pytest.approx(windows_ms - busy)
        assert line["gbps"] == pytest.approx(line["bytes"] / windows_ms / 1e6)


def test_imbalance_is_the_busiest_rank_over_the_mean():
    graph = random_graph(600, 6000)
    run = Machine("grande_16").layers(graph, [48], NdpPlan("channel", retile="index"))[0].run
    bursts = run.traffic.feature_bursts.tolist()
    expected = [max(window) / (sum(window) / 16) for window in bursts]
    assert run.imbalance() == pytest.approx(expected)
    figures = ndp.layer_report(Machine("grande_16").layers(random_graph(9, 0), [8])[0]).figures
    assert figures["imbalance"] == {"mean": 1.0, "median": 1.0, "p99": 1.0, "max": 1.0}


def test_phases_add_up_also_where_ranks_work_ahead_of_one_another(graph):
    waiting = Machine("grande_16").layers(graph, [256], NdpPlan("2-channel"))[0].run
    # Without a host to wait for, another rank is the busiest in every window, and none waits for it.
    source = torch.arange(2048).repeat_interleave(32) // 128 % 16
    edge_index = torch.stack([source, torch.arange(2048).repeat_interleave(32)])
    config = ndp.load("grande_16").change(
        host={"channel_gbps": math.inf, "reduce_gbps": math.inf}, control={"poll_ns": 0.0, "access_ns": 0.0}
    )
    uneven = onehop.Graph.from_edge_index(edge_index, num_nodes=2048)
    ahead = Machine(config).layers(uneven, [256], NdpPlan("rank", retile="index"))[0].run
    assert ahead.schedule.total_ns < ahead.schedule.busy_ns[:, 1].sum()
    for run in (waiting, ahead):
        assert run.time_ns == run.control_ns + run.schedule.total_ns
        assert sum(run.phases_ns().values()) == pytest.approx(run.time_ns)
        assert all(time >= 0 for time in run.phases_ns().values())


def test_bipartite_graphs_come_in_index_order_unless_asked_otherwise():
    graph, x = random_graph(50, 400, num_src=90), torch.ones(90, 3)
    out, report = Machine("grande_16").aggregate(graph, x)
    assert torch.equal(out[:, 0], graph.in_degrees.float())
    assert report.as_dict()["plan"]["retile"] == "index"
    for machine, plan in ((Machine("grande_16"), NdpPlan()), (Machine("grande_16", NdpPlan()), None)):
        with pytest.raises(ArgumentError, match="retile='index'"):
            machine.aggregate(graph, x, plan)


def test_timelines_have_both_paths(graph, x, tmp_path):
    report = Machine("grande_16").aggregate(graph, x, NdpPlan("system"))[1]
    lanes = {span.lane for span in report.timeline.spans}
    assert {"before windows", "DRAM-path/rank 15", "Host-path/channel 3"} <= lanes
    assert report.timeline.end_ns == pytest.approx(report.total_ns)
    report.trace(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_whole_models_run_on_the_machine():
    pyg = pytest.importorskip("torch_geometric")
    torch.manual_seed(0)
    edge_index = torch.randint(0, 90, (2, 700))
    x = torch.randn(90, 20)
    model = torch.nn.ModuleList([pyg.nn.GCNConv(20, 32), pyg.nn.GCNConv(32, 5)])

    def forward():
        return model[1](model[0](x, edge_index).relu(), edge_index)

    expected = forward()
    gradients = torch.autograd.grad(expected.square().sum(), list(model.parameters()))
    with onehop.patch(machine=Machine("grande_16")) as patch:
        out = forward()
        found = torch.autograd.grad(out.square().sum(), list(model.parameters()))
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)
    for one, other in zip(found, gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    assert patch.report.total_ms > 0
    assert {entry.backward for entry in patch.report.entries} == {False, True}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": torch.zeros(5, 4)}, r"x: expected shape \[600, F\]"),
        ({"x": torch.zeros(600, 4, dtype=torch.float64)}, "float32 alone"),
        ({"x": torch.zeros(600, 0)}, "width: expected an integer of at least 1, got 0"),
        ({"reduce": "max"}, "'sum' or 'mean'"),
        ({"weight": torch.ones(3)}, r"weight: expected shape \[6000\]"),
        ({"src_scale": torch.ones(3)}, "src_scale"),
        ({"plan": "fast"}, "NdpPlan"),
    ],
)
def test_wrong_arguments_are_refused(graph, x, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        Machine("grande_16").aggregate(graph, **{"x": x, **arguments})


def test_a_mapping_that_does_not_divide_the_ranks_is_refused(graph, x):
    machine = Machine(ndp.NdpConfig("odd", ndp.Topology(3, 2, 2)))
    with pytest.raises(ConfigurationError, match="3 channels"):
        machine.aggregate(graph, x, NdpPlan("2-channel"))
    assert "2-channel" not in machine.aggregate(graph, x)[1].as_dict()["candidates_ms"]


def test_buffers_too_small_for_a_slice(graph):
    small = Machine(ndp.load("grande_16").change(module={"buffer_kib": 0.125}))
    # 128 bytes hold slices of 64 bytes, of which 16 ranks have one each; longer slices fit nowhere.
    found = small.layers(graph, [256], NdpPlan())[0]
    assert set(found.candidates) == {"2-channel", "system"}
    assert "cannot hold one output slice of 1024 bytes" in found.impossible["rank"]
    with pytest.raises(ArgumentError, match="cannot hold one output slice of 1024 bytes"):
        small.layers(graph, [256], NdpPlan("rank"))
    with pytest.raises(ArgumentError, match="cannot hold one output slice"):
        small.layers(graph, [4096], NdpPlan())


@pytest.mark.parametrize("width", [0, -3, 2.5])
def test_widths_that_cannot_be(graph, width):
    with pytest.raises(ArgumentError, match="width"):
        Machine("grande_16").layers(graph, [width], NdpPlan())


def test_graphs_without_edges_and_nodes():
    for nodes in (0, 5):
        empty = onehop.Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), num_nodes=nodes)
        out, report = Machine("grande_16").aggregate(empty, torch.ones(nodes, 3))
        assert torch.equal(out, torch.zeros(nodes, 3))
        json.dumps(report.as_dict(), allow_nan=False)


def test_changed_machines_share_what_is_counted_where_they_may(graph):
    machine, plan = Machine("grande_16"), NdpPlan()
    counted = machine.workload(graph, plan)
    assert machine.change(dram={"faw": 32}).workload(graph, plan) is counted
    other = machine.change(module={"adjacency_entry_bytes": 4}, topology={"node_block": 32})
    assert other.workload(graph, plan) is not counted
    alone = Machine(other.config).layers(graph, [64], plan)[0]
    assert other.layers(graph, [64], plan)[0].time_ns == alone.time_ns


def test_counts_are_kept_for_other_mappings(graph):
    machine, plan = Machine("grande_16"), NdpPlan("rank")
    assert machine.workload(graph, plan) is machine.workload(graph, replace(plan, mapping="system", tile=4))
    assert machine.workload(graph, plan) is not machine.workload(graph, replace(plan, retile="index"))


def test_counts_of_few_graphs_are_kept():
    machine, plan = Machine("grande_16"), NdpPlan()
    graphs = [random_graph(20, 60, seed) for seed in range(9)]
    first, *others = [machine.workload(graph, plan) for graph in graphs[:8]]
    assert machine.workload(graphs[0], plan) is first
    # The ninth takes the place of the second, which was used longest ago.
    machine.workload(graphs[8], plan)
    assert machine.workload(graphs[0], plan) is first
    assert machine.workload(graphs[2], plan) is others[1]
    assert machine.workload(graphs[1], plan) is not others[0]


def test_timelines_begin_with_sixteen_windows():
    machine = Machine(ndp.load("grande_16").change(module={"buffer_kib": 1.0}))
    graph, plan = random_graph(600, 6000), NdpPlan("rank", retile="index")
    found = machine.layers(graph, [64], plan)[0].run.schedule
    assert len(found.ends_ns) > 16
    assert {event.window for event in found.events} == set(range(16))
    assert machine.layers(graph, [64], plan, record=0)[0].run.schedule.events == []


def test_slices_may_fill_a_buffer(graph):
    # 256 numbers are 1 KiB.
    machine, plan = Machine(ndp.load("grande_16").change(module={"buffer_kib": 1.0})), NdpPlan(retile="index")
    found = machine.layers(graph, [256], plan, record=0)[0]
    assert found.impossible == {}
    assert "rank" in found.candidates
    assert [one.mapping for one in found.priors] == ["dimm", "rank", "system"]
    assert set(machine.sampled(graph, [256], plan)[0].prior_ns) == {"dimm", "rank", "system"}
    retiled = machine.sampled(graph, [256], NdpPlan("system", retile="rows"))[0]
    assert set(retiled.prior_ns) == {"dimm", "rank", "system"}
    wider = machine.layers(graph, [257], plan, record=0)[0]
    assert "rank" in wider.impossible
    assert [one.mapping for one in wider.priors] == ["dimm", "system"]
    sampled = machine.sampled(graph, [257], NdpPlan("system", retile="rows"))[0]
    assert set(sampled.prior_ns) == {"dimm", "system"}
