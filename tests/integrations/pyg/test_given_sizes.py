"""Layers that are told their sizes, and operands that a message takes and does not use."""

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn

import onehop
from onehop.integrations.pyg.leave import LEFT_TO_PYG
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.conftest import make_edges


class Told(gnn.SimpleConv):
    """From some nodes to fewer others, with features of the senders alone."""

    def forward(self, x: Tensor, edge_index: Tensor, receivers: int) -> Tensor:
        forwards = self.flow == "source_to_target"
        size = (x.size(0), receivers) if forwards else (receivers, x.size(0))
        return self.propagate(edge_index, x=x, edge_weight=None, size=size)


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_features_of_senders_alone_take_the_fast_path(flow, took_fast_path):
    layer, x, edge_index = Told("sum", flow=flow), torch.randn(20, 4), make_edges(20, 13, 90)
    if flow == "target_to_source":
        edge_index = edge_index.flip(0)
    expected = layer(x, edge_index, 13)
    with onehop.patch():
        assert took_fast_path(layer, x, edge_index, 13) == [None]
        torch.testing.assert_close(layer(x, edge_index, 13), expected)


class Unused(gnn.MessagePassing):
    """Takes more than it uses."""

    def forward(self, x: Tensor, edge_index: Tensor, more: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, more=more)

    def message(self, x_i: Tensor, x_j: Tensor, more_j: Tensor) -> Tensor:
        return (x_i * x_j).tanh()


@pytest.mark.parametrize("compiled", [False, True], ids=["blocks", "compiled"])
def test_second_derivatives_beside_an_operand_that_is_not_used(
    compiled, edge_index, monkeypatch, took_fast_path
):
    small_blocks.force(monkeypatch, compiled=compiled)
    layer = Unused("sum")
    x, more = (torch.randn(20, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def derivatives() -> list[Tensor]:
        first = torch.autograd.grad(
            layer(x, edge_index, more).square().sum(), [x, more], create_graph=True, materialize_grads=True
        )
        loss = sum(each.square().sum() for each in first)
        return [*first, *torch.autograd.grad(loss, [x, more], materialize_grads=True)]

    expected = derivatives()
    with onehop.patch():
        assert took_fast_path(layer, x, edge_index, more) == [None]
        found = derivatives()
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("size", [(20, 20, 7), [20], "20"], ids=str)
def test_other_than_two_sizes_are_left_to_pyg(size, edge_index, took_fast_path):
    layer, x = gnn.SimpleConv("sum"), torch.randn(20, 4)

    def outcome() -> object:
        try:
            return layer.propagate(edge_index, x=x, edge_weight=None, size=size).tolist()
        except Exception as error:  # whatever PyG raises
            return type(error), str(error)

    expected = outcome()
    with onehop.patch():
        reasons = took_fast_path(outcome)
        assert outcome() == expected
    assert reasons == [LEFT_TO_PYG]
