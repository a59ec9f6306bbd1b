import pytest
import torch

from onehop.bench.tasks import LearningTask, degree_features, degree_labels, load_task, save_task, split
from onehop.datasets import Dataset
from onehop.errors import ArgumentError
from tests.bench.small_graphs import task, workload


@pytest.fixture
def bare():
    small = workload()
    return Dataset(name="bare", edge_index=small.edge_index, num_nodes=small.num_nodes)


def test_a_bare_graph_gets_features_labels_and_a_split_and_says_so(bare):
    made = LearningTask.of(bare)
    assert made.x.shape == (40, 3)
    assert made.num_classes == 4
    assert made.train_mask.sum() == 24
    assert made.test_mask.sum() == 8
    assert not (made.train_mask & made.test_mask).any()
    assert [note.split(":")[0] for note in made.notes] == [
        "it has no features",
        "it has no labels",
        "it has no split",
    ]


def test_what_a_data_set_has_is_kept(bare):
    full = Dataset(
        name="full",
        edge_index=bare.edge_index,
        num_nodes=40,
        x=torch.ones(40, 2),
        y=torch.arange(40) % 2,
        num_classes=2,
        train_mask=torch.arange(40) < 20,
        val_mask=torch.zeros(40, dtype=torch.bool),
        test_mask=torch.arange(40) >= 20,
    )
    made = LearningTask.of(full)
    assert made.notes == ()
    assert torch.equal(made.x, full.x)
    assert torch.equal(made.test_mask, full.test_mask)


def test_a_graph_without_nodes_is_refused():
    empty = Dataset(name="empty", edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=0)
    with pytest.raises(ArgumentError, match="no nodes"):
        LearningTask.of(empty)


def test_degree_features_are_standardised(bare):
    x = degree_features(bare)
    assert torch.allclose(x[:, 1:].mean(0), torch.zeros(2), atol=1e-5)
    assert torch.allclose(x[:, 1:].std(0, correction=0), torch.ones(2), atol=1e-5)


def test_degree_features_of_a_regular_graph_are_finite():
    ring = torch.stack([torch.arange(6), (torch.arange(6) + 1) % 6])
    assert degree_features(Dataset(name="ring", edge_index=ring, num_nodes=6)).isfinite().all()


def test_degree_labels_rise_with_the_in_degree(bare):
    degrees = torch.bincount(bare.edge_index[1], minlength=40)
    labels = degree_labels(bare)[degrees.argsort()]
    assert (labels.diff() >= 0).all()
    assert set(labels.tolist()) == {0, 1, 2, 3}


def test_split_takes_known_labels_only():
    known = torch.arange(50) < 10
    train, test = split(known, seed=1)
    assert train.sum() == 6
    assert test.sum() == 2
    assert not ((train | test) & ~known).any()


def test_a_saved_task_comes_back(tmp_path):
    written = task()
    save_task(written, tmp_path / "task.npz")
    read = load_task(tmp_path / "task.npz")
    assert (read.name, read.num_classes) == ("small", 3)
    for name in ("edge_index", "x", "y", "train_mask", "test_mask"):
        assert torch.equal(getattr(read, name), getattr(written, name))
