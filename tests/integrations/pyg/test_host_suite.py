"""PyG's own tests under the patch, and tests of what compares them."""

import json
import os
import subprocess
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import host_layers
import host_samplers
import host_suite
import pytest
from host_comparison import DIED, NOT_RUN, Ending, LayerUse, Run, compare, flaky, read_run
from host_suite import SuiteError, checkout, examine, run_tests

from tests.processes import run_python

GCN = "torch_geometric.nn.conv.gcn_conv.GCNConv"


def run_of(**results: str) -> Run:
    return Run({test: Ending(result, f"{test} {result}") for test, result in results.items()})


# Comparison


@pytest.mark.parametrize("after", ["failed", "skipped", "setup failed", DIED])
def test_what_passed_before_and_not_now_is_broken(after: str) -> None:
    found = compare(run_of(a="passed", b="passed"), run_of(a="passed", b=after), {})
    assert [(each.test, each.result) for each in found.regressions] == [("b", after)]
    assert found.regressions[0].detail == f"b {after}"


@pytest.mark.parametrize("after", ["passed", "failed", "skipped"])
@pytest.mark.parametrize("before", ["failed", "skipped"])
def test_what_did_not_pass_before_is_not_broken(before: str, after: str) -> None:
    assert compare(run_of(a=before), run_of(a=after), {}).regressions == ()


def test_a_test_that_was_not_reached_is_broken() -> None:
    found = compare(run_of(a="passed", b="passed"), run_of(a="passed"), {})
    assert [(each.test, each.result) for each in found.regressions] == [("b", NOT_RUN)]


def test_an_exclusion_excuses_its_test_alone() -> None:
    before, after = run_of(a="passed", b="passed"), run_of(a="failed", b="failed")
    found = compare(before, after, {"a": "it counts calls"})
    assert [each.test for each in found.regressions] == ["b"]
    assert [(each.test, each.detail) for each in found.excused] == [("a", "it counts calls")]


def test_an_exclusion_that_is_not_needed_is_named() -> None:
    found = compare(run_of(a="passed", b="skipped"), run_of(a="passed", b="skipped"), {"a": "x", "b": "x"})
    assert found.needless == ("a",)


def test_flaky_is_what_does_not_always_pass() -> None:
    runs = [run_of(a="passed", b="passed"), run_of(a="passed", b="failed", c="passed")]
    assert flaky(["a", "b", "c"], runs) == {"b", "c"}


# What the plugin writes


def write(path: Path, *entries: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def test_a_record_is_read(tmp_path: Path) -> None:
    record = write(
        tmp_path / "record.jsonl",
        {"started": "a"},
        {"layer": [GCN, "fast", "sum of source"]},
        {"test": "a", "result": "failed", "detail": "why"},
        {"finished": True},
    )
    expected = Run({"a": Ending("failed", "why")}, frozenset({LayerUse(GCN, "fast", "sum of source")}))
    assert read_run(record) == expected


def test_a_record_that_breaks_off_names_the_test_that_was_running(tmp_path: Path) -> None:
    record = write(
        tmp_path / "record.jsonl",
        {"started": "a"},
        {"test": "a", "result": "passed", "detail": ""},
        {"started": "b"},
    )
    assert {test: ending.result for test, ending in read_run(record).endings.items()} == {
        "a": "passed",
        "b": DIED,
    }


# A checkout of a few tests

TESTS = """\
import sys
import zlib

import pytest
import torch
from torch_geometric.nn import GCNConv


def patched():
    return "onehop" in sys.modules and sys.modules["onehop"].patched() != ()


def test_layer():
    assert GCNConv(3, 2)(torch.ones(4, 3), torch.tensor([[0, 1], [1, 2]])).shape == (4, 2)


def test_broken():
    assert not patched(), "the patch is on"


def test_excluded():
    assert not patched()


def test_flaky(request):
    first = zlib.crc32(request.node.nodeid.encode())
    assert torch.initial_seed() == first and not patched()


@pytest.fixture
def unready():
    assert not patched()


def test_fixture(unready):
    pass


def test_missing():
    pytest.importorskip("a_package_that_nobody_has")
"""


@pytest.fixture
def small_checkout(tmp_path: Path) -> Path:
    (tmp_path / "torch_geometric").mkdir()
    version = metadata.version("torch_geometric")
    (tmp_path / "torch_geometric" / "__init__.py").write_text(f"__version__ = '{version}'\n")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "test_small.py").write_text(TESTS)
    return tmp_path


@pytest.fixture
def forked_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of pytest in processes that have imported torch and PyG; other tests start them as users do."""

    def run(command: list[str], cwd: Path, env: dict[str, str], timeout: float, **_: Any) -> Any:
        done = run_python(command[1:], cwd, env, timeout)
        return SimpleNamespace(returncode=done.returncode, stdout=done.stdout + done.stderr)

    stand_in = SimpleNamespace(run=run, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT)
    monkeypatch.setattr(host_suite, "subprocess", stand_in)


@pytest.mark.usefixtures("forked_runs")
def test_the_suite_finds_what_the_patch_breaks(small_checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_suite, "_REPETITIONS", 1)
    name = "test/test_small.py::test_{}".format
    said: list[str] = []
    result = examine(checkout(small_checkout), "test", {name("excluded"): "for a reason"}, said.append)

    assert result.plain.count("passed") == 5
    assert result.patched.count("passed") == 1
    assert result.plain.count("skipped") == result.patched.count("skipped") == 1
    broken = {each.test: each for each in result.comparison.regressions}
    assert set(broken) == {name("broken"), name("fixture")}
    assert "the patch is on" in broken[name("broken")].detail
    assert broken[name("fixture")].result == "setup failed"
    assert [each.test for each in result.comparison.excused] == [name("excluded")]
    assert result.flaky == {name("flaky")}
    assert {use.path for use in result.patched.layers if use.kind == GCN} == {"fast"}
    assert result.plain.layers == frozenset()
    assert f"BROKEN: {name('broken')} (failed)" in host_suite.summary([result])
    assert len(said) == 3


def test_a_process_that_dies_and_a_file_that_cannot_be_imported_are_noticed(small_checkout: Path) -> None:
    (small_checkout / "test" / "test_other.py").write_text("import a_package_that_nobody_has\n")
    text = "import os\ndef test_a(): pass\ndef test_b(): os.abort()\ndef test_c(): pass\n"
    (small_checkout / "test" / "test_small.py").write_text(text)
    run = run_tests(small_checkout, ["test"], patched=False)
    assert {test: ending.result for test, ending in run.endings.items()} == {
        "test/test_other.py": "not collected",
        "test/test_small.py::test_a": "passed",
        "test/test_small.py::test_b": DIED,
    }


@pytest.mark.usefixtures("forked_runs")
def test_a_disabled_patch_is_no_proof(small_checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEHOP_DISABLE", "1")
    with pytest.raises(SuiteError, match="ONEHOP_DISABLE"):
        run_tests(small_checkout, ["test"], patched=True)


def test_a_selection_without_tests_is_an_error(small_checkout: Path) -> None:
    with pytest.raises(SuiteError, match="not found: test/nowhere"):
        run_tests(small_checkout, ["test/nowhere"], patched=False)


SAMPLERS = """\
import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.testing import onlyNeighborSampler, withPackage


def batch():
    return next(iter(NeighborLoader(Data(edge_index=torch.tensor([[0, 1], [1, 2]])), [-1])))


@onlyNeighborSampler
def test_any():
    assert batch().num_edges == 0


@withPackage("pyg_lib")
def test_one():
    assert batch().num_edges == 3


@withPackage("a_package_that_nobody_has")
def test_missing():
    pass
"""


def test_tests_of_samplers_run_with_ours(small_checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (small_checkout / "test" / "test_small.py").write_text(SAMPLERS)
    arguments = ["test", "--source", str(small_checkout)]
    assert host_samplers.main(arguments) == 1
    said = capsys.readouterr().out
    assert said.startswith(
        "1 passed, 1 skipped, 1 failed\nskipped, 1: Package a_package_that_nobody_has not found"
    )
    assert "FAILED: test/test_small.py::test_one (failed)" in said
    assert host_samplers.summary(run_of(a="passed"), {"b": "for a reason"}).splitlines() == [
        "1 passed, 0 skipped, 0 failed",
        "not run: b: for a reason",
    ]


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="no checkout of PyG's source"):
        checkout(tmp_path)


def test_a_checkout_of_another_version_is_refused(small_checkout: Path) -> None:
    (small_checkout / "torch_geometric" / "__init__.py").write_text("__version__ = '1.0.0'\n")
    with pytest.raises(SuiteError, match=r"holds PyG 1\.0\.0, and PyG .* is installed"):
        checkout(small_checkout)


def test_torchs_source_is_taken_too(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "test_indexing.py").touch()
    assert checkout(tmp_path) == tmp_path


# The page of layers


def test_a_layer_is_as_fast_as_its_best_run() -> None:
    rows = host_layers.rows(
        [
            LayerUse(GCN, "delegated", "edge_index is sparse"),
            LayerUse(GCN, "fast", "sum of source"),
            LayerUse("torch_geometric.nn.conv.nn_conv.NNConv", "delegated", "its message is its own"),
            LayerUse("tests.test_own.GCNConv", "delegated", "not PyG's"),
        ]
    )
    found = {row.name: row for row in rows}
    assert found["GCNConv"] == host_layers.LayerRow(
        "GCNConv", "fast", ("sum of source",), ("edge_index is sparse",)
    )
    assert found["NNConv"].path == "delegated"
    assert found["SAGEConv"].path == "not seen"
    assert found["HeteroConv"].path == "no messages"

    page = host_layers.as_page(rows, {"torch_geometric": "2", "torch": "3"})
    assert "| `GCNConv` | fast | sum of source | | | 1 |" in page
    assert "| `NNConv` | delegated | its message is its own | | | |" in page
    assert host_layers.NOT_YET in page
    assert "\n1. edge_index is sparse\n" in page
    assert "GCNConv" in host_layers.as_text(rows)


def measured(**others: Any) -> dict[str, Any]:
    """As bench_convs.py writes it."""
    row = {"layer": "GCNConv", "width": 64, "wrong": False, "ratio": {"median": 2.345}}
    row |= {"peak_bytes": {"pyg": 200, "onehop": 50}, **others}
    machine = {"processor": "A processor"}
    stamp = {"machine": machine, "threads": 2, "isa": "avx2", "date": "2026-01-02T03:04:05+00:00"}
    return {"graph": {"nodes": 20_000, "edges": 200_000}, "stamp": stamp, "results": [row]}


def test_the_page_has_speed_and_memory_of_layers_that_were_measured() -> None:
    rows = host_layers.rows([LayerUse(GCN, "fast", "sum of source")])
    page = host_layers.as_page(rows, {"torch_geometric": "2", "torch": "3"}, measured())
    assert "| `GCNConv` | fast | sum of source | 2.3x | 0.25 |  |" in page
    assert "| `NNConv` | not seen | PyG's tests of it" in page
    assert "20,000 nodes and 200,000 edges, width 64: PyG's time" in page
    assert "A processor, 2 threads, avx2, 2026-01-02." in page
    assert host_layers.NOT_YET not in page

    # Figures replace figures.
    faster = host_layers.with_figures(page, measured(ratio={"median": 3.0}, width=32))
    assert "| `GCNConv` | fast | sum of source | 3.0x | 0.25 |  |" in faster
    assert "2.3x" not in faster
    assert host_layers.with_figures(faster, measured()) == page


def test_the_page_of_the_documents_has_the_figures_that_were_measured_last() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "pyg-layers.md").read_text(encoding="utf-8")
    last = json.loads(host_layers.MEASURED.read_text(encoding="utf-8"))
    assert host_layers.with_figures(page, last) == page
    last["results"][0]["ratio"]["median"] += 1
    assert host_layers.with_figures(page, last) != page


def test_wrong_results_and_pages_of_another_form_have_no_figures() -> None:
    page = host_layers.as_page(host_layers.rows([]), {"torch_geometric": "2", "torch": "3"})
    with pytest.raises(ValueError, match="GCNConv gave other results than PyG's"):
        host_layers.with_figures(page, measured(wrong=True))
    with pytest.raises(ValueError, match="no columns of speed and memory"):
        host_layers.with_figures("# Another page\n", measured())


# PyG's own tests


def test_pygs_own_tests_of_its_layers_pass_under_the_patch() -> None:
    source = os.environ.get("ONEHOP_PYG_SOURCE")
    if not source:
        pytest.skip("ONEHOP_PYG_SOURCE is not set: it names a checkout of PyG's source, with its tests")
    result = examine(checkout(source), "test/nn/conv", host_suite.EXCLUSIONS, print)
    assert not result.comparison.regressions, host_suite.summary([result])
    assert result.patched.count("passed") > 200
    fast = {row.name for row in host_layers.rows(result.patched.layers) if row.path == "fast"}
    assert {"GCNConv", "SAGEConv", "GINConv", "GraphConv"} <= fast
