"""Reports of layers and of several together: their figures from others, and the line on the bottleneck."""

import json

import pytest
import torch

from onehop.graph import Graph
from onehop.machines.ndp import Machine, NdpPlan, layer_report, load, whole_report
from onehop.machines.ndp.layer import LayerRun
from onehop.machines.ndp.outcome import gain
from onehop.machines.ndp.report import verdict
from onehop.machines.ndp.windows import unit_share
from tests.machines.ndp.graphs import circulant, random_graph


def run_of(graph, plan, width=256, **changes) -> LayerRun:
    return Machine(load("grande_16").change(**changes)).layers(graph, [width], plan, record=0)[0].run


def from_one_rank(nodes=4096):
    """Sources that all belong to rank 0 of 16."""
    target = torch.arange(nodes).repeat_interleave(8)
    return Graph.from_edge_index(torch.stack([target // 16 * 16, target]), num_nodes=nodes)


@pytest.mark.parametrize(
    ("graph", "changes", "path"),
    [
        (circulant(8192, 64), {"host": {"channel_gbps": 0.5}}, "the Host-path"),
        (circulant(8192, 256), {}, "the DRAM-path"),
        (from_one_rank(), {}, "the slowest rank"),
    ],
    ids=["host", "dram", "rank"],
)
def test_the_verdict_names_what_binds_most_windows(graph, changes, path):
    run = run_of(graph, NdpPlan("rank", retile="none"), **changes)
    count = {
        "the Host-path": run.schedule.bound()["host"],
        "the DRAM-path": run.schedule.bound()["dram"],
        "the slowest rank": run.schedule.bound()["imbalance"],
    }
    windows = len(run.schedule.ends_ns)
    assert count[path] == max(count.values()) > windows / 2
    over = run.schedule.total_ns / max(run.paths.dram_ns, run.paths.host_ns)
    assert verdict(run) == (
        f"{path} in {100 * count[path] / windows:.0f} % of {windows} windows; all of them take "
        f"{over:.2f} times as long as the busier path alone"
    )


def test_the_verdict_says_where_units_pace_the_reads():
    graph, plan = circulant(4096, 64), NdpPlan("system", retile="index")
    run = run_of(graph, plan, module={"clock_mhz": 100.0})
    busy = run.schedule.rank_busy_ns.sum(axis=0)
    assert f"; the units, not the DRAM, pace {100 * busy[4] / busy[1]:.0f} % of the reads" in verdict(run)
    assert unit_share([run.schedule] * 2) == busy[4] / busy[1] > 0.5
    fast = run_of(graph, plan, module={"clock_mhz": 240_000.0})
    assert "units" not in verdict(fast)
    both = (busy[4] + 0.0) / (busy[1] + fast.schedule.rank_busy_ns[:, 1].sum())
    assert unit_share([run.schedule, fast.schedule]) == pytest.approx(both)
    lines = layer_report(
        Machine(load("grande_16").change(module={"clock_mhz": 100.0})).layers(graph, [256], plan)[0]
    ).figures["ranks"]
    assert sum(line["unit_bound_ms"] for line in lines) == pytest.approx(busy[4] / 1e6)


def test_a_graph_of_no_nodes_has_figures_without_bounds():
    free = {"start_ns": 0.0, "poll_ns": 0.0, "access_ns": 0.0, "flush_mib": 0.0}
    empty = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), num_nodes=0)
    machine = Machine(load("grande_16").change(control=free))
    found = machine.layers(empty, [8], NdpPlan())[0]
    assert found.time_ns == 0.0
    assert verdict(found.run) == "no windows: the graph has no destinations"
    assert unit_share([found.run.schedule]) == 0.0
    figures = layer_report(found).figures
    for name in ("speedup_over_baseline", "speedup_over_prior", "speedup_over_overlapped_prior"):
        assert figures[name] == 1.0
    for line in (*figures["ranks"], *figures["channels"]):
        assert line["gbps"] == line["bytes"] == 0
    assert {line["percent_of_peak"] for line in figures["ranks"]} == {0.0}
    assert {line["row_hit_percent"] for line in figures["ranks"]} == {0.0}
    assert figures["rows"]["row_hit_percent"] == figures["read_reduction_percent"] == 0.0
    whole = json.loads(json.dumps(whole_report([found]), allow_nan=False))
    assert whole["speedup_over_prior"] == whole["hidden_share"] == 1.0


def test_gains_are_the_other_time_over_the_own():
    assert gain(6.0, 4.0) == 1.5
    assert gain(0.0, 4.0) == 0.0
    assert gain(3.0, 0.0) == 1.0


@pytest.mark.parametrize("retile", ["rows", "index"])
def test_figures_of_a_layer_follow_from_its_parts(retile):
    graph = random_graph(600, 9000)
    found = Machine("grande_16").layers(graph, [48], NdpPlan(retile=retile))[0]
    figures = layer_report(found).figures
    own = found.time_ns / 1e6
    base, prior = figures["baseline"], figures["prior"]
    assert base["time_ms"] == base["adjacency_ms"] + base["features_ms"] + base["write_ms"]
    assert figures["speedup_over_baseline"] == pytest.approx(base["time_ms"] / own)
    assert set(prior) == {"dimm", "rank", "system"}
    for one in prior.values():
        assert one["serial_ms"] == pytest.approx(one["pre_ms"] + one["features_ms"] + one["post_ms"])
    serial, overlapped = (min(one[key] for one in prior.values()) for key in ("serial_ms", "overlapped_ms"))
    assert figures["speedup_over_prior"] == pytest.approx(serial / own)
    assert figures["speedup_over_overlapped_prior"] == pytest.approx(overlapped / own)
    reads = found.run.traffic.counts.reads.sum()
    assert figures["read_reduction_percent"] == pytest.approx(100 - 100 * reads / 9000)
    assert figures["width"] == 48
    assert figures["windows"] == -(-600 // figures["window_targets"])
    assert figures["plan"]["retile"] == retile
    rows = figures["rows"]
    assert rows["bursts_read"] * 64 == pytest.approx(
        sum(v for k, v in found.run.bytes().items() if k.endswith("_read") and "outputs" not in k)
        - found.run.bytes()["bundle_read"]
        + found.run.bytes().get("retile_scan", 0)
        + 64 * found.run.workload.num_edges * (retile == "rows")
    )
    assert rows["row_hit_percent"] == pytest.approx(
        100 * (1 - rows["activations"] / (rows["bursts_read"] + rows["bursts_written"]))
    )


def test_several_layers_together_are_their_sums():
    graph, machine = random_graph(3000, 60_000), Machine("grande_16")
    layers = machine.layers(graph, [16, 300, 300], NdpPlan())
    whole, parts = whole_report(layers), [layer_report(one).as_dict() for one in layers]
    assert [layer["width"] for layer in whole["layers"]] == [16, 300, 300]
    assert [layer["report"] for layer in whole["layers"]] == parts
    for key in ("mapping", "host_order", "bound_ms", "hidden_share", "candidates_ms"):
        assert [layer[key] for layer in whole["layers"]] == [part[key] for part in parts]
    assert [layer["time_ms"] for layer in whole["layers"]] == pytest.approx([p["total_ms"] for p in parts])
    time = sum(part["total_ms"] for part in parts)
    assert whole["time_ms"] == pytest.approx(time)
    assert whole["bound_ms"] == pytest.approx(sum(part["bound_ms"] for part in parts))
    assert whole["energy_mj"] == pytest.approx(sum(part["energy_mj"] for part in parts))
    assert whole["speedup_over_baseline"] == pytest.approx(
        sum(part["baseline"]["time_ms"] for part in parts) / time
    )
    best = [min(one["serial_ms"] for one in part["prior"].values()) for part in parts]
    assert whole["speedup_over_prior"] == pytest.approx(sum(best) / time)
    saved = [part["read_reduction_percent"] for part in parts]
    assert whole["read_reduction_percent"] == pytest.approx(sum(saved) / 3)
    shorter = [min(part["paths_ms"].values()) for part in parts]
    hidden = sum(part["hidden_share"] * ms for part, ms in zip(parts, shorter, strict=True))
    assert whole["hidden_share"] == pytest.approx(hidden / sum(shorter))
    for kind in whole["bytes"]:
        assert whole["bytes"][kind] == sum(part["bytes"].get(kind, 0) for part in parts)
    assert {kind for part in parts for kind in part["bytes"]} == set(whole["bytes"])


def test_orders_of_layers_are_named_once_where_they_are_equal():
    graph, machine = random_graph(300, 2000), Machine("grande_16")
    first, second = (
        machine.layers(graph, [64], NdpPlan("channel", host_order=order))[0] for order in ("ahead", "early")
    )
    assert whole_report([first, first])["host_order"] == "ahead"
    assert whole_report([first, second])["host_order"] == "ahead, early"
