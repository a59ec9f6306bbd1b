import json

import pytest
import torch

from onehop.bench import sources
from onehop.kernels.triton import availability
from onehop.plans import gpu_tuned, tuned
from tests.cli.running import onehop, written


@pytest.fixture(autouse=True)
def table(own_cache):
    tuned.forget()
    gpu_tuned.forget()
    yield
    tuned.forget()
    gpu_tuned.forget()


def test_tune_prints_the_curve_and_writes_it(tmp_path, edge_list, monkeypatch):
    monkeypatch.setattr("onehop.tuner.cpu._timed", lambda call, plan: 1e-3)
    plot = tmp_path / "curve.png"
    arguments = ("--widths 8:32 --budget 600 --threads 1 --plot", plot)
    document, output = written(tmp_path / "curve.json", "tune --graph", edge_list, *arguments)
    assert "over default" in output
    assert "width 16, backward" in output
    assert "Most columns a second on this machine: width" in output
    assert [point["width"] for point in document["curve"]] == [8, 16, 32]
    assert document["curve"][0]["tuned_s"] > 0
    assert plot.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_forward_alone(edge_list, tmp_path):
    arguments = "--widths 8 --no-backward --budget 0.5"
    document, _ = written(tmp_path / "found.json", "tune --graph", edge_list, arguments)
    assert [entry["case"]["transposed"] for entry in document["entries"]] == [False]


def test_kernels_are_generated_on_request(edge_list, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # where no compiler is
    monkeypatch.delenv("CXX", raising=False)
    arguments = ("tune --widths 8 --no-backward --budget 1 --graph", edge_list)
    told = "no kernel was generated: no C++ compiler was found"
    assert told in " ".join(onehop(*arguments, "--codegen").stdout.split())
    assert "kernel was generated" not in onehop(*arguments, "--again").stdout


@pytest.mark.skipif(availability.not_installed() is not None, reason="no triton for them")
def test_gpu_plans_are_tuned_on_request(edge_list, tmp_path, monkeypatch):
    monkeypatch.setattr("onehop.tuner.gpu.target.seconds_of", lambda call, plan, device: 1e-3)
    monkeypatch.setattr("onehop.tuner.gpu.target.GpuTactics._runs", lambda self, call, plan: True)
    arguments = "--widths 8 --op gatv2 --budget 60 --device cuda --heads 2"
    document, output = written(tmp_path / "found.json", "tune --graph", edge_list, arguments)
    assert "GPU: Triton's interpreter, triton" in output
    cases = [entry["case"] for entry in document["entries"]]
    assert [(case["operation"], case["heads"]) for case in cases] == [("gatv2", 2), ("gatv2_grad", 2)]


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
        *("tune --widths 8:32 --no-backward --budget 60 --graph", edge_list),
        *("--json", path, "--plot", tmp_path / "curve.png"),
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
    result = onehop("tune --widths 8 --graph", edge_list, "--plot", tmp_path / "curve.png")
    assert result.exit_code == 130
    assert "no plan was confirmed, the default plans are used" in result.stderr
    assert not (tmp_path / "curve.png").exists()


def test_ctrl_c_in_any_verb_ends_as_interrupted(edge_list, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("onehop.bench.sources.structure", interrupted)
    result = onehop("tune --graph", edge_list)
    assert result.exit_code == 130
    assert result.stderr.endswith("onehop: interrupted.\n")
