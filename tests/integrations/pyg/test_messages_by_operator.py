"""Messages of one operator each: those that keep edges apart run in blocks, the others as PyG's own."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.own_messages import WIDTH, assert_pygs_numbers

COLUMNS = torch.tensor([5, 0, 3])
WEIGHT = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(1))
THREE = torch.randn(WIDTH, 3, generator=torch.Generator().manual_seed(2))
TABLE = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True, params=[False, True], ids=["blocks", "compiled"])
def _blocks(request, monkeypatch):
    small_blocks.force(monkeypatch, compiled=request.param)


def _numbers(x_j: Tensor) -> Tensor:
    """[E]: a row of the table for each edge."""
    return (x_j[:, 0] > 0).long() + 2 * (x_j[:, 1] > 0).long()


def columns_in_two(self, x_j: Tensor) -> Tensor:
    first, second = x_j.split([2, 4], 1)
    return first * second[:, :2]


def columns_one_by_one(self, x_j: Tensor) -> Tensor:
    first, *_, last = x_j.unbind(1)
    return torch.stack([first, last], 1)


# Messages that keep edges apart.
APART: dict[str, Callable[..., Tensor]] = {
    "some columns": lambda self, x_j: x_j.index_select(1, COLUMNS),
    "some columns from behind": lambda self, x_j: x_j.index_select(-1, COLUMNS),
    "columns by brackets": lambda self, x_j: x_j[:, COLUMNS],
    "columns of three dimensions": lambda self, x_j: x_j.unsqueeze(0)[:, :, COLUMNS].squeeze(0),
    "columns by a matrix": lambda self, x_j: x_j[:, COLUMNS.view(3, 1)].flatten(1),
    "before the edges by a matrix": lambda self, x_j: torch.stack([x_j, 2 * x_j])[
        torch.tensor([[1, 0], [1, 1]])
    ].sum((0, 1)),
    "rows of a table": lambda self, x_j: x_j * F.embedding(_numbers(x_j), TABLE),
    "rows of a table by brackets": lambda self, x_j: x_j * TABLE[_numbers(x_j)],
    "gathered columns": lambda self, x_j: x_j.gather(1, _numbers(x_j).view(-1, 1).expand(-1, 3)),
    "a slice of columns": lambda self, x_j: x_j[:, 1:5:2],
    "the last column": lambda self, x_j: x_j.select(-1, 2).unsqueeze(-1),
    "a row in front": lambda self, x_j: x_j.unsqueeze(0).select(0, 0),
    "columns in two": columns_in_two,
    "columns one by one": columns_one_by_one,
    "joined columns": lambda self, x_j: torch.cat([x_j, x_j.tanh()], -1),
    "repeated columns": lambda self, x_j: x_j.repeat(1, 2),
    "repeated in front": lambda self, x_j: x_j.repeat(2, 1, 1).amax(0),
    "padded columns": lambda self, x_j: F.pad(x_j, (1, 2), value=0.5),
    "permuted and back": lambda self, x_j: (
        x_j.view(-1, 2, 3).permute(2, 0, 1).sin().permute(1, 2, 0).flatten(1)
    ),
    "summed heads": lambda self, x_j: x_j.view(-1, 2, 3).sum(1),
    "mean of all columns": lambda self, x_j: x_j.mean((1,), keepdim=True),
    "softmax over columns": lambda self, x_j: x_j.softmax(-1),
    "running sums over columns": lambda self, x_j: x_j.cumsum(1),
    "matrix from the right": lambda self, x_j: x_j @ WEIGHT,
    "matrix and a bias": lambda self, x_j: torch.addmm(THREE[0], x_j, THREE),
    "matrix and rows": lambda self, x_j: torch.addmm(x_j[:, :3], x_j, THREE),
    "matrix from the left": lambda self, x_j: (WEIGHT @ x_j.t()).t(),
    "a product an edge": lambda self, x_j: torch.bmm(x_j.view(-1, 2, 3), x_j.view(-1, 3, 2)).flatten(1),
    "inner products": lambda self, x_j: torch.einsum("ei,ei->e", x_j, x_j).unsqueeze(1),
    "layer normalised": lambda self, x_j: F.layer_norm(x_j, (WIDTH,)),
    "group normalised": lambda self, x_j: F.group_norm(x_j, 2),
    "normalised as in evaluation": lambda self, x_j: F.batch_norm(x_j, torch.zeros(WIDTH), torch.ones(WIDTH)),
    "cross products": lambda self, x_j: torch.linalg.cross(x_j[:, :3], x_j[:, 3:], dim=1),
    "made of zeros": lambda self, x_j: x_j + torch.zeros_like(x_j) + x_j.new_ones(x_j.size(0), 1),
    "chosen": lambda self, x_j: torch.where(x_j[:, :1] > 0, x_j, -x_j),
    "squeezed": lambda self, x_j: x_j[:, :1].squeeze(1).sin().unsqueeze(1),
}
# Messages that may make one edge's row of another's.
MIXING: dict[str, Callable[..., Tensor]] = {
    "edges in another order": lambda self, x_j: x_j.flip(0),
    "edges chosen": lambda self, x_j: x_j.index_select(0, torch.arange(x_j.size(0)).flip(0)),
    "edges chosen by brackets": lambda self, x_j: x_j[torch.arange(x_j.size(0)).flip(0)],
    "edges by each other": lambda self, x_j: x_j[_numbers(x_j)],
    "the first edge": lambda self, x_j: x_j - x_j[0],
    "the edges but one": lambda self, x_j: torch.cat([x_j[1:], x_j[:1]]),
    "edges one by one": lambda self, x_j: x_j * x_j.unbind(0)[0],
    "edges in two": lambda self, x_j: torch.cat(x_j.split([1, x_j.size(0) - 1], 0)[::-1]),
    "edges twice": lambda self, x_j: x_j.repeat(2, 1)[: x_j.size(0)].roll(1, 0),
    "an edge more": lambda self, x_j: F.pad(x_j, (0, 0, 1, 0))[:-1],
    "running sums": lambda self, x_j: x_j.cumsum(0),
    "softmax over edges": lambda self, x_j: x_j.softmax(0),
    "sums over edges": lambda self, x_j: x_j * x_j.sum(0),
    "sums of all": lambda self, x_j: x_j * x_j.sum(),
    "gathered edges": lambda self, x_j: x_j.gather(0, _numbers(x_j).view(-1, 1).expand(-1, WIDTH)),
    "products of edges": lambda self, x_j: (x_j @ x_j.t()) @ x_j,
    "a matrix of edges": lambda self, x_j: torch.addmm(x_j, x_j.new_ones(x_j.size(0), x_j.size(0)), x_j),
    "edges normalised": lambda self, x_j: F.batch_norm(x_j, None, None, training=True),
    "edges layer normalised": lambda self, x_j: F.layer_norm(x_j, tuple(x_j.shape)),
    "edges normalised as columns": lambda self, x_j: F.group_norm(x_j.t(), 1).t(),
    "edges as columns of a step": lambda self, x_j: F.linear(x_j.t(), x_j.new_ones(1, x_j.size(0))).t() * x_j,
    "a table with counts": lambda self, x_j: x_j * F.embedding(_numbers(x_j), TABLE, scale_grad_by_freq=True),
    "a table with sparse gradients": lambda self, x_j: x_j * F.embedding(_numbers(x_j), TABLE, sparse=True),
    "positive edges": lambda self, x_j: x_j * (x_j[x_j[:, 0] > 0].size(0) + 1),
    "squeezed without a dimension": lambda self, x_j: x_j.unsqueeze(0).squeeze().sin(),
}


@pytest.mark.parametrize("name", [*APART, *MIXING])
def test_numbers_are_pygs(name, edge_index):
    assert_pygs_numbers((APART | MIXING)[name], name in APART, edge_index)
