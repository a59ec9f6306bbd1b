"""Graphs that stay on disk."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from onehop import ArgumentError, FileFormatError, Graph, IndexRangeError
from onehop.graph import stored


def blocks():
    yield torch.tensor([2, 0]), torch.tensor([1, 4])
    yield torch.tensor([1]), torch.tensor([0])


def test_written_in_blocks_of_rows(tmp_path: Path) -> None:
    graph = stored.write(tmp_path / "graph", 5, blocks())
    assert (graph.num_src, graph.num_dst, graph.num_edges) == (5, 3, 3)
    assert graph.rowptr.tolist() == [0, 2, 2, 3]
    assert graph.col.tolist() == [1, 4, 0]
    assert isinstance(graph.col, np.memmap)
    assert graph.load().edge_index().tolist() == [[1, 4, 0], [0, 0, 2]]
    assert "num_edges=3" in repr(graph)


def test_names_of_a_graph_in_memory_have_the_same_meaning(tmp_path: Path) -> None:
    edges = torch.tensor([[0, 1, 1, 3, 3, 3], [2, 2, 0, 2, 0, 0]])
    graph = Graph.from_edge_index(edges, num_nodes=5)
    kept = graph.save(tmp_path / "graph")
    for name in ("num_src", "num_dst", "num_edges", "num_nodes"):
        assert getattr(kept, name) == getattr(graph, name), name
    for name in ("rowptr", "col", "in_degrees", "out_degrees"):
        assert getattr(kept, name).tolist() == getattr(graph, name).tolist(), name
    assert kept.out_degrees.dtype == graph.out_degrees.dtype == torch.int64
    empty = Graph.from_edge_index(edges[:, :0], num_nodes=0).save(tmp_path / "empty")
    assert (empty.num_nodes, empty.in_degrees.tolist(), empty.out_degrees.tolist()) == (0, [], [])


def test_two_kinds_of_nodes_have_no_number_of_nodes(tmp_path: Path) -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), size=(3, 2))
    for each in (graph, graph.save(tmp_path / "graph")):
        with pytest.raises(ArgumentError, match="3 sources and 2 destinations; use num_src or num_dst"):
            _ = each.num_nodes


def test_what_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="have 2 edges, and it has 1 sources"):
        stored.write(tmp_path / "graph", 5, [(torch.tensor([2]), torch.tensor([1]))])
    with pytest.raises(IndexRangeError, match=r"sources in \[0, 4\)"):
        stored.write(tmp_path / "graph", 4, blocks())
    with pytest.raises(ArgumentError, match="zero or more"):
        stored.write(tmp_path / "graph", 4, [(torch.tensor([-1]), torch.tensor([1]))])
    with pytest.raises(ArgumentError, match="num_src: expected 0 to"):
        stored.write(tmp_path / "graph", -1, blocks())
    assert list(tmp_path.iterdir()) == []


def test_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"Graph\.save\(\) writes one"):
        Graph.open(tmp_path / "missing")
    with pytest.raises(FileFormatError, match=r"meta\.json cannot be used"):
        Graph.open(tmp_path)
    graph = stored.write(tmp_path / "graph", 5, blocks())
    with pytest.raises(ArgumentError, match="exists; remove it"):
        stored.write(tmp_path / "graph", 5, blocks())
    meta = json.loads((graph.folder / "meta.json").read_text())
    (graph.folder / "meta.json").write_text(json.dumps(meta | {"format": "other"}))
    with pytest.raises(FileFormatError, match="got 'other'"):
        Graph.open(graph.folder)
    (graph.folder / "meta.json").write_text(json.dumps(meta | {"num_edges": 4}))
    with pytest.raises(FileFormatError, match=r"expected \[4\] int32"):
        Graph.open(graph.folder)
    graph.col_file.unlink()
    with pytest.raises(FileNotFoundError, match="copied as a whole"):
        Graph.open(graph.folder)
