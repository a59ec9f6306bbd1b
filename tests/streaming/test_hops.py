"""Several hops from disk to disk, against dense matrices in float64 and against PyG."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import onehop
from onehop import ArgumentError, FileFormatError, Graph
from onehop.errors import StorageError
from onehop.graph.stored import StoredGraph
from onehop.ops.streaming.lock import alone
from onehop.ops.streaming.matrix_file import MatrixFile
from onehop.streaming import several_hops
from onehop.streaming.layerwise import row_blocks
from onehop.streaming.normalisation import with_self_loops
from tests.processes import Stop

NODES, WIDTH = 60, 40
# Two panels of columns: bytes.
SMALL = 20_000


@pytest.fixture
def edge_index(generator: torch.Generator) -> Tensor:
    """With repeated edges, loops, some of them twice, a hub, and nodes without edges."""
    edges = torch.randint(0, NODES - 5, (2, 500), generator=generator)
    edges[1, :200] = 11
    edges[:, 200:206] = torch.tensor([[3, 3, 4, 11, 59, 59], [3, 3, 4, 11, 59, 59]])
    return edges


@pytest.fixture
def stored(edge_index: Tensor, tmp_path: Path) -> StoredGraph:
    return Graph.from_edge_index(edge_index, NODES).save(tmp_path / "graph")


@pytest.fixture
def x(tmp_path: Path) -> Tensor:
    values = np.random.default_rng(1).standard_normal((NODES, WIDTH))
    np.save(tmp_path / "x.npy", values)
    return torch.from_numpy(values)


def dense(edge_index: Tensor, normalise: str) -> Tensor:
    """The matrix of a hop, [N, N]."""
    matrix = torch.zeros(NODES, NODES, dtype=torch.float64)
    for source, target in edge_index.t().tolist():
        matrix[target, source] += 1
    if normalise == "gcn":
        matrix.fill_diagonal_(1)
    degree = matrix.sum(1)
    if normalise == "mean":
        return matrix / degree.clamp(min=1)[:, None]
    if normalise == "none":
        return matrix
    scale = torch.where(degree > 0, degree**-0.5, 0.0)
    return scale[:, None] * matrix * scale


def after(edge_index: Tensor, x: Tensor, count: int) -> Tensor:
    """The features after so many hops of GCN's normalisation."""
    return torch.linalg.matrix_power(dense(edge_index, "gcn"), count) @ x


def assert_close(file: Path, exact: Tensor, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(np.load(file), exact.detach().numpy(), rtol=tolerance, atol=tolerance)


def stop(*_: object) -> None:
    raise Stop


@pytest.mark.parametrize("teleport", [0.0, 0.15])
@pytest.mark.parametrize("normalise", several_hops.NORMALISATIONS)
def test_against_dense_matrices(
    edge_index: Tensor, stored: StoredGraph, x: Tensor, tmp_path: Path, normalise: str, teleport: float
) -> None:
    matrix, exact = dense(edge_index, normalise), [x]
    for _ in range(3):
        exact.append((1 - teleport) * matrix @ exact[-1] + teleport * x)
    how: dict[str, Any] = {"normalise": normalise, "teleport": teleport, "memory": SMALL}
    last = onehop.hops(stored, tmp_path / "x.npy", 3, tmp_path / "h.npy", **how)
    assert_close(last, exact[3])
    kept = onehop.hops(stored, tmp_path / "x.npy", 3, tmp_path / "h", keep="all", **how)
    assert sorted(each.name for each in kept.iterdir()) == ["hop1.npy", "hop2.npy", "hop3.npy"]
    for number in (1, 2, 3):
        assert_close(kept / f"hop{number}.npy", exact[number])
    assert sorted(each.name for each in tmp_path.iterdir()) == ["graph", "h", "h.npy", "x.npy"]


# Torch, of the sparse matrices that SIGN makes.
@pytest.mark.filterwarnings("ignore:Sparse (CSC|CSR|invariant):UserWarning")
def test_as_pyg_has_it(edge_index: Tensor, stored: StoredGraph, x: Tensor, tmp_path: Path) -> None:
    pyg = pytest.importorskip("torch_geometric")
    from torch_geometric.nn import APPNP, SGConv

    np.save(tmp_path / "f.npy", x.float().numpy())
    features = x.float()
    found = onehop.hops(stored, tmp_path / "f.npy", 4, tmp_path / "sgc.npy", memory=SMALL)
    layer = SGConv(WIDTH, WIDTH, K=4, bias=False)
    with torch.no_grad():
        layer.lin.weight.copy_(torch.eye(WIDTH))
        assert_close(found, layer(features, edge_index), 1e-5)
    found = onehop.hops(stored, tmp_path / "f.npy", 10, tmp_path / "appnp.npy", teleport=0.1, memory=SMALL)
    assert_close(found, APPNP(10, 0.1)(features, edge_index), 1e-5)
    data = pyg.data.Data(x=features, edge_index=edge_index, num_nodes=NODES)
    data = pyg.transforms.SIGN(3)(data)
    kept = onehop.hops(
        stored, tmp_path / "f.npy", 3, tmp_path / "sign", normalise="symmetric", keep="all", memory=SMALL
    )
    for number in (1, 2, 3):
        assert_close(kept / f"hop{number}.npy", data[f"x{number}"], 1e-5)


@pytest.mark.parametrize("memory", [64, 640, 1 << 20])
def test_loops(edge_index: Tensor, stored: StoredGraph, tmp_path: Path, memory: int) -> None:
    """In pieces of one edge, of ten, and of all."""
    looped = with_self_loops(stored, tmp_path / "loops", memory)
    plain, graph = stored.load(), looped.load()
    for node in range(NODES):
        before = plain.col[plain.rowptr[node] : plain.rowptr[node + 1]].tolist()
        after = graph.col[graph.rowptr[node] : graph.rowptr[node + 1]].tolist()
        assert after == [source for source in before if source != node] + [node]


@pytest.mark.parametrize("step", [1, 7, 30, NODES, 1000])
def test_blocks_of_matrices_in_any_file(x: Tensor, tmp_path: Path, step: int) -> None:
    kinds = (("float16", "C"), ("float32", "F"), ("float64", "C"), ("float64", "F"))
    files = {}
    for dtype, order in kinds:
        np.save(tmp_path / f"{dtype}{order}.npy", np.asarray(x.numpy().astype(dtype), order=order))
        files[dtype, order] = MatrixFile.open("x", tmp_path / f"{dtype}{order}.npy")
    rows = NODES - 3
    found: dict[tuple[str, str], list[Tensor]] = {kind: [] for kind in kinds}
    for row, blocks in row_blocks(files, rows, step, 10_000):
        assert row == step * len(found[kinds[0]])
        for kind, block in blocks.items():
            found[kind].append(block.clone())
            block.fill_(-1)  # which they may be
    for (dtype, _), blocks_of_one in found.items():
        whole = torch.cat(blocks_of_one)
        assert whole.dtype == (torch.float64 if dtype == "float64" else torch.float32)
        np.testing.assert_array_equal(whole.numpy(), x.numpy().astype(dtype)[:rows])


@pytest.mark.parametrize("keep", ["last", "all"])
def test_an_interrupted_run_goes_on_with_the_hop_it_was_at(
    edge_index: Tensor, stored: StoredGraph, x: Tensor, tmp_path: Path, monkeypatch: Any, keep: str
) -> None:
    out, work = tmp_path / "out.npy", tmp_path / "out.npy.hops"
    made: list[str] = []
    aggregate = several_hops.streaming.aggregate

    def noted(*given: Any) -> Path:
        made.append(given[4].name)
        if keep == "last":
            assert len(list(work.glob("hop*.npy"))) <= 1
        if len(made) in stops:
            raise Stop
        return aggregate(*given)

    monkeypatch.setattr(several_hops.streaming, "aggregate", noted)
    stops = [1, 3, 5]
    for _ in range(3):
        with pytest.raises(Stop):
            onehop.hops(stored, tmp_path / "x.npy", 4, out, keep=keep, memory=SMALL)
        assert not out.exists()
    onehop.hops(stored, tmp_path / "x.npy", 4, out, keep=keep, memory=SMALL)
    # Each is tried again where it failed, and none that is done.
    assert made == [f"hop{number}.npy" for number in (1, 1, 2, 2, 3, 3, 4)]
    assert_close(out if keep == "last" else out / "hop4.npy", after(edge_index, x, 4))
    assert not work.exists()


def test_a_run_of_something_else_is_begun_anew(
    edge_index: Tensor, stored: StoredGraph, x: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.npy"
    for change in ("count", "x", "note"):
        with monkeypatch.context() as patch:
            patch.setattr(several_hops, "_finish", stop)
            with pytest.raises(Stop):
                onehop.hops(stored, tmp_path / "x.npy", 3, out, memory=SMALL)
        if change == "x":
            np.save(tmp_path / "x.npy", x.numpy() + 1)
            os.utime(tmp_path / "x.npy", ns=(1, 1))
        elif change == "note":
            (tmp_path / "out.npy.hops" / "request.json").write_text("[")
        count = 2 if change == "count" else 3
        onehop.hops(stored, tmp_path / "x.npy", count, out, memory=SMALL)
        assert_close(out, after(edge_index, torch.from_numpy(np.load(tmp_path / "x.npy")), count))


def test_a_run_that_ended_before_it_had_cleaned_up(
    edge_index: Tensor, stored: StoredGraph, x: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("onehop.streaming.work_folder.shutil.rmtree", stop)
        with pytest.raises(Stop):
            onehop.hops(stored, tmp_path / "x.npy", 2, tmp_path / "out.npy", memory=SMALL)
    for _ in range(2):
        assert_close(tmp_path / "out.npy", after(edge_index, x, 2))
        onehop.hops(stored, tmp_path / "x.npy", 2, tmp_path / "out.npy", memory=SMALL)
    assert not (tmp_path / "out.npy.hops").exists()


def test_files_written_to_during_a_run_are_told(
    stored: StoredGraph, x: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = several_hops._walk

    def changed(*given: Any) -> Path:
        os.utime(tmp_path / "x.npy", ns=(1, 1))
        return walk(*given)

    monkeypatch.setattr(several_hops, "_walk", changed)
    with pytest.raises(FileFormatError, match="was written to while it was read"):
        onehop.hops(stored, tmp_path / "x.npy", 2, tmp_path / "out.npy", memory=SMALL)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["graph", "x.npy"]


def test_bad_arguments(stored: StoredGraph, x: Tensor, tmp_path: Path) -> None:
    np.save(tmp_path / "long.npy", np.ones((NODES + 1, 2)))
    bipartite = Graph.from_edge_index(torch.tensor([[0], [0]]), size=(2, 3)).save(tmp_path / "b")

    def refused(message: str, graph: Any = stored, name: str = "x.npy", count: int = 2, **how: Any) -> None:
        with pytest.raises(ArgumentError, match=message):
            onehop.hops(graph, tmp_path / name, count, how.pop("out", tmp_path / "o.npy"), **how)
        assert not (tmp_path / "o.npy.hops").exists()

    refused("graph: expected a graph on disk, got Graph", graph=stored.load())
    refused("as many sources as destinations, got 2 and 3", graph=bipartite)
    refused("count: expected 1 or more hops, got 0", count=0)
    refused("normalise: expected one of gcn, symmetric, mean, none, got 'row'", normalise="row")
    refused("keep: expected one of last, all, got 'some'", keep="some")
    refused("teleport: expected a probability, 0 to 1, got 2", teleport=2)
    refused("a row for each of the 60 nodes, and .* has 61", name="long.npy")
    refused("out: .* exists; remove it", out=tmp_path)
    with alone(tmp_path / "o.npy"), pytest.raises(StorageError, match="is being written by another run"):
        onehop.hops(stored, tmp_path / "x.npy", 2, tmp_path / "o.npy")
    with pytest.raises(ArgumentError, match="graph: loops need as many"):
        with_self_loops(bipartite, tmp_path / "l", 1000)
