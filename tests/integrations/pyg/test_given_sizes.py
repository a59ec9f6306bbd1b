"""Layers that are told their sizes, and operands that a message takes and does not use."""

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn

from onehop.integrations.pyg.leave import LEFT_TO_PYG
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.conftest import make_edges
from tests.integrations.same import SINGLE, fast, refused, step, twice


class Told(gnn.SimpleConv):
    """From some nodes to fewer others, with features of the senders alone."""

    def forward(self, x: Tensor, edge_index: Tensor, receivers: int) -> Tensor:
        forwards = self.flow == "source_to_target"
        size = (x.size(0), receivers) if forwards else (receivers, x.size(0))
        return self.propagate(edge_index, x=x, edge_weight=None, size=size)


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_features_of_senders_alone_take_the_fast_path(flow):
    layer, x, edge_index = Told("sum", flow=flow), torch.randn(20, 4), make_edges(20, 13, 90)
    if flow == "target_to_source":
        edge_index = edge_index.flip(0)
    fast(step(layer, x, edge_index, 13), **SINGLE)


class Unused(gnn.MessagePassing):
    """Takes more than it uses."""

    def forward(self, x: Tensor, edge_index: Tensor, more: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, more=more)

    def message(self, x_i: Tensor, x_j: Tensor, more_j: Tensor) -> Tensor:
        return (x_i * x_j).tanh()


@pytest.mark.parametrize("compiled", [False, True], ids=["blocks", "compiled"])
def test_second_derivatives_beside_an_operand_that_is_not_used(compiled, edge_index, monkeypatch):
    small_blocks.force(monkeypatch, compiled=compiled)
    layer = Unused("sum")
    x, more = (torch.randn(20, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    fast(lambda: twice(layer(x, edge_index, more), x, more))


@pytest.mark.parametrize("size", [(20, 20, 7), [20], "20"], ids=str)
def test_other_than_two_sizes_are_left_to_pyg(size, edge_index):
    layer, x = gnn.SimpleConv("sum"), torch.randn(20, 4)
    run = lambda: layer.propagate(edge_index, x=x, edge_weight=None, size=size)  # noqa: E731, a test's own
    refused(run, LEFT_TO_PYG, errors=True, **SINGLE)
