"""Messages of complex numbers, patched and unpatched."""

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.conftest import make_edges
from tests.integrations.same import reasons, same, same_error
from tests.pairs import pairwise

NODES, EDGES = 20, 130


@pytest.fixture(autouse=True)
def _compiled(monkeypatch):
    small_blocks.force(monkeypatch, compiled=True)


class Magnetic(MessagePassing):
    """A layer as MagNetConv."""

    def forward(self, x, norm, edge_index):
        return self.propagate(edge_index, x=x, norm=norm)

    def message(self, x_j: Tensor, norm: Tensor) -> Tensor:
        return norm.view(-1, 1) * x_j


class Copying(Magnetic):
    def message(self, x_j: Tensor, norm: Tensor) -> Tensor:
        return x_j


class Conjugating(Magnetic):
    def message(self, x_j: Tensor, norm: Tensor) -> Tensor:
        return norm.view(-1, 1) * x_j.conj()


class Squaring(Magnetic):
    def message(self, x_j: Tensor, norm: Tensor) -> Tensor:
        return norm.view(-1, 1) * x_j * x_j


class Heads(Magnetic):
    def message(self, x_j: Tensor, norm: Tensor) -> Tensor:
        return (norm.view(-1, 1, 1) * x_j.view(-1, 2, 3)).view(-1, 6)


def went(layer, dtype=torch.complex128, width=6):
    """Compares results and gradients with PyG's, and returns why PyG's own code ran, or None."""
    generator, edge_index = torch.Generator().manual_seed(0), make_edges(NODES, NODES, EDGES)
    x = torch.randn(NODES, width, dtype=dtype, generator=generator).requires_grad_()
    norm = torch.randn(EDGES, dtype=dtype, generator=generator).requires_grad_()
    pull = torch.randn(NODES, width, dtype=dtype, generator=generator)

    def results():
        out = layer(x, norm, edge_index)
        return [out, *torch.autograd.grad(out, [x, norm], pull, allow_unused=True, materialize_grads=True)]

    bound = 1e-5 if dtype is torch.complex64 else 1e-12
    (reason,) = reasons(same(results, rtol=bound, atol=bound))
    return reason


@pairwise(
    kind=[Magnetic, Copying],
    flow=["source_to_target", "target_to_source"],
    dtype=[torch.complex64, torch.complex128],
    width=[1, 6, 32],
)
def test_weighted_copies(kind, flow, dtype, width):
    assert went(kind("sum", flow=flow), dtype, width) is None


@pytest.mark.parametrize("kind", [Conjugating, Squaring])
def test_other_messages_are_pygs(kind):
    sentence = "its messages are complex, and more than copies of the sources' rows, weighted and summed"
    reason = went(kind("sum"))
    assert reason is not None if kind is Conjugating else reason == sentence


def test_heads():
    went(Heads("sum"))


@pytest.mark.parametrize("aggr", ["mean", "max"])
def test_other_reductions_are_pygs_errors(aggr):
    layer, edge_index = Magnetic(aggr), make_edges(NODES, NODES, EDGES)
    x, norm = torch.randn(NODES, 6, dtype=torch.complex64), torch.randn(EDGES, dtype=torch.complex64)
    same_error(lambda: layer(x, norm, edge_index))
