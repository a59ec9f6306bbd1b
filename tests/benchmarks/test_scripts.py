"""Scripts at their smallest: what they print and write, and the names that they do not know."""

import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_geometric")

import onehop
from benchmarks import harness
from benchmarks.harness import Benchmark
from benchmarks.layers import bench_built_on_pyg, bench_convs, bench_dropout, bench_functions, bench_small
from benchmarks.models import bench_bfloat16, bench_sparse
from tests.processes import run_python


def measured(folder: Path, script: str, arguments: str) -> tuple[dict[str, Any], str]:
    """What a script writes and prints, in a process of its own."""
    file = folder / "found.json"
    done = run_python(["-m", f"benchmarks.{script}", *arguments.split(), "--json", str(file)])
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text()), done.stdout


def test_small_graphs(tmp_path: Path) -> None:
    small = "--layers GCNConv,ChebConv,policy-sage --edges 10,60 --threads 1,2 --rounds 1 --width 8"
    found, printed = measured(tmp_path, "layers.bench_small", small)
    cases = found["cases"]
    assert len(cases) == 2 * (2 * 2 * 2 * 2 + 1)
    assert {(case["layer"], case["threads"]) for case in cases} == {
        (layer, threads) for layer in ("GCNConv", "ChebConv", "policy-sage") for threads in (1, 2)
    }
    assert {(case["edge_index"], case["pass"]) for case in cases} == {
        (kind, which) for kind in ("fresh", "repeated") for which in ("inference", "training")
    }
    assert [case["edges"] for case in cases if case["layer"] == "policy-sage"] == [160, 160]
    assert all(case["ratio"] > 0 and case["control"] > 0 and not case["wrong"] for case in cases)
    assert "60 edges: least" in printed
    ratios = sorted(case["ratio"] for case in cases)
    below = sum(ratio < bench_small.EVEN for ratio in ratios)
    assert f"34 cases: {below} below 0.97" in printed
    assert [float(each) for each in re.findall(r"^  (\S+): ", printed, re.M)] == [
        pytest.approx(ratio, abs=0.005) for ratio in ratios[:5]
    ]


def test_sparse_products(tmp_path: Path) -> None:
    small = "--graphs cora --models kipf-cora --rounds 1 --threads 1"
    found, printed = measured(tmp_path, "models.bench_sparse", small)
    products = [row for row in found["results"] if row["part"] == "products"]
    (step,) = (row for row in found["results"] if row["part"] == "steps")
    assert len(products) == 5 * 2
    assert all(row["speedup"] > 0 and row["over_aggregate"] > 0 for row in products)
    assert set(step["peak_bytes"]) == {"torch", "onehop"}
    assert "kipf-cora" in printed


def test_every_layer_runs_on_the_smallest_graphs() -> None:
    for name, edges, training in itertools.product(bench_small.LAYERS, (10, 40), (False, True)):
        once = bench_small.one_pass(name, edges, 8, fresh=True, training=training)
        expected = once()
        with onehop.patch():
            found = once()
        assert len(found) == 1 + training
        assert harness.apart_by(found, expected) <= bench_small.TOLERANCE, f"{name}, {edges} edges"


def test_exported_models(tmp_path: Path) -> None:
    ways = "eager,eager-patched,exported-patched"
    small = f"--models sage --nodes 10,20 --ways {ways} --rounds 1"
    found, printed = measured(tmp_path, "layers.bench_exported", small)
    assert [(row["nodes"], row["edges"]) for row in found["results"]] == [(10, 40), (20, 80)]
    for row in found["results"]:
        assert list(row["seconds"]) == ways.split(",")
        assert not row["wrong"]
        patched = row["seconds"]["eager-patched"]["median_s"]
        assert 0 < row["native_s"] < patched
        assert row["rest"] == pytest.approx(1 - (row["native_s"] + row["products_s"]) / patched)
    assert printed.count("sage") == 2


def test_neighbours_in_cells(tmp_path: Path) -> None:
    small = "--peers matscipy --atoms 100,200 --neighbours 20 --threads 1 --rounds 1"
    found, printed = measured(tmp_path, "points.bench_periodic", small)
    assert [row["atoms"] for row in found["results"]] == [100, 200]
    for row in found["results"]:
        assert {"onehop", "kept"} <= set(row["seconds"])
        assert set(row["added_bytes"]) == set(row["seconds"])
        assert 10 < row["neighbours"] < 30
    assert "kept, ms" in printed


def test_dropout(tmp_path: Path) -> None:
    small = "--elements 1000,9000 --threads 1 --rounds 1"
    found, printed = measured(tmp_path, "layers.bench_dropout", small)
    assert len(found["cases"]) == 2 * 2 * 3
    assert {case["pass"] for case in found["cases"]} == {"forward", "backward", "both"}
    assert all(case["ratio"] > 0 for case in found["cases"])
    assert printed.count("forward") == 2 * 2


def test_bfloat16(tmp_path: Path) -> None:
    small = "--models ogb-gcn,ogb-sage,gat --graph twin:cora --hidden 16 --rounds 1 --epochs 2 --seeds 1"
    found, printed = measured(tmp_path, "models.bench_bfloat16", small)
    assert [case["model"] for case in found["cases"]] == ["ogb-gcn", "ogb-sage", "gat"]
    for case in found["cases"]:
        assert case["ratio"] > 0
        assert {len(values) for values in case["accuracy"].values()} == {1}
    assert "accuracies" in printed


def test_every_layer(tmp_path: Path) -> None:
    small = "--layers GINEConv --nodes 50 --edges 400 --rounds 1 --threads 1"
    found, printed = measured(tmp_path, "layers.bench_convs", small)
    assert found["graph"] == {"nodes": 50, "edges": 400}
    (row,) = found["results"]
    assert (row["layer"], row["width"], row["wrong"]) == ("GINEConv", 64, False)
    assert row["ratio"]["median"] > 0
    assert set(row["peak_bytes"]) == {"pyg", "onehop"}
    assert "GINEConv" in printed


CASES = ["gcn:8", "sage-sum:8", "sum:8", "weighted:8", "sum+grad:8"]


def test_versions(tmp_path: Path) -> None:
    """One version beside itself."""
    small = f"--other {sys.executable} --graphs cora --rounds 1 --cases {','.join(CASES)}"
    found, _ = measured(tmp_path, "versions.bench_versions", small)
    assert [case["case"] for case in found["cases"]] == CASES
    assert all(set(case["over_this"]) == {"other", "PyG"} for case in found["cases"])
    assert all(seconds > 0 for case in found["cases"] for seconds in case["seconds"].values())


def test_a_version_that_is_missing_is_named(tmp_path: Path) -> None:
    other = str(tmp_path / "python")
    script = ("-m", "benchmarks.versions.bench_versions", "--graphs", "cora", "--cases", "sum:8")
    done = run_python([*script, "--other", other])
    assert done.returncode != 0
    assert other in done.stderr


@pytest.mark.parametrize(
    ("benchmark", "arguments", "cases"),
    [
        (
            bench_functions.BENCHMARK,
            "--nodes 90 --edges 400 --width 4 --graphs cora --rounds 1 --cases "
            "index,mask,scatter_reduce_amax,coalesce_weights,negative_sampling,unique_counts,unique_pairs,isin,"
            "link_prediction",
            {
                *("index", "mask", "scatter_reduce_amax", "coalesce_weights", "negative_sampling"),
                *("unique_counts", "unique_pairs", "isin"),
                "link_prediction, cora",
            },
        ),
        (
            bench_built_on_pyg.BENCHMARK,
            "--scale 0.001 --rounds 1 --cases returned,explainers",
            {
                f"mesh, {sizes}"
                for sizes in ("15,000 nodes, 90,000 edges, 96", "40,000 nodes, 240,000 edges, 128")
            }
            | {"GNNExplainer", "PGExplainer"},
        ),
    ],
    ids=["functions", "built on PyG"],
)
def test_results_are_compared_with_pygs(
    in_process: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    benchmark: Benchmark,
    arguments: str,
    cases: set[str],
) -> None:
    file = tmp_path / "found.json"
    benchmark.main([*arguments.split(), "--json", str(file)])
    results = json.loads(file.read_text())["results"]
    assert {row["case"] for row in results} == cases
    assert not any(row["wrong"] for row in results)
    printed = capsys.readouterr().out
    assert all(row["case"] in printed for row in results)


@pytest.mark.parametrize("case", ["signals", "loading", "batches"])
def test_cases_of_many_kinds_on_pyg(case: str) -> None:
    for what, order in bench_built_on_pyg._orders(case):
        found = bench_built_on_pyg.KINDS[case]({**order, "scale": 0.01})()
        assert all(bool(each.isfinite().all()) for each in found), what


@pytest.mark.parametrize(
    ("benchmark", "arguments", "said"),
    [
        (bench_bfloat16.BENCHMARK, "--models nothing", "unknown nothing; there are ogb-gcn, "),
        (bench_dropout.BENCHMARK, "--passes sideways", "unknown sideways; there are forward, backward, both"),
        (bench_sparse.BENCHMARK, "--models gcn", "unknown gcn; there are lightgcn-gowalla, "),
        (bench_small.BENCHMARK, "--layers Nothing", "unknown Nothing; there are SimpleConv, "),
        (
            bench_convs.BENCHMARK,
            "--layers GCNConv,XConv,Nothing",
            "XConv needs pyg-lib, or torch_cluster before PyG 2.8; Nothing is no layer of PyG",
        ),
    ],
    ids=["bfloat16", "dropout", "sparse", "small", "convs"],
)
def test_names_that_a_script_does_not_know(benchmark: Benchmark, arguments: str, said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        benchmark.main(arguments.split())
