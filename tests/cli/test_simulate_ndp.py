import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from onehop.bench import sources
from onehop.graph import Graph
from onehop.graph.self_loops import with_self_loops
from onehop.machines.ndp import Machine, NdpPlan
from tests.cli.running import onehop, written
from tests.registries import as_before

KEYS = {
    "time_ms",
    "speedup_over_baseline",
    "speedup_over_prior",
    "host_order",
    "bound_ms",
    "hidden_share",
    "layers",
    "read_reduction_percent",
    "bytes",
    "energy_mj",
    "output_max_abs_error",
}


@pytest.fixture
def ndp(tmp_path):
    """Runs ``simulate ndp``; returns its JSON and what it prints."""
    return partial(written, tmp_path / "out.json", "simulate ndp")


@pytest.fixture
def small(ndp):
    """The same on a small graph."""
    return partial(ndp, "--graph twin:cora --scale 0.3")


def test_json_has_the_keys_and_the_trace_the_timeline(small, tmp_path):
    content, output = small("--width 64 --check full --trace", tmp_path / "t.json")
    assert set(content) >= KEYS
    assert content["output_max_abs_error"] < 1e-4
    layer = content["layers"][0]
    assert layer["width"] == 64
    assert layer["time_ms"] == pytest.approx(min(layer["candidates_ms"].values()))
    assert content["time_ms"] == pytest.approx(layer["time_ms"])
    assert layer["mapping"] in output
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_several_layers_begin_with_the_graphs_features(small):
    content, _ = small("--width 32 --layers 3 --mapping channel")
    assert [layer["width"] for layer in content["layers"]] == [1433, 32, 32]
    assert {layer["mapping"] for layer in content["layers"]} == {"channel"}
    assert content["time_ms"] == pytest.approx(sum(layer["time_ms"] for layer in content["layers"]))


@pytest.mark.parametrize("order", ["after", "ahead", "between", "early"])
def test_the_hosts_order_can_be_asked_for(small, order):
    content, output = small("--mapping system --width 64 --host-order", order)
    assert content["host_order"] == content["layers"][0]["host_order"] == order
    assert f"system, {order}" in output


@pytest.mark.parametrize("mapping", ["baseline", "prior"])
def test_what_it_is_compared_with_can_be_asked_for(small, mapping):
    content, _ = small("--mapping", mapping)
    key = f"speedup_over_{mapping}"
    assert content[key] == pytest.approx(1.0)
    assert content["layers"][0]["mapping"].startswith(mapping)
    assert content["host_order"] is content["bound_ms"] is content["layers"][0]["hidden_share"] is None
    own = content["layers"][0]["report"]
    serial = min(own["prior"].values(), key=lambda found: found["serial_ms"])
    compared = own["baseline"] if mapping == "baseline" else serial
    assert content["bytes"] == compared["bytes"]
    assert content["energy_mj"] == pytest.approx(compared["energy_mj"])
    # The host has no tiles, prior machines take targets by number.
    assert (content["read_reduction_percent"] == 0) == (mapping == "baseline")


def test_sweep_of_tiles_and_plot(small, tmp_path):
    content, output = small("--sweep tile=4:128 --plot", tmp_path / "p.png")
    assert len(content["sweep"]) == 24
    by_tile = {
        line["tile"]: line["read_reduction_percent"]
        for line in content["sweep"]
        if line["retile"] == "rows" and line["broadcast"]
    }
    assert list(by_tile) == [4, 8, 16, 32, 64, 128]
    assert sorted(by_tile.values()) == list(by_tile.values())
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"
    # The report has a line on the tile, too.
    table = [line.split() for line in output.splitlines() if line.startswith("tile ") and "%" in line]
    assert [row[1:4] for row in table[:4]] == [
        ["4", "index", "on"],
        ["4", "index", "off"],
        ["8", "index", "on"],
        ["8", "index", "off"],
    ]
    assert len(table) == 24
    times = content["sweep"][0]["candidates_ms"]
    assert table[0][6:-3] == [f"{ms:.3f}" for ms in times.values()]


def test_a_sweep_takes_the_tiles_that_it_is_given(small):
    content, _ = small("--sweep tile=8,32 --width 16")
    assert [line["tile"] for line in content["sweep"]] == [8, 8, 32, 32] * 2
    assert {line["retile"] for line in content["sweep"]} == {"index", "rows"}
    for line in content["sweep"]:
        assert line["time_ms"] == pytest.approx(min(line["candidates_ms"].values()))


def test_a_sweep_over_values_of_the_machine_is_as_each_machine_alone(small):
    content, output = small("--width 64 --sweep clock_mhz=300:1200 --sweep channels=2,4")
    found = [(line["name"], line["value"]) for line in content["sweep"]]
    assert found == [("clock_mhz", value) for value in (300, 600, 1200)] + [("channels", 2), ("channels", 4)]
    slow, _, usual, halved, whole = content["sweep"]
    for name in ("time_ms", "speedup_over_baseline", "speedup_over_prior"):
        assert usual[name] == content[name] == pytest.approx(whole[name])
    assert usual["mappings"] == [layer["mapping"] for layer in content["layers"]]
    # The host has no units.
    host_ms = [line["speedup_over_baseline"] * line["time_ms"] for line in (slow, usual)]
    assert host_ms[0] == pytest.approx(host_ms[1])
    assert halved["time_ms"] > content["time_ms"]
    rows = [line.split() for line in output.splitlines() if line.startswith("clock mhz ")]
    assert [row[2] for row in rows] == ["300", "600", "1200"]
    for row, line in zip(rows, content["sweep"][:3], strict=True):
        assert float(row[-3]) == pytest.approx(line["time_ms"], abs=1e-3)
        assert row[-2:] == [f"{line[f'speedup_over_{name}']:.2f}x" for name in ("baseline", "prior")]
    assert halved["time_ms"] == pytest.approx(min(halved["candidates_ms"].values()))


def test_prior_machines_by_name(small):
    content, output = small("--width 64 --priors")
    assert [line["name"] for line in content["priors"]] == ["TensorDIMM", "RecNMP", "GNNear", "G-NMP"]
    for line in content["priors"]:
        assert line["speedup_over_serial"] == pytest.approx(line["serial_ms"] / content["time_ms"])
        assert line["speedup_over_overlapped"] == pytest.approx(line["overlapped_ms"] / content["time_ms"])
        assert f"{line['name']} takes " in output


@pytest.mark.parametrize("model", ["gcn", "sage", "gin"])
def test_whole_models(small, model):
    content, output = small("--width 32 --layers 2 --model", model)
    whole = content["model"]
    assert whole["widths"] == [1433, 32, 7]
    assert max(whole["combine_ms"]) < whole["time_ms"] <= whole["serial_ms"]
    assert f"{model} of widths 1433, 32, 7" in output


def test_a_graph_whose_edges_name_no_node_is_refused(tmp_path):
    path = tmp_path / "bad.npz"
    labels, features = np.zeros(3, dtype=np.int64), np.zeros((3, 2), dtype=np.float32)
    np.savez(path, edges=np.array([[0, 1], [7, 2]]), node_labels=labels, node_features=features)
    result = onehop("simulate ndp --graph", path)
    assert result.exit_code == 2
    assert "7" in result.output
    assert "Traceback" not in result.output


def test_gantt():
    result = onehop("simulate ndp --gantt")
    assert "(e) system-pod, bundles broadcast: 24 ns" in result.output


def test_a_machine_of_ones_own(small, tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text('name = "tiny"\n[topology]\nchannels = 1\ndimms_per_channel = 1\nranks_per_dimm = 2\n')
    content, output = small("--machine", path)
    assert "tiny" in output
    assert set(content["layers"][0]["candidates_ms"]) == {"rank", "dimm"}


def test_a_sample_gives_intervals(ndp):
    arguments = "--graph twin:arxiv-communities --scale 0.2 --mapping rank --layers 2 --retile index"
    sampled, output = ndp(arguments, "--sample 6")
    whole, _ = ndp(arguments, f"--sample {10**6}")
    exact, _ = ndp(arguments)
    assert sampled["sample"] == {"runs": 6, "seed": 0, "confidence": 0.95}
    for name in ("time_ms", "speedup_over_baseline", "speedup_over_prior"):
        assert whole[name] == pytest.approx(exact[name])
        assert whole[f"{name}_low"] == pytest.approx(whole[f"{name}_high"]) == pytest.approx(exact[name])
        assert sampled[f"{name}_low"] < sampled[name] < sampled[f"{name}_high"]
    assert [layer["width"] for layer in sampled["layers"]] == [128, 256]
    assert sampled["layers"][0]["candidates"]["rank"]["simulated"] < 662 / 5
    assert "95 % intervals" in output


def test_a_twin_too_large_to_be_made_is_sampled_by_rows(ndp, monkeypatch):
    monkeypatch.setattr("onehop.datasets.block_model._MOST_PAIRS", 1_000_000)
    arguments = "--graph twin:arxiv-communities --sample 2 --mapping rank"
    content, output = ndp(arguments)
    # A symmetric graph of about so many edges, and self loops.
    assert (content["graph"]["source"], content["graph"]["name"]) == ("twin:arxiv-communities",) * 2
    assert content["graph"]["nodes"] == 169_343
    assert content["graph"]["edges_low"] < 2 * 1_157_799 + 169_343 < content["graph"]["edges_high"]
    assert "about" in output
    refused = onehop("simulate ndp", arguments, "--retile rows")
    assert refused.exit_code == 2
    assert "choose retile='index'" in " ".join(refused.output.split())


@pytest.fixture
def _registered_before():
    with as_before():
        yield


@pytest.mark.usefixtures("_registered_before")
def test_a_mapping_of_a_file(small, tmp_path, monkeypatch):
    how_to = Path(__file__).parents[2] / "docs/howto/add-a-mapping.md"
    code = how_to.read_text().partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    Path("bursts.py").write_text(code)
    own_mapping = "--width 100 --retile index --mapping bursts.py:Bursts"
    content, output = small(own_mapping, "--check full --sweep mapping=channel,bursts.py:Bursts")
    assert [layer["mapping"] for layer in content["layers"]] == ["bursts"]
    assert "bursts, " in output
    assert content["output_errors"]["bursts"] < 1e-4
    channel, own = content["sweep"]
    assert own["value"] == content["layers"][0]["report"]["plan"]["mapping"] == "bursts.py:Bursts"
    assert own["mappings"] == ["bursts"]
    times = content["layers"][0]["candidates_ms"]
    assert own["time_ms"] == pytest.approx(times["bursts"]) == pytest.approx(content["time_ms"])
    assert channel["time_ms"] == pytest.approx(times["channel"])
    sampled, _ = small(own_mapping, "--sample 100")
    assert sampled["time_ms"] == pytest.approx(content["time_ms"], rel=1e-12)


def test_commands_are_a_ranks_feature_reads(small, tmp_path):
    path = tmp_path / "reads.trace"
    content, output = small("--width 64 --mapping dimm --commands", path)
    commands = content["commands"]
    names = [line.split(",")[1] for line in path.read_text().splitlines()[1:]]
    assert names.count("RD") == commands["counts"]["RD"] == commands["bursts"] > 0
    assert "WR" not in names
    # One window: the trace is the whole of what its busiest rank reads.
    assert commands["windows"] == [0]
    found = sources.dataset("twin:cora", lambda *_: None, seed=0, scale=0.3, features=False)
    graph = with_self_loops(Graph.from_edge_index(found.edge_index, num_nodes=found.num_nodes))
    bursts = Machine("grande_16").layers(graph, [64], NdpPlan("dimm"))[0].run.traffic.feature_bursts[0]
    assert (commands["rank"], commands["bursts"]) == (bursts.argmax(), bursts.max())
    told = " ".join(output.split())
    assert (
        f"commands of a sample, the feature reads of rank {commands['rank']} in windows 0 of layer 1" in told
    )
