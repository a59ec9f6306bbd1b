"""Who draws neighbours for PyG's loaders: pyg-lib, torch-sparse or onehop; and torch-sparse's batches."""

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch_geometric
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import HGTLoader, NeighborLoader, NodeLoader, utils
from torch_geometric.sampler import NeighborSampler, NodeSamplerInput, hgt_sampler, neighbor_sampler

import onehop
from onehop.integrations.pyg.loaders import neighbours
from tests.integrations.pyg.loader_graphs import (
    NODES,
    check_edges,
    check_types,
    data as data,
    hetero as hetero,
)


@pytest.mark.skipif(
    not torch_geometric.typing.WITH_TORCH_SPARSE, reason="PyG draws with torch_sparse, which is not installed"
)
@pytest.mark.parametrize("subgraph_type", ["directional", "induced"])
@pytest.mark.parametrize("num_neighbors", [[-1], [-1, -1, -1], [0, -1]], ids=str)
def test_whole_neighbourhoods_are_those_of_torch_sparse(
    data: Data,
    hetero: HeteroData,
    num_neighbors: list[int],
    subgraph_type: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", False)
    for graph, kind in ((data, None), (hetero, "paper")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            sampler = NeighborSampler(graph, num_neighbors, subgraph_type=subgraph_type)
        seeds = NodeSamplerInput(None, torch.arange(7), None, kind)
        theirs, perm = sampler.sample_from_nodes(seeds), sampler.edge_permutation
        with onehop.patch():
            ours = sampler.sample_from_nodes(seeds)
        for name in ("batch", "num_sampled_nodes", "num_sampled_edges"):
            assert getattr(ours, name) is getattr(theirs, name) is None
        theirs.edge = {k: perm[k][v] for k, v in theirs.edge.items()} if kind else perm[theirs.edge]
        for name in ("node", "row", "col", "edge"):
            expected, found = getattr(theirs, name), getattr(ours, name)
            for key in expected if kind else [None]:
                got, want = (found[key], expected[key]) if kind else (found, expected)
                assert torch.equal(got, want), (name, key)


def test_unpatched_everything_is_as_before(data: Data) -> None:
    def state() -> list[Any]:
        return [
            NeighborSampler._sample,
            NeighborSampler.sample_from_edges,
            vars(NeighborSampler)["edge_permutation"],
            utils.filter_edge_store_,
            neighbor_sampler.torch_geometric,
            "__iter__" in vars(NodeLoader),
        ]

    before = state()
    with onehop.patch():
        assert all(now is not then for now, then in zip(state(), before, strict=True))
    assert state() == before
    assert neighbor_sampler.torch_geometric is torch_geometric


@pytest.fixture
def pyg_has(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes PyG believe that it has a package to draw with, or none; what it would call there fails."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("the package draws")

    def has(name: str) -> None:
        for flag, package in (("WITH_PYG_LIB", "pyg-lib"), ("WITH_TORCH_SPARSE", "torch-sparse")):
            monkeypatch.setattr(torch_geometric.typing, flag, name == package)
        draws = SimpleNamespace(neighbor_sample=refuse, hetero_neighbor_sample=refuse, hgt_sample=refuse)
        monkeypatch.setattr(torch.ops, "torch_sparse", draws)

    return has


@pytest.mark.parametrize("name", ["pyg-lib", "torch-sparse", "neither"])
def test_who_draws(name: str, pyg_has: Callable[[str], None]) -> None:
    pyg_has(name)
    assert not neighbours.draws_neighbours()
    with onehop.patch():
        assert neighbours.draws_neighbours() is (name != "pyg-lib")
        assert neighbours.needed() is (name == "neither")
        with onehop.patch(sampler=True):
            assert neighbours.draws_neighbours()
            assert neighbours.needed()
        with onehop.patch(sampler=False):
            assert not neighbours.draws_neighbours()
            assert not neighbours.needed()
            assert neighbor_sampler.torch_geometric.typing.WITH_PYG_LIB is (name == "pyg-lib")


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "replace": {"replace": True},
    "induced": {"subgraph_type": "induced"},
    "worker": {"num_workers": 1, "filter_per_worker": True},
    # torch-sparse refuses these.
    "disjoint": {"disjoint": True},
    "times": {"time_attr": "edge_time", "input_time": torch.full((NODES,), 5)},
    "weights": {"weight_attr": "weight"},
}


@pytest.mark.parametrize("options", OPTIONS)
def test_batches_have_the_fields_of_torch_sparse(
    options: str, data: Data, pyg_has: Callable[[str], None]
) -> None:
    pyg_has("torch-sparse")
    with onehop.patch():
        loader = NeighborLoader(data, [4, 3], batch_size=100, **OPTIONS[options])
        for batch in loader:
            check_edges(data, batch)
            more = {"disjoint": {"batch"}, "times": {"batch", "seed_time"}}.get(options, set())
            assert set(batch.keys()) - set(data.keys()) == {"n_id", "e_id", "input_id", "batch_size", *more}
            assert batch.edge_index.dtype is batch.n_id.dtype is batch.e_id.dtype is torch.int64


def test_batches_of_several_types_have_the_fields_of_torch_sparse(
    hetero: HeteroData, pyg_has: Callable[[str], None]
) -> None:
    pyg_has("torch-sparse")
    with onehop.patch():
        for batch in NeighborLoader(hetero, [3, 2], input_nodes="paper", batch_size=50):
            check_types(hetero, batch)
            assert {*batch["author"].keys()} == {"x", "n_id"}
            assert {*batch["paper"].keys()} == {"x", "n_id", "input_id", "batch_size"}
            for kind in hetero.edge_types:
                assert {*batch[kind].keys()} == {"edge_index", "e_id"}


def test_other_loaders_stay_with_torch_sparse(
    hetero: HeteroData, pyg_has: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pyg_has("torch-sparse")
    monkeypatch.setattr(hgt_sampler, "WITH_TORCH_SPARSE", True)
    with onehop.patch(), pytest.raises(AssertionError, match="the package draws"):
        next(iter(HGTLoader(hetero, [4], input_nodes="paper")))


def test_torch_sparse_draws_if_told_to(data: Data, pyg_has: Callable[[str], None]) -> None:
    pyg_has("torch-sparse")
    with onehop.patch(sampler=False), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(AssertionError, match="the package draws"):
            next(iter(NeighborLoader(data, [3])))


def test_without_a_sampler_pyg_says_so(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_geometric.typing, "WITH_TORCH_SPARSE", False)
    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", False)
    with onehop.patch(sampler=False), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        loader = NeighborLoader(data, [3])
        with pytest.raises(ImportError, match="requires either 'pyg-lib' or 'torch-sparse'"):
            next(iter(loader))
