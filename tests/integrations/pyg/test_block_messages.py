"""Messages in blocks that move dimensions about, and operands that are taken as a whole or twice."""

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn

from onehop.compiler import trials
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.own_messages import WIDTH, assert_pygs_numbers
from tests.integrations.same import SINGLE, fast, noted, step, twice


@pytest.fixture(autouse=True, params=[False, True], ids=["blocks", "compiled"])
def _blocks(request, monkeypatch):
    small_blocks.force(monkeypatch, compiled=request.param)


def split(self, x_j: Tensor) -> Tensor:
    first, second = x_j.chunk(2, 1)
    return torch.cat([second * first, first], 1)


APART = {
    "in front": lambda self, x_j: x_j.unsqueeze(0).tanh().squeeze(0),
    "in front and summed": lambda self, x_j: x_j.unsqueeze(0).sum(0).tanh(),
    "behind": lambda self, x_j: (x_j.unsqueeze(-1) * x_j.unsqueeze(1)).sum(-1),
    "between": lambda self, x_j: x_j.unsqueeze(1).expand(-1, 3, -1).reshape(-1, 18)[:, 6:12].tanh(),
    "turned": lambda self, x_j: x_j.t().tanh().t(),
    "turned twice": lambda self, x_j: x_j.unsqueeze(0).transpose(0, 1).tanh().select(1, 0),
    "stacked": lambda self, x_j: torch.stack([x_j, x_j.tanh()]).amax(0),
    "split": split,
}
MIXING = {
    "mean over edges": lambda self, x_j: x_j - x_j.unsqueeze(0).mean(1),
    "mean over edges turned": lambda self, x_j: x_j - x_j.t().mean(1),
    "mean over edges between": lambda self, x_j: x_j - x_j.unsqueeze(0).unsqueeze(0).mean(2).squeeze(0),
}


@pytest.mark.parametrize("name", [*APART, *MIXING])
def test_messages_that_move_dimensions_give_pygs_numbers(name, edge_index):
    assert_pygs_numbers((APART | MIXING)[name], name in APART, edge_index)


class Scaled(gnn.MessagePassing):
    """Its messages get a table as a whole."""

    def forward(self, x: Tensor, edge_index: Tensor, table: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, table=table)

    def message(self, x_j: Tensor, table: Tensor) -> Tensor:
        rows = table.size(0)
        return (x_j @ table.t()).view(-1, rows, 1).transpose(1, 2).reshape(-1, rows)


@pytest.mark.parametrize("rows", [2, 3, 5, 7, 11, 13, 14, 22])
def test_a_table_may_have_as_many_rows_as_a_trace_has_edges(rows, edge_index, monkeypatch):
    layer, x, table = Scaled("sum"), torch.randn(20, WIDTH), torch.randn(rows, WIDTH)
    known = noted(monkeypatch, trials, "few_edges", lambda sizes: sizes)
    fast(step(layer, x, edge_index, table), **SINGLE)
    # No size of a tensor that the message sees may be taken for the number of edges.
    assert known[0] == {rows, WIDTH}


class Shared(gnn.MessagePassing):
    """A parameter makes the features, and then takes part in the messages too."""

    def __init__(self) -> None:
        super().__init__("sum")
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.float64))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x @ self.weight)

    def message(self, x_j: Tensor) -> Tensor:
        return (x_j @ self.weight).sin()


def test_a_parameter_behind_an_operand_counts_once(edge_index):
    torch.manual_seed(0)
    layer, x = Shared(), torch.randn(20, WIDTH, dtype=torch.float64, requires_grad=True)
    fast(lambda: twice(layer(x, edge_index), x, layer))
