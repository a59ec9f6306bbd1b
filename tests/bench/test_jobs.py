import pytest

from onehop.bench import sources
from onehop.bench.recipes import PUBLISHED
from onehop.bench.sources import jobs


def described(found):
    return [(job.source, job.is_own, job.cases) for job in found]


def test_published_models_have_graphs_and_widths_of_their_own():
    found = jobs(["cora-gat", "ogb-gcn", "ogb-sage"])
    assert described(found) == [
        ("cora", True, (("cora-gat", 64),)),
        ("arxiv", True, (("ogb-gcn", 256), ("ogb-sage", 256))),
    ]


def test_other_models_go_over_all_benchmark_graphs():
    found = jobs(["gcn"])
    assert [job.source for job in found] == ["arxiv", "reddit-mini", "road", "cora"]
    assert all(job.cases == (("gcn", 32), ("gcn", 128)) and not job.is_own for job in found)


def test_graphs_and_widths_that_are_named_are_those_of_all():
    assert described(jobs(["ogb-gcn", "gcn"], ["road"], [8])) == [
        ("road", False, (("ogb-gcn", 8), ("gcn", 8)))
    ]


def test_every_published_model_has_a_graph():
    assert {recipe.graph for recipe in PUBLISHED.values()} == set(sources.OWN)


def test_coras_features_are_shares(monkeypatch, tmp_path):
    monkeypatch.setenv("ONEHOP_DATA", str(tmp_path))
    task = sources.OWN["cora"](None)
    assert task.name == "twin:cora"
    assert task.notes == ("it stands for Cora, as ONEHOP_DATA names no folder with cora.npz",)
    sums = task.x.sum(dim=1)
    assert sums[sums > 0] == pytest.approx(1)
    monkeypatch.delenv("ONEHOP_DATA")
    assert sources.OWN["cora"](None).name == "twin:cora"


def test_real_cora_has_its_public_split_in_numbers():
    import os
    from pathlib import Path

    folder = os.environ.get("ONEHOP_DATA")
    if folder is None or not (Path(folder) / "cora.npz").exists():
        pytest.skip("ONEHOP_DATA names no folder with cora.npz")
    task = sources.OWN["cora"](None)
    assert (task.name, task.notes, task.x.shape) == ("cora", (), (2708, 1433))
    assert (int(task.train_mask.sum()), int(task.test_mask.sum())) == (140, 1000)
