"""The benchmark of packages that are built on PyG: a case of this file, and a package that is missing."""

import sys

import pytest
import torch
from torch_geometric import nn

from benchmarks.packages import __main__ as packages
from benchmarks.packages.cases import CASES, Case, Maker, made, one_pass, results
from benchmarks.pages import markers


class Returning(torch.nn.Module):
    """A layer with several results, one of them complex."""

    def __init__(self):
        super().__init__()
        self.conv = nn.SAGEConv(8, 8)

    def forward(self, x, edge_index):
        out = self.conv(x, edge_index)
        return out, {"not": "a tensor"}, torch.complex(out, -out)


def drawn():
    return Case(Returning(), (torch.randn(50, 8), torch.randint(50, (2, 400))))


@pytest.fixture
def cases(monkeypatch):
    monkeypatch.setattr("benchmarks.packages.cases.CASES", {"drawn": Maker("none", "50 nodes", drawn)})
    monkeypatch.setattr(packages, "CASES", {"drawn": Maker("none", "50 nodes", drawn)})


@pytest.mark.usefixtures("cases")
def test_results_operands_and_parameters_are_compared():
    case = made("drawn")
    found = one_pass(case)()
    assert [tuple(each.shape) for each in found] == [(50, 8), (50, 8, 2), (50, 8), (8 * 8 * 2 + 8,)]
    assert len(results(case.module(*case.operands))) == 2


@pytest.mark.usefixtures("cases")
def test_a_case_is_measured_and_its_layers_are_explained():
    row = packages.measured({"case": "drawn", "rounds": 1, "threads": torch.get_num_threads()})
    assert not row["wrong"]
    assert row["pyg_s"] > 0 < row["onehop_s"]
    assert "its graph has so few edges" in row["path"] or row["path"].startswith("fast: mean of source")


def test_a_dictionary_of_results_counts_as_its_tensors():
    energy = torch.ones(3)
    assert results({"energy": energy, "forces": None}) == [energy]


def test_functions_are_named_where_there_are_no_layers(monkeypatch):
    class Gathers(torch.nn.Module):
        def forward(self, x, index):
            return x[index]

    operands = (torch.randn(1_000, 512), torch.randint(1_000, (9_000,)))
    maker = Maker("none", "9,000 rows", lambda: Case(Gathers(), operands))
    monkeypatch.setattr("benchmarks.packages.cases.CASES", {"drawn": maker})
    row = packages.measured({"case": "drawn", "rounds": 1, "threads": torch.get_num_threads()})
    assert row["path"] == "x[index]: 1 of 1 call fast"


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygod", None)
    assert "pygod" in packages.measured({"case": "GNAConv", "rounds": 1, "threads": 1})["missing"]


def test_the_page_has_what_was_measured(tmp_path):
    page = tmp_path / "packages.md"
    begin, end = markers("results")
    page.write_text(f"before {begin} old {end} after")
    options = packages.BENCHMARK.read(["--page", str(page)])
    row = {
        "case": "GNAConv",
        "package": "pygod",
        "size": "few",
        "pyg_s": 2e-3,
        "onehop_s": 1e-3,
        "ratio": {"median": 2.0},
        "path": "fast",
        "wrong": True,
    }
    assert packages.judged(options, [row, {"case": "DCRNN", "missing": "torch_sparse"}]) == {"different": 1}
    text = page.read_text()
    assert "old" not in text
    assert text.startswith("before")
    assert text.endswith("after")
    assert "GNAConv" in text
    assert "DCRNN" not in text


def test_every_case_names_its_package():
    assert {maker.package for maker in CASES.values()} == {
        "anemoi-models",
        "hydragnn",
        "mace-torch",
        "nvidia-physicsnemo",
        "pygod",
        "torch-geometric",
        "torch-geometric-signed-directed",
        "torch-geometric-temporal",
        "torch-spatiotemporal",
    }
