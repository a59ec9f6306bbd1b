"""``onehop simulate pim``."""

import json
from pathlib import Path

import pytest

from onehop.machines.pim import PimPlan, upmem_v1a
from tests.cli.running import onehop


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    upmem_v1a().with_(name="small", cores=37, ranks=4).save(path)
    return path


@pytest.mark.parametrize("plan", ["tuned", "default", "2x2", "grande", "gnnear", "gnmp", "sparsep"])
def test_every_plan_is_exact_and_writes_the_fixed_keys(
    edge_list: Path, machine: Path, tmp_path: Path, plan: str
) -> None:
    file = tmp_path / "out.json"
    result = onehop(
        "simulate",
        "pim",
        "--graph",
        edge_list,
        "--machine",
        machine,
        "--width",
        12,
        "--plan",
        plan,
        "--json",
        file,
    )
    assert result.exit_code == 0, result.output
    written = json.loads(file.read_text())
    assert written["command"] == "simulate pim"
    assert written["stamp"]["versions"]["torch"]
    assert set(written["phases_ms"]) == {"send", "broadcast", "kernel", "retrieve", "merge"}
    keys = {"total_ms", "bytes", "energy_mj", "utilisation", "mram_bytes_max", "output_max_abs_error"}
    assert keys <= set(written)
    assert {"sp", "ds", "format", "core_balance", "thread_balance", "tasklets"} <= set(written["plan"])
    assert written["output_max_abs_error"] == 0
    assert "utilisation" in result.output


def test_twins_are_scaled(machine: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    arguments = ["--graph", "twin:cora", "--scale", 0.2, "--machine", machine, "--width", 4, "--plan", "1x4"]
    result = onehop("simulate", "pim", *arguments, "--json", file)
    assert result.exit_code == 0, result.output
    graph = json.loads(file.read_text())["graph"]
    assert 400 < graph["nodes"] < 700


def test_seeds_draw_other_twins(machine: Path, tmp_path: Path) -> None:
    file, found = tmp_path / "out.json", []
    arguments = ["--graph", "twin:cora", "--scale", 0.2, "--machine", machine, "--width", 4, "--plan", "1x4"]
    for seed in (0, 0, 1):
        result = onehop("simulate", "pim", *arguments, "--seed", seed, "--json", file)
        assert result.exit_code == 0, result.output
        found.append(json.loads(file.read_text())["core_busy_ms"])
    assert found[0] == found[1] != found[2]


def test_a_machine_may_have_a_base(edge_list: Path, tmp_path: Path) -> None:
    path, file = tmp_path / "mine.toml", tmp_path / "out.json"
    path.write_text('base = "upmem_v1a"\nname = "mine"\ncores = 8\nranks = 2\n')
    arguments = ["--graph", edge_list, "--machine", path, "--width", 4, "--plan", "1x2", "--json", file]
    result = onehop("simulate", "pim", *arguments)
    assert result.exit_code == 0, result.output
    assert json.loads(file.read_text())["machine"] == "mine"


def test_trace_plot_and_host(edge_list: Path, machine: Path, tmp_path: Path) -> None:
    trace, plot, file = tmp_path / "trace.json", tmp_path / "plot.png", tmp_path / "out.json"
    arguments = ["--graph", edge_list, "--machine", machine, "--width", 8, "--plan", "1x4", "--host"]
    result = onehop("simulate", "pim", *arguments, "--trace", trace, "--plot", plot, "--json", file)
    assert result.exit_code == 0, result.output
    assert {event["ph"] for event in json.loads(trace.read_text())["traceEvents"]} == {"X", "M"}
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert json.loads(file.read_text())["host_ms"] > 0


@pytest.mark.parametrize("dtype", ["int8", "float32", "float64"])
@pytest.mark.parametrize("published", [True, False])
def test_dtypes(edge_list: Path, machine: Path, dtype: str, published: bool) -> None:
    flag = ["--published"] if published else []
    arguments = ["--graph", edge_list, "--machine", machine, "--width", 6, "--plan", "1x4", "--dtype", dtype]
    result = onehop("simulate", "pim", *arguments, *flag)
    assert result.exit_code == 0, result.output
    assert dtype in result.output


@pytest.mark.parametrize("model", ["gcn", "gin", "sage"])
def test_models(edge_list: Path, machine: Path, tmp_path: Path, model: str) -> None:
    file = tmp_path / "out.json"
    arguments = ["--graph", edge_list, "--machine", machine, "--width", 8, "--plan", "2x2", "--model", model]
    trace, plot = tmp_path / "t.json", tmp_path / "p.png"
    result = onehop(
        "simulate", "pim", *arguments, "--layers", 3, "--json", file, "--trace", trace, "--plot", plot
    )
    assert result.exit_code == 0, result.output
    written = json.loads(file.read_text())
    assert len(written["layers"]) == 3
    assert written["output_max_abs_error"] < 1e-3
    layers = sum(layer["total_ms"] for layer in written["layers"])
    assert written["total_ms"] == pytest.approx(written["host_ms"] + layers)
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert sum(event["name"] == "retrieve" for event in events) == 3
    assert max(event["ts"] + event["dur"] for event in events) == pytest.approx(1e3 * layers)
    assert plot.exists()


def test_sweep(edge_list: Path, machine: Path, tmp_path: Path) -> None:
    file, plot = tmp_path / "out.json", tmp_path / "p.png"
    arguments = ["--graph", edge_list, "--machine", machine, "--width", 8, "--plan", "default"]
    sweeps = ["--sweep", "cores=9:37", "--sweep", "clock_mhz=175,350", "--sweep", "mram_bytes=64"]
    result = onehop("simulate", "pim", *arguments, *sweeps, "--json", file, "--plot", plot)
    assert result.exit_code == 0, result.output
    entries = json.loads(file.read_text())["sweep"]
    assert [(e["name"], e["value"]) for e in entries] == [
        ("cores", 9),
        ("cores", 18),
        ("cores", 36),
        ("cores", 37),
        ("clock_mhz", 175),
        ("clock_mhz", 350),
        ("mram_bytes", 64),
    ]
    assert "core" in entries[-1]["error"]
    table = [" ".join(line.split()) for line in result.output.splitlines()]
    for entry in entries[:-1]:
        shown = f"{entry['name'].replace('_', ' ')} {entry['value']:g} {entry['total_ms']:.4g}"
        assert any(line.startswith(shown) for line in table)
    assert "mram bytes 64 does not fit" in table
    assert entries[5]["phases_ms"]["kernel"] < entries[4]["phases_ms"]["kernel"]
    assert plot.exists()


def test_plan_from_a_file(edge_list: Path, machine: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(PimPlan(sp=4, ds=1, format="coo").to_json())
    result = onehop(
        "simulate", "pim", "--graph", edge_list, "--machine", machine, "--plan", plan, "--width", 4
    )
    assert result.exit_code == 0, result.output
    assert "4x1, coo" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plan", "3x5"], "cannot be placed"),
        (["--plan", "fast"], "plan: expected tuned"),
        (["--machine", "upmem_v9"], "no preset"),
        (["--dtype", "int4"], "dtype: expected"),
        (["--model", "gat"], "model: expected"),
        (["--scale", "0.5"], "only twins"),
        (["--layers", "3"], "without a model is one aggregation"),
        (["--seed", "-1"], "--seed"),
        (["--sweep", "kores=1:2"], "NAME of cores"),
        (["--sweep", "cores=2:1"], "0 < A <= B"),
        (["--sweep", "cores"], "sweep: expected"),
        (["--sweep", "cores=1:2", "--model", "gcn"], "give one of them"),
        (["--sweep", "cores=1:2", "--trace", "t.json"], "no timeline"),
        (["--sweep", "clock_mhz=350,0"], "clock_mhz: expected a positive number"),
        (["--host", "--model", "gcn"], "beside one aggregation"),
        (["--plan", "."], "plan: expected tuned"),
        (["--published", "--plan", "default"], "leave one of them away"),
    ],
)
def test_bad_requests_are_one_sentence(edge_list: Path, arguments: list[str], message: str) -> None:
    result = onehop("simulate", "pim", "--graph", edge_list, "--width", 8, *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_plan_file_is_not_silently_preferred_to_published(edge_list: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(PimPlan(sp=4).to_json())
    result = onehop("simulate", "pim", "--graph", edge_list, "--published", "--plan", plan)
    assert result.exit_code == 2
    assert "published: the plan" in result.output


def test_machine_with_an_unknown_key(edge_list: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(upmem_v1a().to_toml().replace("clock_mhz", "clock_ghz"))
    result = onehop("simulate", "pim", "--graph", edge_list, "--machine", path)
    assert result.exit_code == 2
    assert "unknown key clock_ghz" in result.output


def test_a_matrix_that_does_not_fit_names_a_plan(edge_list: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    upmem_v1a().with_(name="tiny", cores=4, ranks=4, mram_bytes=1200).save(path)
    result = onehop(
        "simulate", "pim", "--graph", edge_list, "--machine", path, "--plan", "1x4", "--width", 32
    )
    assert result.exit_code == 2
    assert "bytes of MRAM and has 1200" in result.output
    assert "This plan fits" in result.output
