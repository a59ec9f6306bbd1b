"""Graphs: made from everything that they can be made from, and asked for everything that they say."""

import pickle
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch
from torch import Tensor

from onehop import Graph
from onehop.datasets import from_file
from tests.default_device.ways import EDGE_INDEX, EDGES, NODES, assert_same_bits, new_graph, number

MATRIX = scipy.sparse.coo_array((np.ones(EDGES), EDGE_INDEX.flip(0).numpy()), shape=(NODES, NODES))


def of_graph(graph: Graph) -> list[Tensor]:
    """All that a graph says of itself."""
    figures = [figure for figure in astuple(graph.statistics) if isinstance(figure, (int, float))]
    matrix = graph.to_scipy(number(graph.num_edges))
    return [
        graph.rowptr,
        graph.col,
        *([] if graph.perm is None else [graph.perm]),
        graph.in_degrees,
        graph.out_degrees,
        graph.inverse_in_degrees(torch.float32),
        graph.edge_index(),
        graph.transpose().edge_index(),
        torch.tensor(figures, dtype=torch.float64, device="cpu"),
        *(torch.from_numpy(np.ascontiguousarray(part)) for part in (matrix.data, matrix.row, matrix.col)),
    ]


def from_csr() -> list[Tensor]:
    graph = new_graph()
    return of_graph(Graph.from_csr(graph.rowptr, graph.col))


def from_scipy() -> list[Tensor]:
    return of_graph(Graph.from_scipy(MATRIX)) + of_graph(Graph.from_scipy(MATRIX.tocsc()))


def reordered(method: str) -> list[Tensor]:
    found = new_graph().reorder(method)
    return [*of_graph(found.graph), found.undo(found.apply(number(NODES, 2)))]


CASES: dict[str, Callable[[], list[Tensor]]] = {
    "from_edge_index": lambda: of_graph(new_graph()),
    "bipartite": lambda: of_graph(Graph.from_edge_index(EDGE_INDEX, size=(NODES + 3, NODES + 1))),
    "no edges": lambda: of_graph(Graph.from_edge_index(EDGE_INDEX[:, :0], 3)),
    "from_csr": from_csr,
    "from_scipy": from_scipy,
    "pickled": lambda: of_graph(pickle.loads(pickle.dumps(new_graph()))),
    **{
        f"reordered by {method}": lambda method=method: reordered(method)
        for method in ("degree", "rcm", "community")
    },
}


@pytest.mark.parametrize("name", CASES)
def test_same_bits_whatever_the_default_device(name: str, elsewhere: Callable[[], Any]) -> None:
    assert_same_bits(CASES[name], elsewhere)


WRITERS: dict[str, Callable[[Path], None]] = {
    "mtx": lambda path: scipy.io.mmwrite(path, MATRIX),
    "npz": lambda path: scipy.sparse.save_npz(path, MATRIX.tocsr()),
    "csv": lambda path: np.savetxt(path, EDGE_INDEX.t().numpy(), "%d", delimiter=","),
    "mat": lambda path: scipy.io.savemat(path, {"A": MATRIX.tocsc()}),
}


@pytest.mark.parametrize("ending", WRITERS)
def test_same_graph_from_a_file(ending: str, tmp_path: Path, elsewhere: Callable[[], Any]) -> None:
    path = tmp_path / f"graph.{ending}"
    WRITERS[ending](path)
    assert_same_bits(lambda: of_graph(Graph.load(path)), elsewhere)


def test_same_data_set_from_a_file(tmp_path: Path, elsewhere: Callable[[], Any]) -> None:
    arrays = {
        "edges": EDGE_INDEX.t().numpy(),
        "node_features": number(NODES, 2).numpy(),
        "node_labels": np.arange(NODES) % 3,
    }
    np.savez(tmp_path / "graph.npz", **arrays)

    def run() -> list[Tensor]:
        found = from_file(tmp_path / "graph.npz")
        parts = (found.x, found.y, found.train_mask, found.val_mask, found.test_mask)
        return [found.edge_index, *(part for part in parts if isinstance(part, Tensor))]

    assert len(run()) == 6
    assert_same_bits(run, elsewhere)


def test_same_graph_on_disk(tmp_path: Path, elsewhere: Callable[[], Any]) -> None:
    folders = iter("ab")

    def run() -> list[Tensor]:
        folder = tmp_path / next(folders)
        new_graph().save(folder)
        blocks = [part for _, *parts in Graph.open(folder).blocks(7, 20) for part in parts]
        return of_graph(Graph.open(folder).load()) + blocks

    assert_same_bits(run, elsewhere)
