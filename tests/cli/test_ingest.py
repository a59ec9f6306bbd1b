import json

import numpy as np
import pytest

from onehop import Graph
from onehop.cli import ingest as verb
from onehop.errors import ArgumentError
from tests.cli.running import onehop


def test_ingest_makes_a_folder_and_lists_it(tmp_path):
    pytest.importorskip("duckdb", reason="the extra ingest is not installed")
    path, out, report = tmp_path / "e.csv", tmp_path / "graph", tmp_path / "report.json"
    path.write_text("src,dst,w,t\nb,a,1.5,x\na,b,2.5,y\nb,a,3.5,x\n")
    result = onehop(
        *("ingest", path, "--out", out, "--weight", "w", "--type", "t", "--memory", "1GiB", "--threads", 1),
        *("--json", report),
    )
    assert result.exit_code == 0
    assert "StoredGraph(num_src=2, num_dst=2, num_edges=3" in result.stdout
    assert "ids.parquet, meta.json, rowptr.npy, type.npy, type_ids.parquet, weight.npy" in result.stdout
    assert json.loads(report.read_text())["num_edges"] == 3
    assert Graph.open(out).load().edge_index().tolist() == [[1, 1, 0], [0, 0, 1]]
    assert np.load(out / "weight.npy").tolist() == [1.5, 3.5, 2.5]
    assert onehop("ingest", path, "--out", out).exit_code == 2  # it exists


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("none.csv",), "none.csv: there is no such file"),
        (("none.csv", "--memory", "much"), "memory: expected bytes, or a number with KiB, MiB or GiB"),
        (("none.csv", "--nodes", "1,2,3"), "nodes: expected a number, or two with a comma, got '1,2,3'"),
    ],
)
def test_mistakes_are_sentences(tmp_path, arguments, sentence):
    result = onehop("ingest", *arguments, "--out", tmp_path / "g")
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_numbers_of_nodes():
    assert verb._nodes("7") == 7
    assert verb._nodes("7, 9") == (7, 9)
    with pytest.raises(ArgumentError, match="nodes: expected a number"):
        verb._nodes("-7")
