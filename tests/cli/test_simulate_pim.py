"""``onehop simulate pim``."""

import json
from functools import partial

import pytest

from onehop.machines.pim import PimPlan, upmem_v1a
from tests.cli.running import onehop, written


@pytest.fixture
def small(tmp_path):
    """A machine file."""
    path = tmp_path / "small.toml"
    upmem_v1a().with_(name="small", cores=37, ranks=4).save(path)
    return path


@pytest.fixture
def pim(tmp_path):
    """Runs ``simulate pim``; returns its JSON and what it prints."""
    return partial(written, tmp_path / "out.json", "simulate pim")


@pytest.fixture
def pim_small(pim, edge_list, small):
    """The same with a small graph and machine."""
    return partial(pim, "--graph", edge_list, "--machine", small)


@pytest.mark.parametrize("plan", ["tuned", "default", "2x2", "grande", "gnnear", "gnmp", "sparsep"])
def test_every_plan_is_exact_and_writes_the_fixed_keys(pim_small, plan):
    document, output = pim_small("--width 12 --plan", plan)
    assert document["command"] == "simulate pim"
    assert document["stamp"]["versions"]["torch"]
    assert set(document["phases_ms"]) == {"send", "broadcast", "kernel", "retrieve", "merge"}
    keys = {"total_ms", "bytes", "energy_mj", "utilisation", "mram_bytes_max", "output_max_abs_error"}
    assert keys <= set(document)
    assert {"sp", "ds", "format", "core_balance", "thread_balance", "tasklets"} <= set(document["plan"])
    assert document["output_max_abs_error"] == 0
    assert "utilisation" in output


def test_twins_are_scaled_and_seeds_draw_others(pim, small):
    arguments = ("--graph twin:cora --scale 0.2 --width 4 --plan 1x4 --machine", small)
    found = [pim(*arguments, f"--seed {seed}")[0] for seed in (0, 0, 1)]
    assert 400 < found[0]["graph"]["nodes"] < 700
    busy = [each["core_busy_ms"] for each in found]
    assert busy[0] == busy[1] != busy[2]


def test_a_machine_may_have_a_base(pim, edge_list, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "upmem_v1a"\nname = "mine"\ncores = 8\nranks = 2\n')
    document, _ = pim("--width 4 --plan 1x2 --graph", edge_list, "--machine", path)
    assert document["machine"] == "mine"


def test_trace_plot_and_host(pim_small, tmp_path):
    trace, plot = tmp_path / "trace.json", tmp_path / "plot.png"
    document, _ = pim_small("--width 8 --plan 1x4 --host --trace", trace, "--plot", plot)
    assert {event["ph"] for event in json.loads(trace.read_text())["traceEvents"]} == {"X", "M"}
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert document["host_ms"] > 0


@pytest.mark.parametrize("dtype", ["int8", "float32", "float64"])
@pytest.mark.parametrize("published", ["--published", ""])
def test_dtypes(pim_small, dtype, published):
    assert dtype in pim_small("--width 6 --plan 1x4 --dtype", dtype, published)[1]


@pytest.mark.parametrize("model", ["gcn", "gin", "sage"])
def test_models(pim_small, tmp_path, model):
    trace, plot = tmp_path / "t.json", tmp_path / "p.png"
    arguments = ("--width 8 --plan 2x2 --layers 3 --model", model, "--trace", trace, "--plot", plot)
    document, _ = pim_small(*arguments)
    assert len(document["layers"]) == 3
    assert document["output_max_abs_error"] < 1e-3
    layers = sum(layer["total_ms"] for layer in document["layers"])
    assert document["total_ms"] == pytest.approx(document["host_ms"] + layers)
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert sum(event["name"] == "retrieve" for event in events) == 3
    assert max(event["ts"] + event["dur"] for event in events) == pytest.approx(1e3 * layers)
    assert plot.exists()


def test_sweep(pim_small, tmp_path):
    plot = tmp_path / "p.png"
    sweeps = "--sweep cores=9:37 --sweep clock_mhz=175,350 --sweep mram_bytes=64"
    document, output = pim_small("--width 8 --plan default", sweeps, "--plot", plot)
    lines = document["sweep"]
    values = {"cores": (9, 18, 36, 37), "clock_mhz": (175, 350), "mram_bytes": (64,)}
    assert [(line["name"], line["value"]) for line in lines] == [
        (name, value) for name, each in values.items() for value in each
    ]
    assert "core" in lines[-1]["error"]
    table = [" ".join(line.split()) for line in output.splitlines()]
    for line in lines[:-1]:
        shown = f"{line['name'].replace('_', ' ')} {line['value']:g} {line['total_ms']:.4g}"
        assert any(each.startswith(shown) for each in table)
    assert "mram bytes 64 does not fit" in table
    assert lines[5]["phases_ms"]["kernel"] < lines[4]["phases_ms"]["kernel"]
    assert plot.exists()


def test_plan_from_a_file(pim_small, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text(PimPlan(sp=4, ds=1, format="coo").to_json())
    assert "4x1, coo" in pim_small("--width 4 --plan", plan)[1]


def test_a_machine_file_with_an_unknown_key_and_a_matrix_that_does_not_fit(edge_list, tmp_path):
    bad, tiny = tmp_path / "bad.toml", tmp_path / "tiny.toml"
    bad.write_text(upmem_v1a().to_toml().replace("clock_mhz", "clock_ghz"))
    upmem_v1a().with_(name="tiny", cores=4, ranks=4, mram_bytes=1200).save(tiny)
    for path, sentences in (
        (bad, ["unknown key clock_ghz"]),
        (tiny, ["bytes of MRAM and has 1200", "This plan fits"]),
    ):
        result = onehop("simulate pim --plan 1x4 --width 32 --graph", edge_list, "--machine", path)
        assert result.exit_code == 2
        assert all(sentence in result.output for sentence in sentences)
