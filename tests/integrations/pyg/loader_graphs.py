"""Graphs for tests of PyG's loaders, and checks of what they draw."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData

import onehop

NODES, EDGES = 200, 1500


@pytest.fixture
def data(generator: torch.Generator) -> Data:
    return Data(
        x=torch.arange(NODES, dtype=torch.float32).view(-1, 1),
        edge_index=torch.randint(0, NODES, (2, EDGES), generator=generator),
        edge_attr=torch.arange(EDGES),
        weight=torch.rand(EDGES, generator=generator),
        edge_time=torch.randint(0, 10, (EDGES,), generator=generator),
        node_time=torch.randint(0, 10, (NODES,), generator=generator),
    )


@pytest.fixture
def hetero(generator: torch.Generator) -> HeteroData:
    data = HeteroData()
    data["author"].x, data["paper"].x = torch.arange(60), torch.arange(100)
    writes = torch.stack([torch.randint(0, count, (300,), generator=generator) for count in (60, 100)])
    data["author", "writes", "paper"].edge_index = writes
    # Types in the order of their names, in which torch-sparse goes through them; a node with many neighbours.
    cites = torch.randint(0, 100, (2, 400), generator=generator)
    cites[1, :150] = 0
    data["paper", "cites", "paper"].edge_index = cites
    data["paper", "rev_writes", "author"].edge_index = writes.flip(0)
    return data


@pytest.fixture
def patched() -> Iterator[None]:
    with onehop.patch(sampler=True):
        yield


def check_edges(data: Data, batch: Data) -> None:
    """Each edge of the batch is that edge of the graph."""
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.edge_attr, batch.e_id)


def check_types(data: HeteroData, batch: HeteroData) -> None:
    """Each edge of each type of the batch is that edge of the graph."""
    for kind in data.edge_types:
        ends = [batch[end].n_id[row] for end, row in zip(kind[::2], batch[kind].edge_index, strict=True)]
        assert torch.equal(torch.stack(ends), data[kind].edge_index[:, batch[kind].e_id])


def check_edges_in_trees(data: Data, batch: Data) -> None:
    check_edges(data, batch)
    assert torch.equal(batch.batch[batch.edge_index[0]], batch.batch[batch.edge_index[1]])


def contents(batch: Any) -> list[list[Any]]:
    stores = batch.stores if isinstance(batch, HeteroData) else [batch]
    return [
        [store.get(name) is not None and store[name].tolist() for name in ("n_id", "edge_index", "e_id")]
        for store in stores
    ]
