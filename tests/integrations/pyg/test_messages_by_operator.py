"""Messages of one operator each: those that keep edges apart run in blocks, the others as PyG's own."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.own_messages import WIDTH, assert_pygs_numbers

COLUMNS = torch.tensor([5, 0, 3])
ROWS = torch.arange(90).flip(0)
WEIGHT = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(1))
THREE = torch.randn(WIDTH, 3, generator=torch.Generator().manual_seed(2))
TABLE = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(3))
OTHERS = torch.randn(90, WIDTH, generator=torch.Generator().manual_seed(4))


APART: list[Callable[..., Tensor]] = []
MIXING: list[Callable[..., Tensor]] = []


def apart(message: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Lists a message that keeps edges apart."""
    APART.append(message)
    return message


def mixing(message: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Lists a message that may make one edge's row of another's."""
    MIXING.append(message)
    return message


@pytest.fixture(autouse=True, params=[False, True], ids=["blocks", "compiled"])
def _blocks(request, monkeypatch):
    small_blocks.force(monkeypatch, compiled=request.param)


def _numbers(x_j: Tensor) -> Tensor:
    """[E]: a row of the table for each edge."""
    return (x_j[:, 0] > 0).long() + 2 * (x_j[:, 1] > 0).long()


@apart
def some_columns(self, x_j: Tensor) -> Tensor:
    return x_j.index_select(1, COLUMNS)


@apart
def some_columns_from_behind(self, x_j: Tensor) -> Tensor:
    return x_j.index_select(-1, COLUMNS)


@apart
def columns_by_brackets(self, x_j: Tensor) -> Tensor:
    return x_j[:, COLUMNS]


@apart
def columns_of_three_dimensions(self, x_j: Tensor) -> Tensor:
    return x_j.unsqueeze(0)[:, :, COLUMNS].squeeze(0)


@apart
def columns_by_a_matrix(self, x_j: Tensor) -> Tensor:
    return x_j[:, COLUMNS.view(3, 1)].flatten(1)


@apart
def before_the_edges_by_a_matrix(self, x_j: Tensor) -> Tensor:
    return torch.stack([x_j, 2 * x_j])[torch.tensor([[1, 0], [1, 1]])].sum((0, 1))


@apart
def rows_of_a_table(self, x_j: Tensor) -> Tensor:
    return x_j * F.embedding(_numbers(x_j), TABLE)


@apart
def rows_of_a_table_by_brackets(self, x_j: Tensor) -> Tensor:
    return x_j * TABLE[_numbers(x_j)]


@apart
def gathered_columns(self, x_j: Tensor) -> Tensor:
    return x_j.gather(1, _numbers(x_j).view(-1, 1).expand(-1, 3))


@apart
def a_slice_of_columns(self, x_j: Tensor) -> Tensor:
    return x_j[:, 1:5:2]


@apart
def the_last_column(self, x_j: Tensor) -> Tensor:
    return x_j.select(-1, 2).unsqueeze(-1)


@apart
def a_row_in_front(self, x_j: Tensor) -> Tensor:
    return x_j.unsqueeze(0).select(0, 0)


@apart
def columns_in_two(self, x_j: Tensor) -> Tensor:
    first, second = x_j.split([2, 4], 1)
    return first * second[:, :2]


@apart
def columns_one_by_one(self, x_j: Tensor) -> Tensor:
    first, *_, last = x_j.unbind(1)
    return torch.stack([first, last], 1)


@apart
def joined_columns(self, x_j: Tensor) -> Tensor:
    return torch.cat([x_j, x_j.tanh()], -1)


@apart
def repeated_columns(self, x_j: Tensor) -> Tensor:
    return x_j.repeat(1, 2)


@apart
def repeated_in_front(self, x_j: Tensor) -> Tensor:
    return x_j.repeat(2, 1, 1).amax(0)


@apart
def padded_columns(self, x_j: Tensor) -> Tensor:
    return F.pad(x_j, (1, 2), value=0.5)


@apart
def permuted_and_back(self, x_j: Tensor) -> Tensor:
    return x_j.view(-1, 2, 3).permute(2, 0, 1).sin().permute(1, 2, 0).flatten(1)


@apart
def summed_heads(self, x_j: Tensor) -> Tensor:
    return x_j.view(-1, 2, 3).sum(1)


@apart
def mean_of_all_columns(self, x_j: Tensor) -> Tensor:
    return x_j.mean((1,), keepdim=True)


@apart
def softmax_over_columns(self, x_j: Tensor) -> Tensor:
    return x_j.softmax(-1)


@apart
def running_sums_over_columns(self, x_j: Tensor) -> Tensor:
    return x_j.cumsum(1)


@apart
def matrix_from_the_right(self, x_j: Tensor) -> Tensor:
    return x_j @ WEIGHT


@apart
def matrix_and_a_bias(self, x_j: Tensor) -> Tensor:
    return torch.addmm(THREE[0], x_j, THREE)


@apart
def matrix_and_rows(self, x_j: Tensor) -> Tensor:
    return torch.addmm(x_j[:, :3], x_j, THREE)


@apart
def matrix_from_the_left(self, x_j: Tensor) -> Tensor:
    return (WEIGHT @ x_j.t()).t()


@apart
def a_product_an_edge(self, x_j: Tensor) -> Tensor:
    return torch.bmm(x_j.view(-1, 2, 3), x_j.view(-1, 3, 2)).flatten(1)


@apart
def inner_products(self, x_j: Tensor) -> Tensor:
    return torch.einsum("ei,ei->e", x_j, x_j).unsqueeze(1)


@apart
def layer_normalised(self, x_j: Tensor) -> Tensor:
    return F.layer_norm(x_j, (WIDTH,))


@apart
def group_normalised(self, x_j: Tensor) -> Tensor:
    return F.group_norm(x_j, 2)


@apart
def normalised_as_in_evaluation(self, x_j: Tensor) -> Tensor:
    return F.batch_norm(x_j, torch.zeros(WIDTH), torch.ones(WIDTH))


@apart
def cross_products(self, x_j: Tensor) -> Tensor:
    return torch.linalg.cross(x_j[:, :3], x_j[:, 3:], dim=1)


@apart
def made_of_zeros(self, x_j: Tensor) -> Tensor:
    return x_j + torch.zeros_like(x_j) + x_j.new_ones(x_j.size(0), 1)


@apart
def chosen(self, x_j: Tensor) -> Tensor:
    return torch.where(x_j[:, :1] > 0, x_j, -x_j)


@apart
def squeezed(self, x_j: Tensor) -> Tensor:
    return x_j[:, :1].squeeze(1).sin().unsqueeze(1)


@mixing
def edges_in_another_order(self, x_j: Tensor) -> Tensor:
    return x_j.flip(0)


@mixing
def edges_chosen(self, x_j: Tensor) -> Tensor:
    return x_j.index_select(0, torch.arange(x_j.size(0)).flip(0))


@mixing
def edges_chosen_by_brackets(self, x_j: Tensor) -> Tensor:
    return x_j[torch.arange(x_j.size(0)).flip(0)]


@mixing
def edges_by_each_other(self, x_j: Tensor) -> Tensor:
    return x_j[_numbers(x_j)]


@mixing
def the_first_edge(self, x_j: Tensor) -> Tensor:
    return x_j - x_j[0]


@mixing
def the_edges_but_one(self, x_j: Tensor) -> Tensor:
    return torch.cat([x_j[1:], x_j[:1]])


@mixing
def edges_one_by_one(self, x_j: Tensor) -> Tensor:
    return x_j * x_j.unbind(0)[0]


@mixing
def edges_in_two(self, x_j: Tensor) -> Tensor:
    return torch.cat(x_j.split([1, x_j.size(0) - 1], 0)[::-1])


@mixing
def edges_twice(self, x_j: Tensor) -> Tensor:
    return x_j.repeat(2, 1)[: x_j.size(0)].roll(1, 0)


@mixing
def an_edge_more(self, x_j: Tensor) -> Tensor:
    return F.pad(x_j, (0, 0, 1, 0))[:-1]


@mixing
def running_sums(self, x_j: Tensor) -> Tensor:
    return x_j.cumsum(0)


@mixing
def softmax_over_edges(self, x_j: Tensor) -> Tensor:
    return x_j.softmax(0)


@mixing
def sums_over_edges(self, x_j: Tensor) -> Tensor:
    return x_j * x_j.sum(0)


@mixing
def sums_of_all(self, x_j: Tensor) -> Tensor:
    return x_j * x_j.sum()


@mixing
def gathered_edges(self, x_j: Tensor) -> Tensor:
    return x_j.gather(0, _numbers(x_j).view(-1, 1).expand(-1, WIDTH))


@mixing
def products_of_edges(self, x_j: Tensor) -> Tensor:
    return (x_j @ x_j.t()) @ x_j


@mixing
def a_matrix_of_edges(self, x_j: Tensor) -> Tensor:
    return torch.addmm(x_j, x_j.new_ones(x_j.size(0), x_j.size(0)), x_j)


@mixing
def edges_normalised(self, x_j: Tensor) -> Tensor:
    return F.batch_norm(x_j, None, None, training=True)


@mixing
def edges_layer_normalised(self, x_j: Tensor) -> Tensor:
    return F.layer_norm(x_j, tuple(x_j.shape))


@mixing
def edges_normalised_as_columns(self, x_j: Tensor) -> Tensor:
    return F.group_norm(x_j.t(), 1).t()


@mixing
def edges_as_columns_of_a_step(self, x_j: Tensor) -> Tensor:
    return F.linear(x_j.t(), x_j.new_ones(1, x_j.size(0))).t() * x_j


@mixing
def a_table_with_counts(self, x_j: Tensor) -> Tensor:
    return x_j * F.embedding(_numbers(x_j), TABLE, scale_grad_by_freq=True)


@mixing
def a_table_with_sparse_gradients(self, x_j: Tensor) -> Tensor:
    return x_j * F.embedding(_numbers(x_j), TABLE, sparse=True)


@mixing
def positive_edges(self, x_j: Tensor) -> Tensor:
    return x_j * (x_j[x_j[:, 0] > 0].size(0) + 1)


@mixing
def squeezed_without_a_dimension(self, x_j: Tensor) -> Tensor:
    return x_j.unsqueeze(0).squeeze().sin()


@pytest.mark.parametrize("message", APART + MIXING, ids=lambda message: message.__name__)
def test_numbers_are_pygs(message, edge_index, took_fast_path, gradients_of):
    assert_pygs_numbers(message, message in APART, edge_index, took_fast_path, gradients_of)
