"""How iSpLib is put in and taken out again, shown on a stand-in for it that leaves as much behind."""

import sys
from types import SimpleNamespace

import pytest

from onehop.bench import variants
from onehop.bench.models import ModelCase, measure_model
from onehop.bench.peers import isplib
from onehop.bench.variants import ISPLIB, PYG
from tests.bench.small_graphs import simple_workload, task

typing = pytest.importorskip("torch_geometric.typing")


@pytest.fixture
def plugin(monkeypatch):
    """A stand-in whose product gives twice its operand."""
    sparse = SimpleNamespace(matmul=lambda matrix, x, reduce: x)
    theirs = sparse.matmul

    def patch_pyg():
        typing.WITH_PT2 = typing.WITH_PT20 = False
        sparse.matmul = lambda matrix, x, reduce: 2 * x

    def unpatch_pyg():
        sparse.matmul = theirs  # the flags stay as they are

    made = SimpleNamespace(
        patch_pyg=patch_pyg, unpatch_pyg=unpatch_pyg, cache={1: 1}, value_cache={1: 1}, row_cache={1: 1}
    )
    monkeypatch.setitem(sys.modules, "torch_sparse", sparse)
    monkeypatch.setitem(sys.modules, "isplib", SimpleNamespace(iSpLibPlugin=made))
    return made


def test_all_that_is_patched_is_taken_back(plugin):
    import torch_sparse

    before = torch_sparse.matmul
    with isplib.patched() as product:
        assert product(None, 3, "sum") == 6
        assert not typing.WITH_PT20
    assert torch_sparse.matmul is before
    assert typing.WITH_PT20
    assert not hasattr(typing, "WITH_PT2")


def test_it_is_taken_back_after_an_error_too(plugin):
    with pytest.raises(KeyError), isplib.patched():
        raise KeyError
    assert typing.WITH_PT20


def test_graphs_that_may_be_gone_are_forgotten(plugin):
    isplib.forget()
    assert [plugin.cache, plugin.value_cache, plugin.row_cache] == [{}, {}, {}]


def test_where_it_is_not_installed_it_is_left_out_with_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "isplib", None)
    result = measure_model(ModelCase(task(), simple_workload(), "gin", 8), [PYG, ISPLIB], rounds=1)
    assert "isplib cannot be imported" in result.skipped["pyg-isplib"]
    assert list(result.times) == ["pyg-edge_index"]


def test_models_can_be_measured_against_one_peer():
    assert [variant.name for variant in variants.choose([], ["pyg-isplib"])] == ["onehop", "pyg-isplib"]
