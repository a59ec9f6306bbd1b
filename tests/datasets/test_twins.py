"""Twins: sizes, determinism, what can be learnt, and the cache on disk."""

import logging
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

from onehop import ArgumentError
from onehop.datasets import Dataset, load, names, store, twin, twins as twins_module
from onehop.datasets.community_twins import COMMUNITY_TWINS
from tests.datasets.checks import accuracy, adjacency, chance, check_edges, check_progress, name_of, same

SIZES = {
    "arxiv": (169_343, 2_315_598, 128, 40),
    "cora": (2_708, 10_556, 1_433, 7),
    "pubmed": (19_717, 88_648, 500, 3),
    "reddit-mini": (58_000, 11_000_000, 128, 41),
    "road": (250_000, 998_000, 16, 16),
}
# Small enough for tests, large enough for every class.
SCALES = {"arxiv": 0.05, "cora": 1.0, "pubmed": 0.5, "reddit-mini": 0.03, "road": 0.1}


@pytest.fixture(scope="module", params=sorted(SIZES))
def small(request: pytest.FixtureRequest) -> Dataset:
    return twin(request.param, scale=SCALES[request.param])


def masks_of(dataset: Dataset) -> torch.Tensor:
    return torch.stack([dataset.train_mask, dataset.val_mask, dataset.test_mask])


def test_the_names_are_those_of_the_table() -> None:
    assert {*SIZES, *COMMUNITY_TWINS} == set(names())
    for name in names():
        assert name in twin.__doc__


@pytest.mark.parametrize("name", ["arxiv", "cora", "pubmed", "road"])
def test_whole_twins_have_the_size_of_the_table(name: str) -> None:
    dataset = twin(name)
    found = (dataset.num_nodes, dataset.num_edges, dataset.num_features, dataset.num_classes)
    assert found == SIZES[name]
    assert dataset.name == f"twin:{name}"


def test_arxiv_is_split_as_the_original() -> None:
    assert masks_of(twin("arxiv")).sum(dim=1).tolist() == [90_941, 29_799, 48_603]


def test_cora_is_split_as_the_original() -> None:
    dataset = twin("cora")
    assert masks_of(dataset).sum(dim=1).tolist() == [140, 500, 1000]
    assert torch.bincount(dataset.y[dataset.train_mask]).tolist() == [20] * 7
    assert set(dataset.x.unique().tolist()) == {0.0, 1.0}
    assert dataset.x.sum(dim=1).mean() == pytest.approx(18, abs=3)


def test_the_scale_multiplies_nodes_and_edges(small: Dataset) -> None:
    nodes, edges, features, classes = SIZES[name_of(small)]
    scale = SCALES[name_of(small)]
    assert small.num_nodes == pytest.approx(nodes * scale, rel=0.01)
    assert small.num_edges == pytest.approx(edges * scale, rel=0.01)
    assert (small.num_features, small.num_classes) == (features, classes)


def test_edges_go_both_ways_without_repeats_and_loops(small: Dataset) -> None:
    check_edges(*small.edge_index, small.num_nodes)


def test_tensors_are_of_the_promised_kind(small: Dataset) -> None:
    assert small.edge_index.dtype == small.y.dtype == torch.int64
    assert small.x.dtype == torch.float32
    assert small.x.shape == (small.num_nodes, small.num_features)
    assert bool(small.x.isfinite().all())
    assert torch.bincount(small.y, minlength=small.num_classes).min() > 0
    assert small.y.max() == small.num_classes - 1
    assert masks_of(small).dtype == torch.bool
    assert masks_of(small).sum(dim=0).max() == 1
    assert masks_of(small).sum(dim=1).min() > 0


@pytest.mark.parametrize("name", ["arxiv", "reddit-mini"])
def test_degrees_are_skewed(name: str) -> None:
    dataset = twin(name, scale=SCALES[name])
    degrees = torch.bincount(dataset.edge_index[0], minlength=dataset.num_nodes).double()
    assert degrees.max() > 5 * degrees.mean()
    assert degrees.median() < 0.8 * degrees.mean()


def test_the_graph_tells_more_than_the_features_and_neither_tells_all(small: Dataset) -> None:
    x = small.x.double().numpy()
    matrix = adjacency(small)
    scale = scipy.sparse.diags_array(matrix.sum(axis=1) ** -0.5)
    step = scale @ matrix @ scale
    alone, twice = accuracy(x, small), accuracy(step @ (step @ x), small)
    assert alone > chance(small) + 0.1
    assert twice > alone + 0.15
    assert twice < 0.97


@pytest.mark.parametrize("name", sorted(SIZES))
def test_the_seed_decides(name: str, own_cache: Path) -> None:
    scale = SCALES[name] / 2
    first, other = twin(name, seed=5, scale=scale), twin(name, seed=6, scale=scale)
    for file in (own_cache / "datasets").iterdir():
        file.unlink()
    assert same(twin(name, seed=5, scale=scale), first)
    assert not torch.equal(first.x, other.x)
    assert not torch.equal(first.y, other.y)


@pytest.fixture
def made(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The twins that were generated, not read."""
    calls: list[str] = []
    generate = twins_module._Road.make

    def counted(self, name, seed, scale, progress):
        calls.append(name)
        return generate(self, name, seed, scale, progress)

    monkeypatch.setattr(twins_module._Road, "make", counted)
    return calls


def test_a_twin_is_kept_on_disk(own_cache: Path, made: list[str]) -> None:
    first, second = twin("road", scale=0.01), twin("road", scale=0.01)
    assert same(first, second)
    assert len(made) == 1
    assert [file.suffix for file in (own_cache / "datasets").iterdir()] == [".npz"]


def test_seeds_and_scales_are_kept_apart(made: list[str]) -> None:
    for seed, scale in ((0, 0.01), (1, 0.01), (0, 0.0100001), (0, 0.01)):
        twin("road", seed=seed, scale=scale)
    assert len(made) == 3


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


@pytest.mark.parametrize(
    "damage",
    [lambda c: c[: len(c) // 2], lambda c: b"", lambda c: b"no archive at all", flip],
    ids=["truncated", "empty", "foreign", "one byte flipped"],
)
def test_a_damaged_file_is_made_anew(own_cache: Path, made: list[str], damage, caplog) -> None:
    first = twin("road", scale=0.01)
    (path,) = (own_cache / "datasets").iterdir()
    path.write_bytes(damage(path.read_bytes()))
    with caplog.at_level(logging.WARNING, logger="onehop"):
        assert same(twin("road", scale=0.01), first)
    assert "is damaged" in caplog.text
    assert str(path) in caplog.text
    assert len(made) == 2
    assert same(twin("road", scale=0.01), first)
    assert len(made) == 2


KEYS = {"name": np.array("x"), "counts": np.array([4, 1]), "edge_index": np.zeros((2, 0), dtype=np.int32)}


@pytest.mark.parametrize(
    "arrays",
    [
        {"edge_index": np.zeros((2, 3), dtype=np.int32)},
        KEYS | {"edge_index": np.zeros((3, 3), dtype=np.int32)},
        KEYS | {"x": np.zeros((2, 2))},
        KEYS | {"odd": np.zeros(4)},
        KEYS | {"edge_index": np.array([{}], dtype=object)},
    ],
    ids=["keys missing", "wrong shape", "wrong length", "unknown key", "objects"],
)
def test_a_file_of_another_kind_is_made_anew(own_cache: Path, made: list[str], arrays, caplog) -> None:
    twin("road", scale=0.01)
    (path,) = (own_cache / "datasets").iterdir()
    np.savez(path, **arrays)
    with caplog.at_level(logging.WARNING, logger="onehop"):
        twin("road", scale=0.01)
    assert "is damaged" in caplog.text
    assert len(made) == 2


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path, made, monkeypatch, caplog) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("ONEHOP_CACHE_DIR", str(blocked))
    with caplog.at_level(logging.WARNING, logger="onehop"):
        assert twin("road", scale=0.01).num_nodes == 2500
    assert "cannot be written" in caplog.text


def test_nothing_is_left_behind_when_writing_fails(own_cache: Path, made, monkeypatch, caplog) -> None:
    def full(*_arguments: object, **_arrays: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", full)
    with caplog.at_level(logging.WARNING, logger="onehop"):
        twin("road", scale=0.01)
    assert "no space left" in caplog.text
    assert list((own_cache / "datasets").iterdir()) == []


@pytest.mark.parametrize("name", sorted(SIZES))
def test_progress_rises_to_the_whole(own_cache: Path, name: str) -> None:
    told: list[tuple[str, float]] = []
    twin(name, scale=SCALES[name] / 4, progress=lambda what, done: told.append((what, done)))
    check_progress([done for _, done in told])
    assert all(what for what, _ in told)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"name": "nothing"},
            "no twin is called 'nothing'; there are amazon, amazonproducts, .* reddit2, road",
        ),
        ({"name": "road", "seed": -1}, "seed: expected zero or more"),
        ({"name": "road", "scale": 0}, "scale: expected a positive number"),
        ({"name": "road", "scale": float("nan")}, "scale: expected a positive number"),
        ({"name": "road", "scale": float("inf")}, "scale: expected a positive number"),
    ],
    ids=str,
)
def test_bad_arguments(arguments: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        twin(**arguments)


def test_the_smallest_twin_has_a_node_for_each_class() -> None:
    dataset = twin("cora", scale=1e-9)
    assert dataset.y.unique().numel() <= dataset.num_classes == dataset.num_nodes == 7
    assert dataset.num_edges == 0


def test_a_short_name_names_a_twin() -> None:
    assert same(load("twin:road", seed=2, scale=0.01), twin("road", seed=2, scale=0.01))


def test_features_can_be_left_out() -> None:
    whole, bare = twin("road", scale=0.01), twin("road", scale=0.01, features=False)
    assert bare.x is None
    assert bare.num_features == 0
    assert torch.equal(whole.edge_index, bare.edge_index)
    assert torch.equal(whole.y, bare.y)


@pytest.mark.parametrize("spec", ["road", "twins:road", "file.npz", "", "twin"])
def test_an_unknown_prefix(spec: str) -> None:
    with pytest.raises(ArgumentError, match=r"expected twin:NAME .* A file is read by"):
        load(spec)


def test_the_cache_lies_below_the_configured_folder(own_cache: Path) -> None:
    assert store.folder() == own_cache / "datasets"


def test_repr_says_what_it_is() -> None:
    text = repr(twin("road", scale=0.01))
    assert text == (
        "Dataset('twin:road x 0.01', num_nodes=2500, num_edges=9800, num_features=16, num_classes=16)"
    )


@pytest.mark.parametrize(
    "tensors",
    [
        {"edge_index": torch.zeros(3, 2, dtype=torch.long)},
        {"edge_index": torch.zeros(2, 2, dtype=torch.long), "y": torch.zeros(4)},
        {"edge_index": torch.zeros(2, 2, dtype=torch.long), "train_mask": torch.zeros(2, dtype=torch.bool)},
    ],
    ids=["edge_index", "y", "train_mask"],
)
def test_a_data_set_checks_its_lengths(tensors: dict[str, torch.Tensor]) -> None:
    with pytest.raises(ArgumentError, match="expected"):
        Dataset(name="wrong", num_nodes=3, **tensors)
