"""What the attention operators do where nobody says: PyG's slope, no dropout, no weights returned."""

import math

import pytest
import torch
from torch import Tensor

import onehop
from onehop import Graph


@pytest.fixture
def graph() -> Graph:
    return Graph.from_edge_index(torch.randint(0, 9, (2, 40), generator=torch.Generator().manual_seed(0)), 9)


@pytest.fixture
def rows() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(9, 2, 4, generator=generator) for _ in range(3)]


def test_gat(graph: Graph, rows: list[Tensor]) -> None:
    operands = (graph, rows[0], rows[1][..., 0], rows[2][..., 0])
    found = onehop.gat(*operands)
    assert torch.equal(found, onehop.gat(*operands, negative_slope=0.2, dropout=0.0))
    assert not torch.allclose(found, onehop.gat(*operands, negative_slope=0.3))


def test_gatv2(graph: Graph, rows: list[Tensor]) -> None:
    operands = (graph, rows[0], rows[1], rows[2][0])
    found = onehop.gatv2(*operands)
    assert torch.equal(found, onehop.gatv2(*operands, negative_slope=0.2, dropout=0.0))
    assert not torch.allclose(found, onehop.gatv2(*operands, negative_slope=0.3))


def test_attention(graph: Graph, rows: list[Tensor]) -> None:
    found = onehop.attention(graph, *rows)
    assert torch.equal(found, onehop.attention(graph, *rows, scale=1 / math.sqrt(4), dropout=0.0))
    assert not torch.allclose(found, onehop.attention(graph, *rows, scale=1.0))
