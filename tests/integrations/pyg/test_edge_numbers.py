"""Messages that ask for ``edge_index``, patched and unpatched."""

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Parameter
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.compiled_layers import COMPILED, numbers
from tests.integrations.pyg.conftest import make_edges
from tests.integrations.same import fast, forms, refused, step

NODES, EDGES, WIDTH = 20, 130, 6
EDGE_INDEX = make_edges(NODES, NODES, EDGES)
MIXES = "which onehop does not know to keep edges apart"


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


def stepped(kind, flow="source_to_target", nodes=NODES):
    return step(kind(flow=flow).double(), numbers(nodes, WIDTH), EDGE_INDEX)


@pytest.mark.parametrize(
    ("kind", "flow"),
    [
        (Attending, "source_to_target"),
        (AttendingOverRows, "source_to_target"),
        (AttendingOverTheFirst, "target_to_source"),
    ],
)
def test_softmax_over_a_row_of_edge_index_is_compiled(kind, flow, monkeypatch):
    small_blocks.force(monkeypatch, compiled=True)
    assert forms(fast(stepped(kind, flow))) == [COMPILED]


@pytest.mark.parametrize(
    ("kind", "flow", "nodes", "sentence"),
    [
        (Attending, "target_to_source", NODES, MIXES),
        (AttendingOverTheFirst, "source_to_target", NODES, MIXES),
        (AttendingOverRows, "source_to_target", EDGES + 1, "takes the number of edges for that of nodes"),
        (Counting, "source_to_target", NODES, "its message mixes edges in max"),
    ],
)
def test_what_is_pygs(kind, flow, nodes, sentence, monkeypatch):
    small_blocks.force(monkeypatch, compiled=kind is not Counting)
    refused(stepped(kind, flow, nodes), sentence)


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_numbers_of_both_ends_in_blocks(flow, monkeypatch):
    small_blocks.force(monkeypatch)
    fast(stepped(Comparing, flow))
