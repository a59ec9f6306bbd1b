import json

import pytest
import torch

from onehop.bench import sources
from onehop.kernels.triton import availability
from onehop.plans import gpu_tuned, tuned
from tests.cli.running import onehop


@pytest.fixture(autouse=True)
def table(own_cache):
    tuned.forget()
    gpu_tuned.forget()
    yield
    tuned.forget()
    gpu_tuned.forget()


def test_tune_prints_the_curve_and_writes_it(tmp_path, edge_list, monkeypatch):
    monkeypatch.setattr("onehop.tuner.cpu._timed", lambda call, plan: 1e-3)
    path, plot = tmp_path / "curve.json", tmp_path / "curve.png"
    result = onehop(
        *("tune", "--graph", edge_list, "--widths", "8:32", "--budget", 600, "--threads", 1),
        *("--json", path, "--plot", plot),
    )
    assert result.exit_code == 0
    assert "over default" in result.stdout
    assert "width 16, backward" in result.stdout
    assert "Most columns a second on this machine: width" in result.stdout
    document = json.loads(path.read_text())
    assert [point["width"] for point in document["curve"]] == [8, 16, 32]
    assert document["curve"][0]["tuned_s"] > 0
    assert plot.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_forward_alone(edge_list, tmp_path):
    path = tmp_path / "found.json"
    onehop("tune", "--graph", edge_list, "--widths", "8", "--no-backward", "--budget", 0.5, "--json", path)
    assert [e["case"]["transposed"] for e in json.loads(path.read_text())["entries"]] == [False]


def test_kernels_are_generated_on_request(edge_list, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # where no compiler is
    monkeypatch.delenv("CXX", raising=False)
    arguments = ("tune", "--graph", edge_list, "--widths", "8", "--no-backward", "--budget", 1)
    told = "no kernel was generated: no C++ compiler was found"
    assert told in " ".join(onehop(*arguments, "--codegen").stdout.split())
    assert "kernel was generated" not in onehop(*arguments, "--again").stdout


@pytest.mark.skipif(availability.not_installed() is not None, reason="no triton for them")
def test_gpu_plans_are_tuned_on_request(edge_list, tmp_path, monkeypatch):
    monkeypatch.setattr("onehop.tuner.gpu.target.seconds_of", lambda call, plan, device: 1e-3)
    monkeypatch.setattr("onehop.tuner.gpu.target.GpuTactics._runs", lambda self, call, plan: True)
    path = tmp_path / "found.json"
    arguments = ("--graph", edge_list, "--widths", "8", "--op", "gatv2", "--budget", 60)
    result = onehop("tune", *arguments, "--device", "cuda", "--heads", 2, "--json", path)
    assert result.exit_code == 0
    assert "GPU: Triton's interpreter, triton" in result.stdout
    cases = [entry["case"] for entry in json.loads(path.read_text())["entries"]]
    assert [(case["operation"], case["heads"]) for case in cases] == [("gatv2", 2), ("gatv2_grad", 2)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--widths", "32:8"), "widths: expected FROM:TO with 1 <= FROM <= TO"),
        (("--widths", "0"), "widths: expected numbers of at least 1"),
        (("--budget", "0"), "budget_s: expected more than 0 seconds"),
        (("--reduce", "median"), "reduce: expected one of"),
        (("--op", "product"), "op: expected one of"),
    ],
)
def test_mistakes_are_sentences(edge_list, arguments, message):
    result = onehop("tune", "--graph", edge_list, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_ctrl_c_says_what_was_confirmed_and_ends_as_interrupted(tmp_path, edge_list, monkeypatch):
    seen = []

    def timed(call, plan):
        seen.append(plan)
        if tuned.known(first) is not None:
            raise KeyboardInterrupt
        return 1e-3

    graph = sources.structure(str(edge_list)).graph
    first = tuned.case_of(graph, "sum", False, 8, torch.float32)
    monkeypatch.setattr("onehop.tuner.cpu._timed", timed)
    path = tmp_path / "found.json"
    result = onehop(
        *("tune", "--graph", edge_list, "--widths", "8:32", "--no-backward", "--budget", 60, "--json", path),
        *("--plot", tmp_path / "curve.png"),
    )
    assert result.exit_code == 130
    assert "interrupted; 1 plan was confirmed and is kept. Tune again to continue." in result.stderr
    assert "width 8, forward: " in result.stdout
    assert [entry["case"]["width"] for entry in json.loads(path.read_text())["entries"]] == [8]
    assert (tmp_path / "curve.png").exists()


def test_ctrl_c_before_anything_was_confirmed_says_so(tmp_path, edge_list, monkeypatch):
    def timed(call, plan):
        raise KeyboardInterrupt

    monkeypatch.setattr("onehop.tuner.cpu._timed", timed)
    result = onehop("tune", "--graph", edge_list, "--widths", "8", "--plot", tmp_path / "curve.png")
    assert result.exit_code == 130
    assert "no plan was confirmed, the default plans are used" in result.stderr
    assert not (tmp_path / "curve.png").exists()


def test_ctrl_c_in_any_verb_ends_as_interrupted(edge_list, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("onehop.bench.sources.structure", interrupted)
    result = onehop("tune", "--graph", edge_list)
    assert result.exit_code == 130
    assert result.stderr.endswith("onehop: interrupted.\n")
