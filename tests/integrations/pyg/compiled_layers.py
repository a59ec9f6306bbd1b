"""Layers whose message is compiled, against PyG."""

from typing import Any

import pytest
import torch
from torch import Tensor

import onehop
from onehop.integrations import reports
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.conftest import make_edges
from tests.integrations.same import forms, same, saved_sizes, step

NODES, EDGES, WIDTH, DIM = 20, 120, 6, 3
EDGE_INDEX = make_edges(NODES, NODES, EDGES)
COMPILED = "its message, compiled"


@pytest.fixture(autouse=True)
def compiled(monkeypatch) -> None:
    small_blocks.force(monkeypatch, compiled=True)


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(shape[-1]))


def inputs_of(edge_width: int, nodes: int = NODES, edges: int = EDGES) -> list[Tensor]:
    """Features of nodes and, of a width above 0, of edges."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(nodes, WIDTH), *([(edges, edge_width)] if edge_width else [])]
    return [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]


def assert_compiled(layer: Any, *args: Any, rtol: float = 1e-9, **named: Any) -> reports.Call:
    """Compares outputs and all gradients, and returns how the first propagation of a call went."""
    calls = same(step(layer.double(), *args, **named), rtol=rtol, atol=rtol / 10, times=1)
    assert set(forms(calls)) == {COMPILED}
    return calls[0]


def assert_nothing_of_edges_times_width_is_kept(layer: Any, *args: Any) -> None:
    """What autograd keeps for the backward pass are tensors of nodes, parameters, and numbers of edges."""
    edges = make_edges(NODES, NODES, 4000)
    with onehop.patch(), saved_sizes() as sizes:
        layer(torch.randn(NODES, WIDTH, requires_grad=True), *args, edges).sum().backward()
    assert max(sizes) < 4000
