"""Layers for whose classes PyG renders no ``propagate``: each kind of class, and what to compare."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import leaky_relu
from torch_geometric import nn as gnn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter, softmax

import onehop
from onehop.thresholds import lifted
from tests.integrations.same import twice

NODES, WIDTH = 20, 6


class Attending(MessagePassing):
    """GATv2 by hand: PyG renders for no ``ptr`` without an annotation."""

    def __init__(self) -> None:
        super().__init__(aggr="sum", node_dim=0)
        self.att = Parameter(torch.linspace(-1, 1, WIDTH).view(1, 2, 3))

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x.view(-1, 2, 3)).flatten(1)

    def message(self, x_j, x_i, index, ptr, size_i):
        score = (leaky_relu(x_i + x_j, 0.2) * self.att).sum(-1)
        return x_j * softmax(score, index, ptr, size_i).unsqueeze(-1)


def attending() -> type:
    class Local(Attending):
        def message(self, x_j, x_i, index, ptr, size_i):
            return super().message(x_j, x_i, index, ptr, size_i).tanh()

    return Local


def executed(body: str, base: str = "MessagePassing") -> Callable[[], type]:
    """A function that makes a class from text, as a notebook or ``python -c`` does."""

    def make() -> type:
        names = {
            "torch": torch,
            "MessagePassing": MessagePassing,
            "gnn": gnn,
            "scatter": scatter,
            "__name__": "__main__",
        }
        forward = "" if "def forward" in body else "def forward(self, x, e): return self.propagate(e, x=x)"
        exec(f"class Executed({base}):\n    {forward}\n    {body}", names)
        return names["Executed"]  # type: ignore[return-value]

    return make


def powered(power: int) -> type:
    """A class of one name, whose message is another one for each number."""

    class Powered(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

        def message(self, x_i, x_j, ptr):
            return x_j**power + x_i

    return Powered


def updating() -> type:
    class Updating(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

        def message(self, x_j, ptr):
            return x_j.tanh()

        def update(self, inputs, x):
            return inputs * x + 1

    return Updating


def scoring() -> type:
    class Scoring(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x, score=self.edge_updater(edge_index, x=x))

        def edge_update(self, x_i, x_j, ptr):
            return (x_i * x_j).sum(-1, keepdim=True).tanh()

        def message(self, x_j, score, ptr):
            return score * x_j

    return Scoring


def by_place() -> type:
    class ByPlace(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, (NODES, NODES), x=x)

        def message(self, x_i, x_j):
            return x_i * x_j

    return ByPlace


def further() -> type:
    class Further(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x, **{"unused": 1})

    return Further


def doubling() -> type:
    class Doubling(MessagePassing):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

        def propagate(self, edge_index, **operands):
            self.calls += 1
            return 2 * super().propagate(edge_index, **operands)

        def message(self, x_i, x_j):
            return x_i * x_j

    return Doubling


# How each class is made: all run the plain propagate, and a fast path.
KINDS: dict[str, Callable[[], type]] = {
    "no annotations": lambda: Attending,
    "in a function, of a parent without annotations": attending,
    "exec": executed("def message(self, x_i, x_j): return torch.sigmoid(x_i) * x_j"),
    "exec, with the default message": executed(""),
    "exec, of a kind of exec": lambda: type(
        "Later", (executed("def message(self, x_j): return x_j.exp()")(),), {}
    ),
    "a factory": lambda: powered(2),
    "its own update": updating,
    "an edge_updater": scoring,
    "size by place": by_place,
    "further operands": further,
    "its own propagate, which calls the plain one": doubling,
}
# Those that are left to PyG, with the sentence.
LEFT = {
    "its own aggregate": (
        executed("def aggregate(self, inputs, index): return scatter(inputs, index, 0, index.size(0)).cos()"),
        "its class overrides aggregate, and its message uses cos",
    ),
    "its own _collect": (
        executed("def _collect(self, *args): return super()._collect(*args)"),
        "its class overrides _collect",
    ),
    "its own _lift": (
        executed("def _lift(self, src, *args): return super(type(self), self)._lift(src * 2, *args)"),
        "its class overrides _lift",
    ),
    "a propagate of its own": (
        executed("def propagate(self, edge_index, x): return x[edge_index[0]]"),
        "its class has a propagate of its own",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def without_thresholds():
    with lifted():
        yield


@pytest.fixture
def x() -> Tensor:
    return torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(1))


def numbers(layer: Any, x: Tensor, *edges: Any) -> list[Tensor]:
    """What a layer gives out, its gradients, and those of the gradients' squares."""
    x = x.double().requires_grad_()
    out = layer.double()(x, *edges)
    return [out, *twice(out, x, layer)]


def reasons(layer: Any, *inputs: Any) -> list[str | None]:
    return [row.reason for row in onehop.explain(layer, *inputs).layers]
