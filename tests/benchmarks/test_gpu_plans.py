"""The option ``--plans`` of the GPU benchmark, small and interpreted; nothing here is about speed."""

import dataclasses
import json

import pytest
import torch

from benchmarks.gpu import options, plans
from benchmarks.gpu.correctness import Verdict
from benchmarks.gpu.graphs import graph_of
from benchmarks.gpu.grid import Case
from onehop import ArgumentError
from onehop.kernels.triton import availability
from onehop.plans import gpu_tuned
from onehop.tuner.gpu import candidates

CPU = torch.device("cpu")
SMALL = ("--graphs", "cora", "--scale", "0.0025", "--operators", "sum", "--dtypes", "float32", "--hub", "10")
needs_triton = pytest.mark.skipif(
    availability.not_installed() is not None, reason="there is no triton to interpret the kernels"
)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The check of results has tests of its own; a size and few candidates are enough."""
    monkeypatch.setattr(options, "judge_all", lambda *_: [Verdict("sum", "float32", "output", 0.0, 1.0)])
    monkeypatch.setattr(plans, "_SIZES", ((2, 4),))
    monkeypatch.setattr(plans, "_ROUNDS", 1)
    monkeypatch.setattr(candidates, "axes", lambda *_: {"num_warps": (2, 4)})
    yield
    gpu_tuned.forget()


@needs_triton
def test_plans_are_compared_with_the_default(tmp_path, monkeypatch, own_cache, capsys):
    def seconds(call, plan, device):
        return 1e-3 if plan.num_warps == 4 else 1.5e-3

    monkeypatch.setattr("onehop.tuner.gpu.target.seconds_of", seconds)
    monkeypatch.setattr(plans, "seconds_of", seconds)
    assert plans.main(["--out", str(tmp_path), "--budget", "1e6", *SMALL]) == 0
    found = json.loads((tmp_path / "gpu-plans.json").read_text())
    names = {"default", "by feature", "tuned", "degree", "rcm", "community", "by feature, rcm"}
    for transposed in (False, True):
        cases = {case["name"]: case for case in found["cases"] if case["transposed"] == transposed}
        assert set(cases) >= names
        assert cases["tuned"]["gain"] == pytest.approx(1.5)
        assert cases["default"]["gain"] == cases["rcm"]["gain"] == 1
        assert cases["rcm"]["plan"]["ordering"] == "rcm"
        assert cases["rcm"]["payback_runs"] is None
        assert (cases["default"]["order_s"], cases["rcm"]["order_s"] > 0) == (0, True)
    assert found["gpu"]["gpu"] == "Triton's interpreter"
    assert "0 of 2 default plans are within 20% of the tuned" in (tmp_path / "gpu-plans.md").read_text()
    assert "| cora sum float32 2x4 | sum transposed | tuned | 1 | 1.50 | 0 |  |" in capsys.readouterr().out
    assert not own_cache.exists(), "a benchmark leaves no plans behind"


@needs_triton
def test_names_what_there_was_no_time_for(tmp_path, capsys):
    assert plans.main(["--out", str(tmp_path), "--minutes", "0", *SMALL]) == 0
    found = json.loads((tmp_path / "gpu-plans.json").read_text())
    assert found["cases"] == []
    assert found["left_out"] == ["cora sum float32 2x4"]
    assert "out of time" in capsys.readouterr().out


@needs_triton
def test_wrong_results_are_not_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(options, "judge_all", lambda *_: [Verdict("sum", "float32", "output", 2.0, 1.0)])
    assert plans.main(["--out", str(tmp_path), *SMALL]) == 1
    assert not (tmp_path / "gpu-plans.json").exists()


def figures(name, seconds, order_s=0.0):
    case = dataclasses.asdict(Case("g", "sum", "float32", 1, 64))
    about = {"case": case, "operation": "sum", "transposed": False}
    return about | plans.figures_of(name, seconds, 2.0, order_s)


def test_gains_and_payback():
    rcm = figures("rcm", 0.5, 3.0)
    assert (rcm["gain"], rcm["payback_runs"]) == (4.0, 2.0)
    assert figures("rcm", 2.5, 3.0)["payback_runs"] is None
    told = plans.table(
        [figures("tuned", seconds) for seconds in (2.0, 1.8, 1.0)] + [figures("rcm", 4.0, 3.0)]
    )
    assert "2 of 3 default plans are within 20% of the tuned; geometric mean 1.30, worst 2.00." in told
    assert "| g sum float32 1x64 | sum | rcm | 4e+03 | 0.50 | 3 | never |" in told


def test_graphs_are_random_or_twins():
    assert graph_of("cora", CPU, 0.1).num_dst == 271
    assert graph_of("twin:arxiv-communities", CPU, 0.01).num_edges > 1000
    with pytest.raises(ArgumentError, match="expected some of"):
        graph_of("nowhere", CPU)
