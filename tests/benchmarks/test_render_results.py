"""The script that puts measured figures into README.md and docs/results.md."""

import json
from pathlib import Path

import pytest

from benchmarks import pages, render_results, result_tables
from onehop.pictures import THEMES

STAMP = {
    "date": "2026-01-02T03:04:05+00:00",
    "machine": {"processor": "A Processor"},
    "isa": "avx2",
    "threads": 2,
    "versions": {"torch": "2.13.0+cpu", "torch_geometric": "2.8.1", "scipy": None},
}
SPREAD = {"lower_quartile": 13.2, "upper_quartile": 15.4}


def times(rounds: int = 5, **seconds: float) -> dict[str, dict[str, float]]:
    return {
        name.replace("pyg_", "pyg-").replace("torch_csr", "torch-csr"): {"median_s": median, "rounds": rounds}
        for name, median in seconds.items()
    }


DOCUMENTS = {
    "models": {
        "stamp": STAMP,
        "results": [
            {
                "graph": "arxiv",
                "model": "gcn",
                "hidden": 32,
                "times": times(onehop=0.1, pyg_edge_index=1.43),
                "speedup_over": {"pyg-edge_index": {"median": 14.3, **SPREAD}},
                "skipped": {},
                "peak_bytes": {"onehop": 2e8, "pyg-edge_index": 1.5e9},
            },
            {
                "graph": "reddit-mini",
                "model": "gin",
                "hidden": 128,
                "times": times(1, onehop=0.5),
                "speedup_over": {},
                "skipped": {"pyg-edge_index": "would need 9 GB"},
                "peak_bytes": {"onehop": 3e8},
            },
        ],
    },
    "ops": {
        "stamp": STAMP,
        "summary": [
            {
                "operation": "weighted_sum",
                "cases": 20,
                "best_peer_geomean": 1.62,
                "torch_geomean": None,
                "worst": 1.01,
                "worst_case": "road 16, numba-loop",
                "least_percent_of_roof": 86.4,
            }
        ],
    },
    "limits": {
        "stamp": STAMP,
        "streaming": {"read": {"gbps": 31.5}},
        "gather": [{"row_floats": 16, "gbps": 12.3}, {"row_floats": 64, "gbps": 25.0}],
    },
    "layers": {
        "stamp": STAMP,
        "results": [
            {
                "graph": "arxiv",
                "layer": "gatv2",
                "seconds": {"pyg": 14.0, "onehop": 0.5},
                "speedup": {"pyg": 28.0},
                "memory_ratio": 25.0,
                "percent_of_roof": {"forward": 80.0, "forward and backward": 70.4},
            },
            {"graph": "road", "layer": "gine", "seconds": {"onehop": 0.25}, "skipped": {"pyg": "too large"}},
            {"graph": "cora", "layer": "pna", "seconds": {"onehop": 0.125, "pyg": 1.0}, "wrong": True},
        ],
    },
}


PUBLISHED = {
    "stamp": STAMP,
    "results": [
        {
            "graph": "twin:arxiv",
            "model": "ogb-gcn",
            "hidden": 256,
            "as_authors": "pyg-torch-csr",
            "best_of_pyg": "pyg-torch-csr",
            "times": times(onehop=0.8, pyg_edge_index=8.0, pyg_torch_csr=4.0),
            "speedup_over": {
                "pyg-edge_index": {"median": 10.0, **SPREAD},
                "pyg-torch-csr": {"median": 5.0, "lower_quartile": 4.5, "upper_quartile": 5.5},
            },
            "skipped": {},
            "peak_bytes": {"onehop": 2e9, "pyg-edge_index": 1.2e10, "pyg-torch-csr": 4e9},
            "breakdown": {
                "shares": {"aggregation": 0.25, "products": 0.5, "dropout": 0.0625, "other": 0.1875},
                "seconds": {"aggregation": 0.2, "products": 0.4, "dropout": 0.05, "other": 0.15},
                "floor_s": {"aggregation": 0.1, "products": 0.4, "dropout": 0.0, "other": 0.05},
                "x_of_floor": 1.4545,
            },
        },
        {
            "graph": "twin:arxiv",
            "model": "loader-sage",
            "hidden": 256,
            "times": {},
            "speedup_over": {},
            "skipped": {"onehop": "needs pyg-lib"},
            "peak_bytes": {},
            "breakdown": None,
        },
    ],
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "benchmarks" / "results"
    folder.mkdir(parents=True)
    for name, document in DOCUMENTS.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    (tmp_path / "docs").mkdir()
    for document in ("README.md", "docs/results.md"):
        (tmp_path / document).write_text(
            "before\n<!-- results: begin -->\nold\n<!-- results: end -->\nafter\n"
            "<!-- figures: begin -->\n<!-- figures: end -->\n"
        )
    return tmp_path


def test_figures_stand_between_the_markers(project: Path) -> None:
    render_results.main(project)
    text = (project / "docs" / "results.md").read_text()
    assert text.startswith("before\n<!-- results: begin -->\n")
    assert "\n<!-- results: end -->\nafter\n" in text
    assert "old" not in text
    assert "| arxiv | gcn | 32 | 1430 |  |  | 100 |  | 14.3x (13.2x to 15.4x) | 1,431 | 191 |" in text
    assert "| reddit-mini | gin | 128 | would need 9 GB |  |  | 500 |  |  |  | 286 |" in text
    assert "two-layer PyG models; 1 to 5 rounds, too few for quartiles." in text
    assert "| weighted sum | 20 | 1.62x |  | 1.01x (road 16, numba-loop) | 86 % |" in text
    assert "| arxiv | gatv2 | 14000 | 500 | 28.0x |  | 1/25.0 | 70 % |" in text
    assert "| road | gine |  | 250 |  |  |  |  |" in text
    assert "pna" not in text
    assert "31.5 GB/s" in text
    assert "25.0 at 64" in text
    assert "A Processor, 2 threads, avx2, torch 2.13.0+cpu, PyG 2.8.1." in text
    assert (project / "docs" / "images" / "results.png").read_bytes().startswith(b"\x89PNG")


def test_published_models_stand_in_the_readme_once_they_are_measured(project: Path) -> None:
    before = (project / "README.md").read_text()
    render_results.main(project)
    assert (project / "README.md").read_text() == before
    assert not (project / "docs" / "images" / "parts.png").exists()
    path = project / "benchmarks" / "results" / "published_models.json"
    path.write_text(json.dumps(PUBLISHED))
    render_results.main(project)
    first, rest = (project / "README.md").read_text(), (project / "docs" / "results.md").read_text()
    assert "two-layer PyG models" not in first
    best = "4000 (`adj_t` of torch)"
    assert (
        f"| OGB's GCN | twin:arxiv | 8000 | 4000 | {best} | 800 | 5.00x | 11,444 / 3,815 / 1,907 |"
    ) in first
    assert (
        "- **5.0 times as fast** as PyG's fastest input (`adj_t` of torch), 10.0 times as fast as with "
        "`edge_index`: OGB's GCN on a generated graph of the size of arxiv, 0.80 s an epoch instead of 4.00 "
        "and 8.00 s, 1.9 GiB at the peak instead of 3.7 and 11.2."
    ) in first
    assert "in one process; 5 rounds. The losses" in first
    gains = "5.00x (4.50x to 5.50x) | 10.0x (13.2x to 15.4x)"
    assert f"| twin:arxiv | ogb-gcn | 256 | 8000 | 4000 | {best} | 800 | {gains} | 11,444 | 1,907 |" in rest
    assert (
        "| twin:arxiv | ogb-gcn | 1.45x | 200 ms, 25 %, 2.00x | 400 ms, 50 %, 1.00x | 50.0 ms, 6 % | "
        "150 ms, 19 %, 3.00x |"
    ) in rest
    assert "loader-sage" not in first + rest
    for name in ("parts", "results"):
        assert (project / "docs" / "images" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    for theme, ink in THEMES.items():
        drawn = (project / "docs" / "images" / f"published-{theme}.svg").read_text()
        assert ink in drawn
        assert "<dc:date>" not in drawn  # drawn anew, it is the same file


MORE = {
    "sparse": {
        "stamp": STAMP,
        "results": [
            {
                "part": part,
                "case": case,
                "pass": "step",
                "seconds": {"torch": {"median_s": 0.3}, "onehop": {"median_s": 0.02}},
                "speedup": 15.0,
                "speedup_quartiles": [14.0, 16.0],
                "over_aggregate": 1.05,
                "peak_bytes": {"torch": 900 << 20, "onehop": 700 << 20},
            }
            for part, case in (("steps", "lightgcn-gowalla"), ("products", "cora: @, CSR"))
        ],
    },
    "small": {
        "stamp": STAMP,
        "cases": [
            {**case, "pass": "forward"}
            for case in (
                {"layer": "GCN", "edges": 60, "edge_index": "fresh", "ratio": 0.5, "control": 1.0},
                {"layer": "GAT", "edges": 60, "edge_index": "repeated", "ratio": 2.0, "control": 1.0},
                {"layer": "GCN", "edges": 30000, "edge_index": "fresh", "ratio": 4.0, "control": 0.9},
            )
        ],
    },
}


EXAMPLE = {
    "failed": {},
    "times": times(pyg=0.02, onehop=0.01),
    "peak_bytes": {"pyg": 500 << 20, "onehop": 450 << 20},
    "before_bytes": {"pyg": 400 << 20, "onehop": 416 << 20},
}
LARGER = {**EXAMPLE, "peak_bytes": {"pyg": 500 << 20, "onehop": 530 << 20}}
EXAMPLES = {
    "stamp": STAMP,
    "scripts": [
        {"script": "gcn.py", "verdict": "faster", "speedup": {"median": 2.0, **SPREAD}, **EXAMPLE},
        {"script": "reddit.py", "verdict": "does not run here", "failed": {"pyg": "x", "onehop": "x"}},
        {"script": "short.py", "verdict": "not timed", **LARGER},
    ],
}


def test_examples_of_pyg_stand_there_once_they_are_measured(project: Path) -> None:
    (project / "benchmarks" / "results" / "examples.json").write_text(json.dumps(EXAMPLES))
    render_results.main(project)
    text = (project / "docs" / "results.md").read_text()
    assert (
        "3 scripts (faster: 1, does not run here: 1, not timed: 1). The peak is higher with onehop in 1, by "
        "at most 30 MiB; the library itself takes 16 MiB before the first epoch."
    ) in text
    assert "| `gcn.py` | faster | 20.0 | 10.0 | 2.00x (13.2x to 15.4x) | 500 | 450 |" in text
    assert "reddit.py" not in text
    assert "short.py" not in text


def test_further_tables_stand_there_once_they_are_measured(project: Path) -> None:
    render_results.main(project)
    assert "Small graphs" not in (project / "docs" / "results.md").read_text()
    for name, document in MORE.items():
        (project / "benchmarks" / "results" / f"{name}.json").write_text(json.dumps(document))
    render_results.main(project)
    text = (project / "docs" / "results.md").read_text()
    assert "| 60 | 2 | 1.00x | 50 % | 100 % | 0.50x (GCN, fresh, forward) |" in text
    (project / "benchmarks" / "results" / "published_models.json").write_text(json.dumps(PUBLISHED))
    render_results.main(project)
    assert (
        "- On graphs of at most 500 edges, a layer gains 1.25x in the median; 50 % of the cases are slower "
        "than with PyG, the slowest 0.50x"
    ) in (project / "README.md").read_text()
    assert "| lightgcn-gowalla | 300 |  | 20.0 | 15.0x (14.0x to 16.0x) | 900 | 700 |" in text
    assert "| cora: @, CSR | step | 300 |  | 20.0 | 15.0x (14.0x to 16.0x) | 1.05 |" in text
    assert "| 30,000 | 1 | 4.00x | 100 % | 0 % | 4.00x (GCN, fresh, forward) |" in text


def test_twice_is_as_once(project: Path) -> None:
    render_results.main(project)
    once = (project / "docs" / "results.md").read_text()
    render_results.main(project)
    assert (project / "docs" / "results.md").read_text() == once


def test_what_was_not_measured_is_asked_for(project: Path) -> None:
    (project / "benchmarks" / "results" / "ops.json").unlink()
    with pytest.raises(SystemExit, match=r"ops\.json is missing: run make bench"):
        render_results.main(project)


def test_a_document_without_markers_is_left_alone(project: Path) -> None:
    (project / "docs" / "results.md").write_text("nothing here\n")
    with pytest.raises(SystemExit, match="results: begin"):
        render_results.main(project)
    assert (project / "docs" / "results.md").read_text() == "nothing here\n"


@pytest.mark.parametrize("document", ["README.md", "docs/results.md"])
def test_the_projects_documents_have_the_markers(document: str) -> None:
    text = (render_results.ROOT / document).read_text()
    assert [text.count(mark) for mark in pages.markers("results")] == [1, 1]


def test_the_line_of_the_machine_names_the_commit_where_it_is_known():
    assert result_tables.machine(STAMP).startswith("Measured on 2026-01-02: A Processor")
    known = {**STAMP, "commit": {"hash": "0ac08bc99bc105f4", "changed": False}}
    assert "on 2026-01-02 at commit 0ac08bc9: A Processor" in result_tables.machine(known)
    known["commit"]["changed"] = True
    assert "at commit 0ac08bc9 with changes: A" in result_tables.machine(known)
