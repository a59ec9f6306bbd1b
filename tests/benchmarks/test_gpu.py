"""The GPU benchmark, small and interpreted: that it runs and writes down what it found, not how fast."""

import contextlib
import dataclasses
import importlib.util
import io
import itertools
import json

import pytest
import torch

from benchmarks.gpu import dgl_calls, plans
from benchmarks.gpu.correctness import Verdict
from benchmarks.gpu.floors import (
    AttentionShape,
    Shape,
    attention_floor,
    attention_grad_floor,
    extremum_floor,
    extremum_grad_floor,
    sum_floor,
)
from benchmarks.gpu.graphs import GRAPHS, edge_index_of
from benchmarks.gpu.grid import Case, grid
from benchmarks.gpu.operators import OPERATORS, Size
from benchmarks.gpu.report import floor_share, memory_ratio, speedup, table
from benchmarks.gpu.run import main
from benchmarks.gpu.sampled import judge_part, part_of
from onehop import ArgumentError
from onehop.kernels.triton import availability
from onehop.reproduce import on_a_gpu

# A check that the interpreter is done with in a few seconds.
SHORT = ("--dtypes", "float32", "--hub", "10")
WHOLE = ("--graphs", "cora", "--scale", "0.0025", "--operators", "sum", *SHORT)
CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("interpreter")
needs_triton = pytest.mark.skipif(
    availability.not_installed() is not None, reason="there is no triton to interpret the kernels"
)


@pytest.mark.parametrize("name", ["twitch-views", "ogbn-arxiv", "city-roads-L"])
def test_the_longest_row_is_about_as_long_as_expected(name):
    edge_index, nodes = edge_index_of(name, CPU, 0.02)
    degree = torch.bincount(edge_index[1], minlength=nodes)
    assert int(degree.max()) == pytest.approx(GRAPHS[name].scaled(0.02).longest_row, rel=0.15)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, interpreter):
    """A folder in which one run of the benchmark has been finished."""
    folder = tmp_path_factory.mktemp("whole")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["--out", str(folder), *WHOLE]) == 0
    (folder / "said").write_text(said.getvalue())
    return folder


@needs_triton
def test_checks_then_measures(whole):
    found = json.loads((whole / "gpu.json").read_text())
    assert found["correctness"]
    assert all(verdict["passes"] for verdict in found["correctness"])
    assert [(case["graph"], case["width"]) for case in found["cases"]] == [
        ("cora", width) for width in (64, 256, 128, 512)
    ]
    peers = {peer["peer"]: peer for peer in found["cases"][0]["peers"]}
    assert {"onehop", "gather-scatter", "torch-csr", "torch-csr-kept", "dgl", "turbo_gnn"} <= set(peers)
    assert not [peer["failed"] for peer in peers.values() if peer["failed"]]
    assert "turbo_gnn cannot be imported" in peers["turbo_gnn"]["absent"]
    assert peers["onehop"]["forward_and_backward"]["median_s"] > 0
    table = (whole / "gpu.md").read_text()
    assert "| cora | sum | float32 | 1 x 64 |" in table
    assert "turbo_gnn (absent)" in table
    assert (whole / "gpu.png").stat().st_size > 1000
    assert "are right" in (whole / "said").read_text()


@needs_triton
def test_its_results_become_rows_of_the_reproduction(whole):
    rows = {row.figure: row for row in on_a_gpu(whole / "gpu.json").rows}
    cached = rows["cached sparse products over DGL, best"]
    if dgl_calls.missing() is None:
        assert cached.ours > 0
        assert "4 cases of sum" in cached.note
    else:
        assert cached.ours is None
        assert "has no case of sum with DGL: dgl cannot be imported" in cached.note
    assert "has no case of gatv2 with DGL." in rows["GATv2 over DGL, best"].note


@needs_triton
def test_goes_on_where_an_earlier_run_stopped(whole, tmp_path, monkeypatch):
    whole = json.loads((whole / "gpu.json").read_text())
    kept = {**whole, "cases": whole["cases"][:2], "left_out": ["..."]}
    (tmp_path / "gpu.json").write_text(json.dumps(kept))
    measured = []
    monkeypatch.setattr("benchmarks.gpu.run.measure", lambda *args: measured.append(args[2].width) or ())
    assert main(["--out", str(tmp_path), *WHOLE, "--resume"]) == 0
    assert measured == [128, 512]
    resumed = json.loads((tmp_path / "gpu.json").read_text())
    assert resumed["cases"][:2] == whole["cases"][:2]
    assert [case["width"] for case in resumed["cases"]] == [64, 256, 128, 512]
    assert resumed["left_out"] == []


@needs_triton
def test_a_case_that_is_wrong_on_its_own_graph_is_not_timed(tmp_path, monkeypatch, capsys):
    """The check on a small graph passes; that of the case itself fails."""
    right = OPERATORS["sum"]
    worse = dataclasses.replace(
        right, ours=lambda graph, t: right.ours(graph, t) * (1.001 if graph.num_dst > 24 else 1)
    )
    monkeypatch.setitem(OPERATORS, "sum", worse)
    options = ["--graphs", "cora", "--scale", "0.01", "--operators", "sum", *SHORT]
    assert main(["--out", str(tmp_path), *options]) == 1
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert all(case["wrong"] and not case["peers"] for case in found["cases"])
    assert "wrong: cora sum float32 1x64, output: error" in capsys.readouterr().out


def test_a_part_has_the_longest_row_that_fits_and_all_edges_of_its_rows():
    edge_index, nodes = edge_index_of("ogbn-arxiv", CPU, scale=0.002)
    degree = torch.bincount(edge_index[1], minlength=nodes)
    part = part_of(edge_index, nodes, rows=20, most_edges=2 * int(degree.max()))
    assert int(degree.argmax()) in part.rows
    assert len(part.rows) > 3
    chosen = torch.isin(edge_index[1], part.rows)
    assert torch.equal(part.edges, chosen.nonzero().view(-1))
    assert torch.equal(part.nodes[part.edge_index], edge_index[:, part.edges])
    assert torch.equal(part.nodes[part.places], part.rows)
    small = part_of(edge_index, nodes, rows=20, most_edges=10)
    assert 0 < small.edges.numel() <= 10


@pytest.mark.parametrize("name", ["sum", "weighted-sum", "mean", "max", "gat", "gatv2", "attention"])
def test_a_part_is_judged_as_the_whole_would_be(name):
    """The naive form in place of onehop: right; and wrong where one edge too many is among them."""
    operator = OPERATORS[name]
    edge_index, nodes = edge_index_of("cora", CPU, scale=0.02)
    part = part_of(edge_index, nodes, rows=12)
    size = Size(nodes, edge_index.size(1), 2, 3)
    inputs = operator.inputs(size, torch.float32, CPU)
    verdicts = judge_part(operator, operator.naive(edge_index, nodes, inputs), inputs, part, "float32")
    assert {verdict.of for verdict in verdicts} == {"output", *inputs}
    assert all(verdict.passes for verdict in verdicts)
    wrong = edge_index.clone()
    wrong[0, part.edges[0]] = (wrong[0, part.edges[0]] + 1) % nodes
    verdicts = judge_part(operator, operator.naive(wrong, nodes, inputs), inputs, part, "float32")
    assert not all(verdict.passes for verdict in verdicts)


@needs_triton
def test_names_what_there_was_no_time_for(tmp_path):
    options = ["--graphs", "cora", "--operators", "max", "--minutes", "0", *SHORT]
    assert main(["--out", str(tmp_path), *options]) == 0
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["cases"] == []
    assert found["left_out"] == [f"cora max float32 1x{width}" for width in (64, 256, 128, 512)]


@pytest.mark.parametrize("program", [main, plans.main], ids=["measures", "plans"])
def test_says_where_the_kernels_cannot_run(program, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert program(["--out", str(tmp_path)]) == 2
    assert "triton needs triton, which is not installed" in capsys.readouterr().out


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_have_their_sizes_and_both_directions(name):
    edge_index, nodes = edge_index_of(name, CPU, scale=0.001)
    assert nodes == max(round(GRAPHS[name].nodes * 0.001), 2)
    assert edge_index.size(1) == pytest.approx(GRAPHS[name].edges * 0.001, abs=2)
    assert 0 <= int(edge_index.min()) <= int(edge_index.max()) < nodes
    source, target = edge_index
    assert torch.equal((source * nodes + target).sort().values, (target * nodes + source).sort().values)


def test_an_unknown_graph_is_named():
    with pytest.raises(ArgumentError, match="got 'reddit'"):
        edge_index_of("reddit", CPU)


def test_an_error_that_is_nan_does_not_pass():
    assert not Verdict("sum", "float32", "x", float("nan"), 1.0).passes


def test_a_table_of_known_figures():
    times = {"onehop": (1.0, 2.0, 100), "gather-scatter": (4.0, 6.0, 1000), "other": (3.0, 5.0, 10)}
    nothing = dict.fromkeys(("forward", "forward_and_backward", "peak_bytes", "failed", "absent"))
    peers = [
        {
            **nothing,
            "peer": name,
            "forward": {"median_s": forward},
            "forward_and_backward": {"median_s": both},
            "peak_bytes": peak,
        }
        for name, (forward, both, peak) in times.items()
    ]
    peers += [
        {**nothing, "peer": "large", "failed": "runs out of memory"},
        {**nothing, "peer": "another", "absent": "not installed"},
    ]
    floors = {
        "forward_floor": {"no_reuse_s": 0.5, "compulsory_s": 0.1},
        "backward_floor": {"no_reuse_s": 0.4, "compulsory_s": 0.1},
    }
    point = dataclasses.asdict(Case("cora", "sum", "float32", 1, 64))
    case = {**point, **floors, "wrong": [], "peers": peers}
    assert speedup(case) == 2.5
    assert speedup(case, backward=False) == 3.0
    assert memory_ratio(case) == 10
    # Backward takes 2 s less the forward pass's 1 s.
    assert [floor_share(case, backward) for backward in (False, True)] == [0.5, 0.4]
    line = table([case]).splitlines()[-1]
    figures = "1e+03 | 50% | 2e+03 | 40% | 5e+03 | 2.50 | 10.00"
    assert line == f"| cora | sum | float32 | 1 x 64 | {figures} | large (failed), another (absent) |"


def test_floors_are_those_of_the_passes():
    size = Size(100, 1000, 2, 32)
    for name, formulas in {
        "sum": (sum_floor, sum_floor),
        "max": (extremum_floor, extremum_grad_floor),
    }.items():
        expected = [formula(Shape(100, 100, 1000, 64, 4)) for formula in formulas]
        floors = OPERATORS[name].floors
        assert [floors.forward(size, 4), floors.backward(size, 4)] == expected
    for name, rule in {"gat": "gat", "gatv2": "gatv2", "attention": "dot"}.items():
        shape = AttentionShape(rule, 100, 100, 1000, 2, 32, 2)
        floors = OPERATORS[name].floors
        assert floors.forward(size, 2) == attention_floor(shape)
        assert floors.backward(size, 2) == attention_grad_floor(shape)
    assert OPERATORS["weighted-sum"].floors is None


def test_every_graph_and_operator_comes_before_a_second_size():
    graphs, operators, dtypes = list(GRAPHS), ["gatv2", "sum"], ["float32", "bfloat16"]
    cases = list(grid(graphs, operators, dtypes))
    once = cases[: len(graphs) * len(operators)]
    assert {(case.graph, case.operator) for case in once} == set(itertools.product(graphs, operators))
    assert {case.dtype for case in once} == {"float32"}
    assert len(set(cases)) == len(cases) == len(graphs) * len(dtypes) * (12 + 4)
