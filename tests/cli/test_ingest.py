import numpy as np
import pytest

from onehop import Graph
from onehop.cli.arguments.ingest import read_nodes
from tests.cli.running import onehop, written


def test_ingest_makes_a_folder_and_lists_it(tmp_path):
    pytest.importorskip("duckdb", reason="the extra ingest is not installed")
    path, out = tmp_path / "e.csv", tmp_path / "graph"
    path.write_text("src,dst,w,t\nb,a,1.5,x\na,b,2.5,y\nb,a,3.5,x\n")
    arguments = "--weight w --type t --memory 1GiB --threads 1"
    report, output = written(tmp_path / "report.json", "ingest", path, "--out", out, arguments)
    assert "StoredGraph(num_src=2, num_dst=2, num_edges=3" in output
    assert "ids.parquet, meta.json, rowptr.npy, type.npy, type_ids.parquet, weight.npy" in output
    assert report["num_edges"] == 3
    assert Graph.open(out).load().edge_index().tolist() == [[1, 1, 0], [0, 0, 1]]
    assert np.load(out / "weight.npy").tolist() == [1.5, 3.5, 2.5]
    assert onehop("ingest", path, "--out", out).exit_code == 2  # it exists


def test_numbers_of_nodes():
    assert read_nodes("nodes", "7") == 7
    assert read_nodes("nodes", "7, 9") == (7, 9)
