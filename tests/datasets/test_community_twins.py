"""Twins of large graphs, at small scales: sizes, labels, the cache, and which reads neighbours share."""

import logging
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

from onehop import ArgumentError, Graph
from onehop.datasets import Dataset, block_model, twin
from onehop.datasets.community_twins import COMMUNITY_TWINS
from tests.datasets.checks import accuracy, adjacency, chance, check_edges, check_progress, name_of, same

# Nodes, edges, features, classes; and a scale that is small enough for tests.
SIZES_AND_SCALES = {
    "amazon": (410_236, 4_878_874, 96, 22, 0.02),
    "amazonproducts": (1_569_960, 264_339_468, 200, 107, 0.002),
    "arxiv-communities": (169_343, 2_315_598, 128, 40, 0.1),
    "mag": (736_389, 10_792_672, 128, 349, 0.02),
    "papers": (111_059_956, 3_228_124_712, 128, 172, 1e-4),
    "products": (2_449_029, 123_718_152, 100, 47, 0.01),
    "proteins": (132_534, 79_122_504, 8, 112, 0.04),
    "reddit": (232_965, 114_615_892, 602, 41, 0.02),
    "reddit2": (232_965, 23_213_838, 602, 41, 0.01),
}
SIZES = {name: row[:4] for name, row in SIZES_AND_SCALES.items()}
SCALES = {name: row[4] for name, row in SIZES_AND_SCALES.items()}
TABLE = [line.split() for line in twin.__doc__.splitlines()]


@pytest.fixture(scope="module", params=sorted(SIZES))
def small(request: pytest.FixtureRequest) -> Dataset:
    return twin(request.param, scale=SCALES[request.param])


def test_the_figures_are_those_of_the_table() -> None:
    assert set(COMMUNITY_TWINS) == set(SIZES)
    for name, (nodes, edges, features, classes) in SIZES.items():
        figures = COMMUNITY_TWINS[name]
        assert (figures.model.num_nodes, 2 * figures.model.num_pairs) == (nodes, edges)
        assert (figures.width, figures.num_classes) == (features, classes)
        assert [name, *(f"{number:,}" for number in SIZES[name])] in TABLE


def test_the_scale_multiplies_nodes_and_edges(small: Dataset) -> None:
    nodes, edges, features, classes = SIZES[name_of(small)]
    scale = SCALES[name_of(small)]
    assert small.num_nodes == round(nodes * scale)
    assert small.num_edges == 2 * round(edges / 2 * scale)
    assert (small.num_features, small.num_classes) == (features, classes)


def test_edges_go_both_ways_without_repeats_and_loops_in_a_graphs_order(small: Dataset) -> None:
    source, target = small.edge_index
    check_edges(target, source, small.num_nodes)
    assert small.edge_index.dtype == torch.int64
    assert Graph.from_edge_index(small.edge_index, small.num_nodes).perm is None


def test_labels_and_parts(small: Dataset) -> None:
    assert small.y.dtype == torch.int64
    assert small.y.min() >= 0
    assert small.y.max() < small.num_classes
    masks = torch.stack([small.train_mask, small.val_mask, small.test_mask])
    assert masks.sum(dim=0).tolist() == [1] * small.num_nodes
    assert masks.sum(dim=1).min() > 0


@pytest.mark.parametrize("name", ["amazon", "arxiv-communities", "products"])
def test_the_graph_tells_more_than_the_features(name: str) -> None:
    dataset = twin(name, scale=SCALES[name])
    x = dataset.x.double().numpy()
    matrix = adjacency(dataset)
    mean = scipy.sparse.diags_array(1 / matrix.sum(axis=1)) @ matrix
    alone, once = accuracy(x, dataset), accuracy(mean @ x, dataset)
    assert alone > chance(dataset) + 0.1
    assert once > alone + 0.1


def shared_reads(dataset: Dataset, order: np.ndarray, tile: int) -> float:
    """Share of reads saved when ``tile`` nodes at a time read each of their neighbours, or selves, once."""
    place = np.empty(dataset.num_nodes, dtype=np.int64)
    place[order] = np.arange(dataset.num_nodes) // tile
    loops = np.arange(dataset.num_nodes)
    source, target = dataset.edge_index.numpy()
    source, target = np.concatenate([source, loops]), np.concatenate([target, loops])
    return 1 - len(np.unique(place[target] * dataset.num_nodes + source)) / len(source)


def by_lists(dataset: Dataset) -> np.ndarray:
    """Nodes in the order in which they first appear when rows and selves are read one by one."""
    loops = np.arange(dataset.num_nodes)
    source, target = dataset.edge_index.numpy()
    source, target = np.concatenate([source, loops]), np.concatenate([target, loops])
    in_rows = source[np.lexsort((source, target))]
    _, first = np.unique(in_rows, return_index=True)
    order: np.ndarray = in_rows[np.sort(first)]
    return order


def test_index_order_shares_what_degrees_alone_say(small: Dataset) -> None:
    degrees = np.bincount(small.edge_index[1].numpy(), minlength=small.num_nodes) + 1.0
    nodes, tile = small.num_nodes, 16
    expected = 1 - (nodes / tile * (1 - (1 - degrees / nodes) ** tile)).sum() / degrees.sum()
    assert shared_reads(small, np.arange(nodes), tile) == pytest.approx(expected, abs=0.015)


@pytest.mark.parametrize("name", ["amazon", "arxiv-communities", "mag", "products"])
def test_lists_of_neighbours_share_more(name: str) -> None:
    dataset = twin(name, scale=SCALES[name], features=False)
    index = shared_reads(dataset, np.arange(dataset.num_nodes), 16)
    assert shared_reads(dataset, by_lists(dataset), 16) > index + 0.05


@pytest.fixture
def made(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for every graph that was generated, not read."""
    calls: list[int] = []
    generate = block_model.BlockModel.generate

    def counted(self, seed, scale, progress):
        calls.append(seed)
        return generate(self, seed, scale, progress)

    monkeypatch.setattr(block_model.BlockModel, "generate", counted)
    return calls


def test_kept_on_disk_and_the_rest_drawn_anew_alike(made: list[int]) -> None:
    first, second = twin("amazon", scale=0.01), twin("amazon", scale=0.01)
    assert same(first, second)
    assert made == [0]
    other = twin("amazon", seed=1, scale=0.01)
    assert made == [0, 1]
    for name in ("edge_index", "x", "y", "train_mask"):
        assert not torch.equal(getattr(first, name), getattr(other, name))


def test_features_can_be_left_out(made: list[int]) -> None:
    bare, whole = twin("amazon", scale=0.01, features=False), twin("amazon", scale=0.01)
    assert made == [0]
    assert bare.x is None
    assert torch.equal(bare.edge_index, whole.edge_index)
    assert torch.equal(bare.y, whole.y)
    assert whole.num_features == 96


@pytest.mark.parametrize(
    "arrays",
    [
        {"degrees": np.array([1, 1]), "col": np.array([1], np.int32), "community": np.array([0, 0])},
        {"degrees": np.array([1, 1]), "col": np.array([1, 0], np.int32), "community": np.array([0])},
        {"degrees": np.array([1, 1])},
    ],
    ids=["edges missing", "communities missing", "keys missing"],
)
def test_a_damaged_file_is_made_anew(own_cache: Path, made: list[int], arrays, caplog) -> None:
    first = twin("amazon", scale=0.01)
    (path,) = (own_cache / "datasets").iterdir()
    np.savez(path, **arrays)
    with caplog.at_level(logging.WARNING, logger="onehop"):
        assert same(twin("amazon", scale=0.01), first)
    assert "is damaged" in caplog.text
    assert made == [0, 0]


def test_progress_rises_to_the_whole(own_cache: Path) -> None:
    told: list[float] = []
    twin("products", scale=0.005, progress=lambda what, done: told.append(done))
    check_progress(told)


@pytest.mark.parametrize(
    ("name", "scale", "message"),
    [
        ("papers", 1.0, r"would take about 60\.\d+ GiB .* choose at most 0\.16"),
        ("reddit", 0.001, "at least 0.017"),
    ],
    ids=["too large", "too small"],
)
def test_impossible_scales(own_cache: Path, name: str, scale: float, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        twin(name, scale=scale)


def test_every_twin_of_this_kind_has_a_share_for_each_part() -> None:
    for figures in COMMUNITY_TWINS.values():
        assert figures.train > 0
        assert figures.val > 0
        assert figures.train + figures.val < 1
