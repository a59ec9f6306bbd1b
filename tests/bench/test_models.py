import contextlib

import pytest
import torch

from onehop import config
from onehop.bench import variants
from onehop.bench.models import ModelCase, ModelResult, measure, measure_model, measure_peaks
from onehop.bench.timing import Times
from onehop.bench.training import Training
from onehop.bench.variants import ONEHOP, PYG, Variant
from onehop.errors import ArgumentError
from tests.bench.small_graphs import simple_workload, task

pytest.importorskip("torch_geometric")


@pytest.mark.parametrize("model", ["gcn", "sage", "gin", "gin-norm", "gat", "gatv2", "transformer"])
def test_training_learns_what_the_features_tell(model):
    training = Training(model, task(), hidden=8)
    losses = [training.epoch() for _ in range(30)]
    assert losses[-1] < losses[0]
    assert 0 <= training.test_accuracy() <= 1


def test_training_is_seeded():
    first, second = Training("gcn", task(), 8, seed=3), Training("gcn", task(), 8, seed=3)
    assert [first.epoch() for _ in range(3)] == [second.epoch() for _ in range(3)]


@pytest.mark.parametrize("model", ["gat", "gatv2", "transformer"])
def test_attention_is_compared_with_edge_index_alone(model):
    result = measure_model(ModelCase(task(), simple_workload(), model, 8), variants.choose([]), rounds=1)
    assert result.wrong == {}
    assert set(result.times) == {"onehop", "pyg-edge_index"}
    assert "attention" in result.skipped["pyg-torch-csr"]


def test_peak_memory_is_that_of_processes_of_their_own():
    result = measure_model(ModelCase(task(), simple_workload(), "gcn", 8), [ONEHOP, PYG], rounds=1)
    measure_peaks(task(), result)
    assert set(result.peak_bytes) == {"onehop", "pyg-edge_index"}
    assert all(size > 0 for size in result.peak_bytes.values())
    assert result.to_dict()["peak_bytes"] == result.peak_bytes


@pytest.mark.parametrize("model", ["gcn", "sage", "gin"])
def test_every_variant_trains_alike(model):
    result = measure_model(
        ModelCase(task(), simple_workload(), model, 8), variants.choose(["keep_memory"]), rounds=1
    )
    assert result.wrong == {}
    assert {"onehop", "onehop-fresh-memory", "pyg-edge_index"} <= set(result.times)
    assert result.speedup() is not None


@pytest.mark.parametrize(
    ("model", "seconds", "as_authors", "best"),
    [
        ("ogb-gcn", {}, None, None),
        ("ogb-gcn", {"pyg-edge_index": 3.0, "onehop": 1.0}, None, "pyg-edge_index"),
        ("ogb-gcn", {"pyg-edge_index": 3.0, "pyg-torch-csr": 4.0}, "pyg-torch-csr", "pyg-edge_index"),
        ("ogb-gcn", {"pyg-torch-csr": 4.0, "pyg-SparseTensor": 2.0}, "pyg-SparseTensor", "pyg-SparseTensor"),
        ("cora-gcn", {"pyg-edge_index": 3.0, "pyg-torch-csr": 2.0}, "pyg-edge_index", "pyg-torch-csr"),
        ("cora-gcn", {"pyg-edge_index": 3.0, "pyg-isplib": 1.0}, "pyg-edge_index", "pyg-edge_index"),
    ],
)
def test_inputs_of_pyg_are_the_authors_and_the_fastest(model, seconds, as_authors, best):
    result = ModelResult("g", model, 8, times={name: Times((value,)) for name, value in seconds.items()})
    assert (result.as_authors, result.best_of_pyg) == (as_authors, best)
    assert (result.to_dict()["as_authors"], result.to_dict()["best_of_pyg"]) == (as_authors, best)


def test_a_variant_with_other_losses_is_reported_and_not_timed():
    shifted = Variant("shifted", lambda small: (small.edge_index + torch.tensor([[1], [0]])) % 40)
    result = measure_model(ModelCase(task(), simple_workload(), "sage", 8), [PYG, shifted], rounds=1)
    assert "off those of pyg-edge_index" in result.wrong["shifted"]
    assert list(result.times) == ["pyg-edge_index"]
    assert result.speedup() is None


def test_a_variant_that_fails_is_reported_and_not_timed():
    def fail():
        raise RuntimeError("expected Long\nbut found Float")

    failing = Variant("failing", lambda small: small.edge_index, fail)
    result = measure_model(ModelCase(task(), simple_workload(), "gcn", 8), [PYG, failing], rounds=1)
    assert result.wrong == {"failing": "fails to train: expected Long"}
    assert list(result.times) == ["pyg-edge_index"]


def test_a_variant_that_needs_too_much_memory_is_left_out(monkeypatch):
    monkeypatch.setattr("onehop.bench.models.MEMORY_SHARE", config.physical_memory_bytes() // 1000)
    result = measure_model(ModelCase(task(), simple_workload(), "gcn", 8), [ONEHOP, PYG], rounds=1)
    assert "B of messages (limit " in result.skipped["pyg-edge_index"]
    assert list(result.times) == ["onehop"]


def test_variants_are_entered_around_epochs_and_left():
    entered = []

    @contextlib.contextmanager
    def context():
        entered.append("in")
        yield
        entered.append("out")

    watched = Variant("watched", lambda small: small.edge_index, context)
    measure_model(ModelCase(task(), simple_workload(), "gcn", 8), [watched], rounds=2)
    assert entered == ["in", "out"] * 3


def test_measure_goes_over_its_cases():
    results = list(measure(task(), [("gcn", 4), ("gin", 8)], [PYG], 1))
    assert [(r.model, r.hidden, list(r.peak_bytes)) for r in results] == [
        ("gcn", 4, ["pyg-edge_index"]),
        ("gin", 8, ["pyg-edge_index"]),
    ]
    assert results[0].to_dict()["losses"]["pyg-edge_index"] == results[0].losses["pyg-edge_index"]


def test_unknown_ablations_are_refused():
    with pytest.raises(ArgumentError, match="got 'prefetch'"):
        variants.choose(["prefetch"])


def test_unknown_variants_are_refused():
    with pytest.raises(ArgumentError, match=r"variants: expected some of bf16, .*got 'int8'"):
        variants.choose([], [], ["int8"])


def test_forward_passes_in_bfloat16_compute_in_it():
    ways = variants.choose([], ["pyg-edge_index"], ["bf16", "pyg-bf16"])
    assert [way.name for way in ways] == ["onehop", "onehop-bf16", "pyg-bf16", "pyg-edge_index"]
    result = measure_model(ModelCase(task(), simple_workload(), "ogb-gcn", 16), ways, rounds=1)
    assert result.wrong == {}
    assert set(result.times) == {way.name for way in ways}
    assert result.losses["pyg-bf16"] != result.losses["pyg-edge_index"]


def test_compiled_variants_compile_the_model():
    (_, compiled, _) = variants.choose([], [], ["compiled", "pyg-compiled"])
    training = Training("gcn", task(), 8)
    assert training.model._compiled_call_impl is None
    compiled.prepare(training.model)
    assert training.model._compiled_call_impl is not None


def test_plain_models_know_nothing_of_onehop():
    from onehop.bench import plain_models

    assert not any(
        (getattr(value, "__module__", None) or "").startswith("onehop")
        for name, value in vars(plain_models).items()
        if not (name.startswith("_") or getattr(value, "__module__", "") == plain_models.__name__)
    )
    assert torch.nn.Module in plain_models.GCN.__mro__
