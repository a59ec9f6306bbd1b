"""Aggregation of files of 16 bits, of raw files, and with scales, against the same in memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import onehop
from onehop import ArgumentError, FileFormatError, Graph, RawMatrix
from onehop.graph.stored import StoredGraph
from onehop.ops.streaming.matrix_file import MatrixFile
from onehop.ops.streaming.tiles import tiling
from tests.pairs import pairwise

NODES, SOURCES, EDGES, WIDTH = 90, 200, 1200, 40
SMALL = 30_000


@pytest.fixture
def graph(generator: torch.Generator) -> Graph:
    edge_index = torch.stack(
        [torch.randint(0, size, (EDGES,), generator=generator) for size in (SOURCES, NODES)]
    )
    edge_index[1, :400] = 7
    return Graph.from_edge_index(edge_index, size=(SOURCES, NODES))


@pytest.fixture
def x(generator: torch.Generator) -> torch.Tensor:
    return torch.randn(SOURCES, WIDTH, generator=generator)


def raw(path: Path, x: torch.Tensor, by_columns: bool, offset: int = 0) -> RawMatrix:
    numbers = x.t().contiguous() if by_columns else x.contiguous()
    path.write_bytes(bytes(offset) + numbers.view(torch.uint8).numpy().tobytes())
    return RawMatrix(path, tuple(x.shape), str(x.dtype).removeprefix("torch."), by_columns, offset)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_float16_has_the_bits_of_float16_in_memory(
    graph: Graph, stored: StoredGraph, x: torch.Tensor, tmp_path: Path, reduce: str, order: str
) -> None:
    x = x.half()
    np.save(tmp_path / "x.npy", x.numpy() if order == "C" else np.asfortranarray(x.numpy()))
    plan = tiling(stored, MatrixFile.open("x", tmp_path / "x.npy"), False, SMALL)
    assert plan.columns < WIDTH
    out = onehop.aggregate(stored, tmp_path / "x.npy", reduce=reduce, out=tmp_path / "o.npy", memory=SMALL)
    found = np.load(out)
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, onehop.aggregate(graph, x, reduce=reduce).numpy())


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_raw_files(
    graph: Graph, stored: StoredGraph, x: torch.Tensor, tmp_path: Path, dtype: torch.dtype, by_columns: bool
) -> None:
    x = x.to(dtype)
    given = raw(tmp_path / "x.bin", x, by_columns, offset=24)
    found = np.load(onehop.aggregate(stored, given, out=tmp_path / "o.npy", memory=SMALL))
    # bfloat16 is not rounded again: .npy files do not have it.
    exact = onehop.aggregate(graph, x.float() if dtype == torch.bfloat16 else x)
    assert found.dtype == exact.numpy().dtype
    np.testing.assert_array_equal(found, exact.numpy())


@pairwise(reduce=["sum", "mean", "max"], weighted=[False, True], dtype=["float16", "float32", "float64"])
def test_scales(
    graph: Graph,
    stored: StoredGraph,
    x: torch.Tensor,
    tmp_path: Path,
    reduce: str,
    weighted: bool,
    dtype: str,
) -> None:
    np.save(tmp_path / "x.npy", x.numpy().astype(dtype))
    wide = torch.float64 if dtype == "float64" else torch.float32
    generator = torch.Generator().manual_seed(5)
    src, dst = (torch.randn(size, generator=generator).to(wide) for size in (SOURCES, NODES))
    weight = torch.randn(EDGES, generator=generator).to(wide) if weighted else None
    if weight is not None and graph.perm is not None:
        np.save(tmp_path / "w.npy", weight[graph.perm.long()].numpy())
    out = onehop.aggregate(
        stored,
        tmp_path / "x.npy",
        tmp_path / "w.npy" if weighted else None,
        reduce,
        src_scale=src,
        dst_scale=dst,
        out=tmp_path / "out.npy",
        memory=SMALL,
    )
    features = torch.from_numpy(x.numpy().astype(dtype))
    exact = onehop.aggregate(graph, features, weight, reduce, src_scale=src, dst_scale=dst)
    found = np.load(out)
    assert found.dtype == exact.numpy().dtype
    tolerance = 1e-12 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(found, exact.numpy(), rtol=tolerance, atol=tolerance)


def test_bad_arguments(stored: StoredGraph, x: torch.Tensor, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", x.numpy())
    given = raw(tmp_path / "x.bin", x, by_columns=False)
    call: dict[str, Any] = {"out": tmp_path / "out.npy", "memory": SMALL}
    for scale, got in (
        (torch.ones(3), r"got \[3\] torch.float32 on cpu"),
        (torch.ones(SOURCES).double(), r"got \[200\] torch.float64 on cpu"),
        ("s.npy", "got str"),
    ):
        with pytest.raises(ArgumentError, match=r"src_scale: with out, expected a tensor \[200\].*" + got):
            onehop.aggregate(stored, tmp_path / "x.npy", src_scale=scale, **call)
    with pytest.raises(ArgumentError, match="do not hold one column"):
        onehop.aggregate(
            stored, tmp_path / "x.npy", src_scale=torch.ones(SOURCES), out=tmp_path / "o.npy", memory=400
        )
    for wrong in (
        RawMatrix(given.path, (-1, 4)),
        RawMatrix(given.path, (200, 4), "int8"),
        RawMatrix(given.path, (200, 4), offset=-1),
    ):
        with pytest.raises(
            ArgumentError, match="x: expected a RawMatrix of a shape and an offset of 0 or more"
        ):
            onehop.aggregate(stored, wrong, **call)
    with pytest.raises(FileFormatError, match=r"x\.bin: truncated: 32000 bytes of 32001"):
        onehop.aggregate(stored, RawMatrix(given.path, (SOURCES, WIDTH), offset=1), **call)
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        onehop.aggregate(stored, RawMatrix("none.bin", (SOURCES, WIDTH)), **call)
