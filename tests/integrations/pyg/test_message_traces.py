"""Numbers of edges that a message is traced with, and what a trace finds out."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn

from onehop.compiler import trials
from onehop.compiler.aten import Mixes, Place
from onehop.compiler.edge_dims import _matmul
from onehop.compiler.tracing import few_edges, trace
from onehop.compiler.watches import Run
from tests.integrations.pyg import own_messages, small_blocks
from tests.integrations.same import SINGLE, fast, noted, reasons, same

FEW = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)


def test_numbers_of_edges_that_no_size_can_be_taken_for() -> None:
    assert few_edges({0, 1, 2, 6, 12})[:2] == [7, 11]
    assert few_edges({7})[:2] == [11, 13]
    assert few_edges({22, 6})[:2] == [7, 13]  # a part of 22 may be 11
    assert few_edges(set(FEW[:-2])) == [43, 47]
    assert few_edges(set(FEW[:-1])) == [47]
    assert few_edges(set(FEW)) == []


def test_bytes_and_entries_of_an_edge() -> None:
    runs = [
        Run(edges, {"x_j": rows}, [rows], [], [], None, draws=False, real=(20, 20), sizes={})
        for edges in (7, 11)
        for rows in [torch.ones(edges, 6)]
    ]
    found = trace(lambda x_j: torch.cat([x_j, 2 * x_j.double()], 1)[:, :4].float(), runs)
    assert found.row_bytes == 12 * 8  # of the joined rows, in float64
    assert (found.out.shape[1:], found.out.dtype, found.parameters) == ((4,), torch.float32, [])
    assert trace(lambda x_j: x_j, runs).row_bytes == 6 * 4


@pytest.mark.parametrize("turned", [False, True], ids=["left", "right"])
def test_a_product_over_the_edges_mixes_them(turned):
    edges, others = torch.ones(3, 7), torch.ones(7, 5)
    known = Place(1)
    if turned:
        edges, others, known = torch.ones(7, 5), torch.ones(3, 7), Place(0)
    operands = (others, edges) if turned else (edges, others)
    with pytest.raises(Mixes):
        _matmul(*operands, lambda tensor: known if tensor is edges else None)


def test_a_product_of_each_edge_alone_keeps_their_place():
    rows, weight = torch.ones(7, 3), torch.ones(3, 5)
    assert _matmul(rows, weight, lambda tensor: Place(0) if tensor is rows else None) == Place(0)
    many = [torch.ones(7, 3, 4), torch.ones(7, 4, 5)]
    assert _matmul(*many, lambda _: Place(0)) == Place(0)


def through_the_columns(x_j: Tensor) -> Tensor:
    return x_j.view(-1, x_j.size(-1), 1).transpose(1, 2).reshape(-1, x_j.size(-1))


def by_a_matrix_of_edges(x_j: Tensor) -> Tensor:
    return x_j + x_j.new_ones(1, x_j.size(0)) @ x_j


def by_a_turned_matrix_of_edges(x_j: Tensor) -> Tensor:
    return x_j + (x_j.t() @ x_j.new_ones(x_j.size(0), 1)).t()


def layer_of(how: Callable[[Tensor], Tensor]) -> gnn.MessagePassing:
    """Sums of a function of the source."""
    return own_messages.layer_of(lambda self, x_j: how(x_j))


@pytest.mark.parametrize("width", [*FEW[:3], 77])
def test_widths_that_might_be_taken_for_numbers_of_edges(width, edge_index, monkeypatch):
    layer, x = layer_of(through_the_columns), torch.randn(20, width)
    small_blocks.force(monkeypatch)
    known = noted(monkeypatch, trials, "few_edges", lambda sizes: sizes)
    fast(lambda: layer(x, edge_index), **SINGLE)
    assert width in known[0]


@pytest.mark.parametrize("how", [by_a_matrix_of_edges, by_a_turned_matrix_of_edges])
def test_products_that_add_up_the_edges(how, edge_index, monkeypatch):
    layer, x = layer_of(how), torch.randn(20, 6)
    small_blocks.force(monkeypatch)
    calls = same(lambda: layer(x, edge_index), **SINGLE)
    assert None not in reasons(calls)
