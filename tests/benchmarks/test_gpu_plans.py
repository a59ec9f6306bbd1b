"""The parts "tuned" and "orders" of the GPU benchmark, small and interpreted; nothing here is about speed."""

import importlib.util
import json

import pytest
import torch

from benchmarks.gpu import options, order_study, plans_run, tuned_plans
from benchmarks.gpu.correctness import Verdict
from benchmarks.gpu.graphs import graph_of
from benchmarks.gpu.order_study import OrderFigures
from benchmarks.gpu.tuned_plans import TunedFigures
from onehop import ArgumentError
from onehop.kernels.triton import availability
from onehop.plans import TritonPlan, gpu_tuned
from onehop.plans.cases import GpuCase
from onehop.plans.entry import Tuned
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
    monkeypatch.setattr(plans_run, "_SIZES", ((2, 4),))
    monkeypatch.setattr(order_study, "_ROUNDS", 1)
    monkeypatch.setattr(candidates, "axes", lambda *_: {"num_warps": (2, 4)})
    yield
    gpu_tuned.forget()


@needs_triton
def test_tuned_plans_are_compared_with_the_default(tmp_path, monkeypatch, own_cache, capsys):
    monkeypatch.setattr(
        "onehop.tuner.gpu.run.seconds_of",
        lambda call, plan, device: 1e-3 if plan.num_warps == 4 else 1.5e-3,
    )
    assert plans_run.main("tuned", ["--out", str(tmp_path), "--budget", "1e6", *SMALL]) == 0
    found = json.loads((tmp_path / "gpu-tuned.json").read_text())
    assert [case["case"]["transposed"] for case in found["cases"]] == [False, True]
    assert [case["behind"] for case in found["cases"]] == [pytest.approx(1.5)] * 2
    assert found["gpu"]["gpu"] == "Triton's interpreter"
    assert "0 of 2 default plans are within 20% of the tuned" in (tmp_path / "gpu-tuned.md").read_text()
    assert "| cora | sum transposed | float32 | 8 | 1 | 1.5 | 1 | 1.50 |" in capsys.readouterr().out
    assert not own_cache.exists(), "a benchmark leaves no plans behind"


@needs_triton
def test_orders_are_studied_for_both_mappings(tmp_path):
    assert plans_run.main("orders", ["--out", str(tmp_path), *SMALL]) == 0
    cases = json.loads((tmp_path / "gpu-orders.json").read_text())["cases"]
    studied = {(case["mapping"], case["ordering"]) for case in cases}
    assert studied >= {
        (m, o) for m in ("neighbour", "feature") for o in ("none", "degree", "rcm", "community")
    }
    for case in cases:
        assert case["gain"] == pytest.approx(case["none_s"] / case["seconds"])
        if case["ordering"] == "none":
            assert (case["gain"], case["payback_runs"], case["order_s"]) == (1, None, 0)


@needs_triton
@pytest.mark.parametrize("part", plans_run.PARTS)
def test_names_what_there_was_no_time_for(part, tmp_path, capsys):
    assert plans_run.main(part, ["--out", str(tmp_path), "--minutes", "0", *SMALL]) == 0
    found = json.loads((tmp_path / f"gpu-{part}.json").read_text())
    assert found["cases"] == []
    assert found["left_out"] == ["cora sum torch.float32 2x4"]
    assert "out of time" in capsys.readouterr().out


@needs_triton
def test_wrong_results_are_not_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(options, "judge_all", lambda *_: [Verdict("sum", "float32", "output", 2.0, 1.0)])
    assert plans_run.main("tuned", ["--out", str(tmp_path), *SMALL]) == 1
    assert not (tmp_path / "gpu-tuned.json").exists()


def test_says_where_the_kernels_cannot_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert plans_run.main("orders", ["--out", str(tmp_path)]) == 2
    assert "triton needs triton, which is not installed" in capsys.readouterr().out


def order(mapping, ordering, seconds, graph="g"):
    return OrderFigures(graph, "sum", "float32", 1, 64, mapping, ordering, seconds, 2.0, 3.0)


def test_gains_and_payback():
    assert (order("feature", "rcm", 0.5).gain, order("feature", "rcm", 0.5).payback_runs) == (4.0, 2.0)
    assert order("feature", "rcm", 2.5).payback_runs is None
    figures = [
        order("neighbour", "none", 2.0),
        order("neighbour", "rcm", 1.0),
        order("neighbour", "degree", 4.0),
        order("neighbour", "rcm", 4.0, graph="h"),
    ]
    assert order_study.best_gains(figures, "neighbour") == [2.0, 0.5]
    assert order_study.best_gains(figures, "feature") == []
    told = order_study.table(figures)
    assert "neighbour: the best order makes it 1.00 times faster in the geometric mean of 2 cases" in told
    assert "| neighbour | degree | 4e+03 | 0.50 | 3 | never |" in told


def test_defaults_are_held_against_the_goal():
    case = GpuCase("8x8 edges 16 degrees 1-2-4 span 0.25", "sum", False, 64, 1, "float32", "a GPU")
    figures = [
        TunedFigures("g", Tuned(case, TritonPlan(), None, 1.0, default_s)) for default_s in (1.0, 1.2, 2.0)
    ]
    told = tuned_plans.table([*figures, TunedFigures("g", Tuned(case, TritonPlan(), None))])
    assert "2 of 3 default plans are within 20% of the tuned; geometric mean 1.34, worst 2.00." in told


def test_graphs_are_random_or_twins():
    assert graph_of("cora", CPU, 0.1).num_dst == 271
    assert graph_of("twin:arxiv-communities", CPU, 0.01).num_edges > 1000
    with pytest.raises(ArgumentError, match="expected some of"):
        graph_of("nowhere", CPU)
