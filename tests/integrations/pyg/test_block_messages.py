"""Messages in blocks that move dimensions about, and second derivatives of what runs in blocks."""

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn

import onehop
from onehop.compiler import trials
from onehop.compiler.tracing import few_edges
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.own_messages import WIDTH, assert_pygs_numbers


@pytest.fixture(autouse=True, params=[False, True], ids=["blocks", "compiled"])
def _blocks(request, monkeypatch):
    small_blocks.force(monkeypatch, compiled=request.param)


def in_front(self, x_j: Tensor) -> Tensor:
    return x_j.unsqueeze(0).tanh().squeeze(0)


def in_front_and_summed(self, x_j: Tensor) -> Tensor:
    return x_j.unsqueeze(0).sum(0).tanh()


def behind(self, x_j: Tensor) -> Tensor:
    return (x_j.unsqueeze(-1) * x_j.unsqueeze(1)).sum(-1)


def between(self, x_j: Tensor) -> Tensor:
    return x_j.unsqueeze(1).expand(-1, 3, -1).reshape(-1, 18)[:, 6:12].tanh()


def turned(self, x_j: Tensor) -> Tensor:
    return x_j.t().tanh().t()


def turned_twice(self, x_j: Tensor) -> Tensor:
    return x_j.unsqueeze(0).transpose(0, 1).tanh().select(1, 0)


def stacked(self, x_j: Tensor) -> Tensor:
    return torch.stack([x_j, x_j.tanh()]).amax(0)


def split(self, x_j: Tensor) -> Tensor:
    first, second = x_j.chunk(2, 1)
    return torch.cat([second * first, first], 1)


def mean_over_edges(self, x_j: Tensor) -> Tensor:
    return x_j - x_j.unsqueeze(0).mean(1)


def mean_over_edges_turned(self, x_j: Tensor) -> Tensor:
    return x_j - x_j.t().mean(1)


def mean_over_edges_between(self, x_j: Tensor) -> Tensor:
    return x_j - x_j.unsqueeze(0).unsqueeze(0).mean(2).squeeze(0)


APART = [in_front, in_front_and_summed, behind, between, turned, turned_twice, stacked, split]
MIXING = [mean_over_edges, mean_over_edges_turned, mean_over_edges_between]


@pytest.mark.parametrize("message", APART + MIXING, ids=lambda message: message.__name__)
def test_messages_that_move_dimensions_give_pygs_numbers(message, edge_index, took_fast_path, gradients_of):
    assert_pygs_numbers(message, message in APART, edge_index, took_fast_path, gradients_of)


LAYERS = {
    "ResGated": lambda: gnn.ResGatedGraphConv(WIDTH, 4, edge_dim=3),
    "GINE": lambda: gnn.GINEConv(torch.nn.Linear(WIDTH, 4), edge_dim=3),
    "CG max": lambda: gnn.CGConv(WIDTH, dim=3, aggr="max"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_second_derivatives_are_pygs(name, edge_index, took_fast_path):
    torch.manual_seed(0)
    layer = LAYERS[name]().double()
    x = torch.randn(20, WIDTH, dtype=torch.float64, requires_grad=True)
    edge_attr = torch.randn(90, 3, dtype=torch.float64, requires_grad=True)
    leaves = [x, edge_attr, *layer.parameters()]

    def derivatives() -> list[Tensor]:
        first = torch.autograd.grad(
            layer(x, edge_index, edge_attr).sin().sum(), leaves, create_graph=True, materialize_grads=True
        )
        loss = sum((each * each).sum() for each in first)
        return [*first, *torch.autograd.grad(loss, leaves, materialize_grads=True)]

    expected = derivatives()
    with onehop.patch():
        assert took_fast_path(layer, x, edge_index, edge_attr) == [None]
        found = derivatives()
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    # The derivatives are of copies of the parameters; the layer keeps its own.
    assert all(ours is theirs for ours, theirs in zip(leaves[2:], layer.parameters(), strict=True))


class Scaled(gnn.MessagePassing):
    """Its messages get a table as a whole."""

    def forward(self, x: Tensor, edge_index: Tensor, table: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, table=table)

    def message(self, x_j: Tensor, table: Tensor) -> Tensor:
        rows = table.size(0)
        return (x_j @ table.t()).view(-1, rows, 1).transpose(1, 2).reshape(-1, rows)


@pytest.mark.parametrize("rows", [2, 3, 5, 7, 11, 13, 14, 22])
def test_a_table_may_have_as_many_rows_as_a_trace_has_edges(rows, edge_index, took_fast_path, monkeypatch):
    layer, x, table = Scaled("sum"), torch.randn(20, WIDTH), torch.randn(rows, WIDTH)
    expected = layer(x, edge_index, table)
    known: list[set[int]] = []
    monkeypatch.setattr(trials, "few_edges", lambda sizes: known.append(sizes) or few_edges(sizes))
    with onehop.patch():
        assert took_fast_path(layer, x, edge_index, table) == [None]
        # No size of a tensor that the message sees may be taken for the number of edges.
        assert known[0] == {rows, WIDTH}
        torch.testing.assert_close(layer(x, edge_index, table), expected, rtol=1e-5, atol=1e-5)


class Shared(gnn.MessagePassing):
    """A parameter makes the features, and then takes part in the messages too."""

    def __init__(self) -> None:
        super().__init__("sum")
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.float64))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x @ self.weight)

    def message(self, x_j: Tensor) -> Tensor:
        return (x_j @ self.weight).sin()


def test_a_parameter_behind_an_operand_counts_once(edge_index, took_fast_path):
    torch.manual_seed(0)
    layer, x = Shared(), torch.randn(20, WIDTH, dtype=torch.float64, requires_grad=True)

    def derivatives() -> list[Tensor]:
        (first,) = torch.autograd.grad(layer(x, edge_index).sin().sum(), [layer.weight], create_graph=True)
        return [first, *torch.autograd.grad(first.square().sum(), [x, layer.weight])]

    expected = derivatives()
    with onehop.patch():
        assert took_fast_path(layer, x, edge_index) == [None]
        for ours, theirs in zip(derivatives(), expected, strict=True):
            torch.testing.assert_close(ours, theirs)
