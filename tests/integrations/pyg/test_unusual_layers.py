"""Layers as few people use them: turned round, with other parameters, with an update that asks for sizes."""

import itertools
from typing import Optional

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.typing import PairTensor

import onehop
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.conftest import make_edges
from tests.integrations.same import SINGLE, fast, same


@pytest.mark.parametrize("shape", [(1, 1, 4), (1, 3, 1), (3, 4), (1, 3, 4)], ids=str)
def test_attention_vectors_that_pyg_would_spread(shape, x, edge_index):
    layer = gnn.GATv2Conv(6, 4, heads=3)
    layer.att = torch.nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(0)))
    same(lambda: layer(x, edge_index), **SINGLE)


class AsksForSizes(gnn.MessagePassing):
    """Its message runs in blocks, and its update tells sources from destinations."""

    def forward(self, x: PairTensor, edge_index: Tensor) -> Tensor:
        # propagate_type: (x: PairTensor)
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return (x_i * x_j).tanh()

    # PyG compares annotations as they are written, and has dim_size so.
    def update(self, inputs: Tensor, size_i: int, size_j: int, dim_size: Optional[int]) -> Tensor:  # noqa: UP045
        return inputs * size_i + 100 * size_j + 10_000 * dim_size


@pytest.mark.parametrize("compiled", [False, True], ids=["blocks", "compiled"])
@pytest.mark.parametrize("aggr", ["sum", "max"])
def test_an_update_knows_both_sizes(aggr, compiled, monkeypatch):
    small_blocks.force(monkeypatch, compiled=compiled)
    layer, edge_index = AsksForSizes(aggr=aggr), make_edges(20, 13, 90)
    sides = torch.randn(20, 6), torch.randn(13, 6)
    fast(lambda: layer(sides, edge_index), **SINGLE)


class Counts(gnn.MessagePassing):
    """Whose messages are others each time."""

    def __init__(self) -> None:
        super().__init__(aggr="sum")
        self.numbers = itertools.count(1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return (x_i - x_j).exp() * torch.full((6,), float(next(self.numbers)))


def test_messages_that_differ_from_call_to_call_are_left_to_pyg(x, edge_index, monkeypatch, took_fast_path):
    small_blocks.force(monkeypatch)
    with onehop.patch():
        (reason,) = took_fast_path(Counts(), x, edge_index)
    assert reason is not None
    plain = Counts()(x, edge_index)
    with onehop.patch():
        found = Counts()(x, edge_index)
    # Some multiple of it, the same for all edges.
    torch.testing.assert_close(found, plain * (found.sum() / plain.sum()))
