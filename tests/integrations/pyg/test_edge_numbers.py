"""Messages that ask for ``edge_index``, patched and unpatched."""

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Parameter
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

import onehop
from onehop.integrations import reports
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.conftest import make_edges

NODES, EDGES, WIDTH = 20, 130, 6


class Layer(MessagePassing):
    def __init__(self, **options: object) -> None:
        super().__init__("sum", **options)
        self.score = Parameter(torch.linspace(-1, 1, WIDTH).view(-1, 1))
        self.lin = Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.lin(x))


class Attending(Layer):
    def message(self, x_i: Tensor, x_j: Tensor, edge_index: Tensor, size_i: int) -> Tensor:
        return softmax((x_i - x_j) @ self.score, edge_index[1], num_nodes=size_i) * x_j


class AttendingOverRows(Layer):
    """As pygod's GNAConv, which takes the number of edges for that of nodes."""

    def message(self, x_i: Tensor, x_j: Tensor, edge_index: Tensor) -> Tensor:
        return softmax((x_i - x_j) @ self.score, edge_index[1], num_nodes=x_i.shape[0]) * x_j


class AttendingOverTheFirst(Layer):
    def message(self, x_i: Tensor, x_j: Tensor, edge_index: Tensor, size_i: int) -> Tensor:
        first, _ = edge_index
        return softmax((x_i - x_j) @ self.score, first, num_nodes=size_i) * x_j


class Comparing(Layer):
    """What depends on the numbers runs in blocks."""

    def message(self, x_j: Tensor, edge_index: Tensor) -> Tensor:
        return x_j * (edge_index[0] > edge_index[1]).view(-1, 1)


class Counting(Layer):
    def message(self, x_j: Tensor, edge_index: Tensor) -> Tensor:
        return x_j * edge_index.max()


def same(layer, edge_index, took_fast_path, nodes=NODES):
    layer, x = layer.double(), torch.randn(nodes, WIDTH, dtype=torch.float64, requires_grad=True)

    def results():
        out = layer(x, edge_index)
        return [out, *torch.autograd.grad(out.sin().sum(), [x, *layer.parameters()], allow_unused=True)]

    expected = results()
    with onehop.patch():
        (reason,) = took_fast_path(results)
        found = results()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    return reason


@pytest.mark.parametrize(
    ("kind", "flow"),
    [
        (Attending, "source_to_target"),
        (AttendingOverRows, "source_to_target"),
        (AttendingOverTheFirst, "target_to_source"),
    ],
)
def test_softmax_over_a_row_of_edge_index_is_compiled(kind, flow, took_fast_path, monkeypatch):
    small_blocks.force(monkeypatch, compiled=True)
    layer, edge_index = kind(flow=flow), make_edges(NODES, NODES, EDGES)
    assert same(layer, edge_index, took_fast_path) is None
    with onehop.patch(), reports.recorded() as calls:
        layer(torch.randn(NODES, WIDTH, dtype=torch.float64), edge_index)
    assert calls[0].form == "its message, compiled"


@pytest.mark.parametrize("kind", [Attending, AttendingOverTheFirst])
def test_softmax_over_the_other_end_is_pygs(kind, took_fast_path, monkeypatch):
    small_blocks.force(monkeypatch, compiled=True)
    flow = "target_to_source" if kind is Attending else "source_to_target"
    reason = same(kind(flow=flow), make_edges(NODES, NODES, EDGES), took_fast_path)
    assert "which onehop does not know to keep edges apart" in reason


def test_fewer_edges_than_nodes(took_fast_path, monkeypatch):
    small_blocks.force(monkeypatch, compiled=True)
    reason = same(AttendingOverRows(), make_edges(NODES, NODES, EDGES), took_fast_path, nodes=EDGES + 1)
    assert "takes the number of edges for that of nodes" in reason


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_numbers_of_both_ends_in_blocks(flow, took_fast_path, monkeypatch):
    small_blocks.force(monkeypatch)
    assert same(Comparing(flow=flow), make_edges(NODES, NODES, EDGES), took_fast_path) is None


def test_what_mixes_edges_is_pygs(took_fast_path, monkeypatch):
    small_blocks.force(monkeypatch)
    reason = same(Counting(), make_edges(NODES, NODES, EDGES), took_fast_path)
    assert reason.startswith("its message mixes edges in max")
