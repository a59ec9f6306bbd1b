"""The block model: what its rows promise, and what its figures do."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch

from onehop import ArgumentError
from onehop.datasets import degree_tail
from onehop.datasets.block_model import BlockModel, Rows
from onehop.datasets.native import extension
from tests.datasets.checks import check_edges, check_progress

MODEL = BlockModel(
    num_nodes=20_000, num_pairs=200_000, tail=3.0, largest_degree=1_000, community=60.0, inside=0.8
)


def made(model: BlockModel = MODEL, seed: int = 0, scale: float = 1.0) -> Rows:
    return model.generate(seed, scale, lambda _what, _done: None)


def same(one: Rows, other: Rows) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def rows() -> Rows:
    return made()


def ends(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(len(rows.rowptr) - 1), np.diff(rows.rowptr)), rows.col.astype(np.int64)


@pytest.mark.parametrize("scale", [1.0, 0.3, 1e-9], ids=str)
def test_symmetric_simple_and_exactly_as_many(scale: float) -> None:
    rows = made(scale=scale)
    num_nodes = max(1, round(MODEL.num_nodes * scale))
    row, col = ends(rows)
    assert len(rows.rowptr) == num_nodes + 1
    assert len(col) == 2 * round(MODEL.num_pairs * scale)
    check_edges(row, col, num_nodes)
    assert len(rows.community) == num_nodes


def test_dtypes(rows: Rows) -> None:
    assert (rows.rowptr.dtype, rows.col.dtype, rows.community.dtype) == (np.int64, np.int32, np.int32)


def test_degrees_follow_the_tail(rows: Rows) -> None:
    found = np.sort(np.diff(rows.rowptr))[::-1]
    wanted = degree_tail.degrees(MODEL.num_nodes, 20.0, MODEL.tail, MODEL.largest_degree)[::-1]
    # Averages over ranks, where chance evens out; repeats that are dropped cost the hubs a little.
    for ranks in (slice(0, 20), slice(20, 200), slice(200, 2_000), slice(2_000, 20_000)):
        assert found[ranks].mean() == pytest.approx(wanted[ranks].mean(), rel=0.2)


def test_hubs_and_communities_lie_anywhere(rows: Rows) -> None:
    hubs = np.argsort(np.diff(rows.rowptr))[-200:]
    assert hubs.mean() == pytest.approx(MODEL.num_nodes / 2, rel=0.15)
    where = np.flatnonzero(rows.community == rows.community[0])
    assert len(where) > 5
    assert np.ptp(where) > MODEL.num_nodes / 4


def inside(rows: Rows) -> float:
    row, col = ends(rows)
    return float((rows.community[row] == rows.community[col]).mean())


def test_communities_have_the_mean_size_and_hold_their_share(rows: Rows) -> None:
    sizes = np.bincount(rows.community)
    assert sizes.min() > 0
    assert sizes.mean() == pytest.approx(MODEL.community, rel=0.2)
    # What hubs cannot have inside they have outside, so it is less than what was asked for.
    assert 0.5 < inside(rows) < MODEL.inside
    assert 0.2 < inside(made(replace(MODEL, inside=0.3))) < 0.3
    assert inside(made(replace(MODEL, inside=0.0))) == 0.0


def clustering(rows: Rows) -> float:
    num_nodes = len(rows.rowptr) - 1
    matrix = scipy.sparse.csr_array(
        (np.ones(len(rows.col), dtype=np.int32), rows.col, rows.rowptr), shape=(num_nodes, num_nodes)
    )
    degrees = np.diff(rows.rowptr)
    triangles = (matrix * (matrix @ matrix)).sum(axis=1)
    several = degrees > 1
    return float((triangles[several] / (degrees * (degrees - 1))[several]).mean())


def test_communities_make_triangles() -> None:
    small = replace(MODEL, num_nodes=4_000, num_pairs=40_000, largest_degree=200)
    assert clustering(made(small)) > 5 * clustering(made(replace(small, inside=0.0)))


def test_the_seed_decides(rows: Rows) -> None:
    assert same(made(), rows)
    assert not np.array_equal(made(seed=1).col[:1000], rows.col[:1000])


@pytest.mark.parametrize("count", [2, 5])
def test_the_number_of_threads_does_not(rows: Rows, count: int) -> None:
    torch.set_num_threads(1)
    alone = made()
    torch.set_num_threads(count)
    assert same(made(), alone)
    assert same(alone, rows)


def test_progress_rises_to_the_whole() -> None:
    told: list[float] = []
    MODEL.generate(0, 0.5, lambda what, done: told.append(done))
    check_progress(told)
    assert len(told) > 20


def test_too_few_nodes_for_the_edges() -> None:
    dense = replace(MODEL, num_pairs=2_000_000)
    with pytest.raises(ArgumentError, match=r"choose at least 0\.082"):
        made(dense, scale=0.05)
    assert len(made(dense, scale=0.082).col) == 2 * round(2_000_000 * 0.082)


def test_too_many_edges_for_memory() -> None:
    huge = replace(MODEL, num_nodes=10**8, num_pairs=10**9)
    with pytest.raises(ArgumentError, match=r"about 37\.25 GiB to make; choose at most 0\.27"):
        made(huge)


def test_communities_larger_than_the_graph_become_quarters() -> None:
    rows = made(replace(MODEL, community=1e9, inside=0.2), scale=0.05)
    assert np.bincount(rows.community).tolist() == [250] * 4
    assert len(rows.col) == 2 * 10_000


def test_the_table_of_weights_gives_every_node_its_share() -> None:
    weights = np.array([0.0, 1.0, 2.0, 5.0, 0.0, 8.0])
    threshold, alias = np.empty(6, dtype=np.uint32), np.empty(6, dtype=np.int32)
    assert extension.block_alias(weights.ctypes.data, 6, threshold.ctypes.data, alias.ctypes.data)
    share = threshold / 2**32
    np.add.at(share, alias, 1 - threshold / 2**32)
    np.testing.assert_allclose(share / 6, weights / weights.sum(), atol=1e-8)


def test_without_weights_there_is_no_table() -> None:
    weights, threshold, alias = np.zeros(3), np.empty(3, dtype=np.uint32), np.empty(3, dtype=np.int32)
    assert not extension.block_alias(weights.ctypes.data, 3, threshold.ctypes.data, alias.ctypes.data)
