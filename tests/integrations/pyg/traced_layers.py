"""Layers of users whose messages are traced, for tests of what is kept of a trace."""

import copy
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Parameter, functional
from torch_geometric import nn as gnn
from torch_geometric.typing import OptTensor

import onehop
from onehop.integrations.pyg.rules import own_message
from tests.integrations.same import assert_same

WIDTH, NODES, EDGES = 6, 20, 90
FACTOR, SEEN, OTHER = 2.0, [], types.SimpleNamespace(factor=2.0)


@pytest.fixture
def traces(monkeypatch) -> list[object]:
    """An entry for each trace."""
    found: list[object] = []
    way_of = own_message.way_of
    monkeypatch.setattr(own_message, "way_of", lambda *args: found.append(args) or way_of(*args))
    return found


def scaled(x: Tensor, by: float = 2.0) -> Tensor:
    return x * by * FACTOR


def in_a_cell(factor: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: x * factor


class Doubled(torch.nn.Module):
    """A module of a user's."""

    factor = 2.0

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Counting(torch.nn.Module):
    """A module that does more when it is called."""

    def __call__(self, x: Tensor) -> Tensor:
        SEEN.append(1)
        return super().__call__(x) * OTHER.factor

    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Walked(torch.nn.Module):
    """A module that does more when it is walked through."""

    def __iter__(self) -> Iterator[float]:
        yield OTHER.factor


class Parts(gnn.MessagePassing):
    """What messages below read."""

    shift = 0.5

    def __init__(self) -> None:
        super().__init__("sum")
        self.lin, self.act = Linear(WIDTH, WIDTH), torch.nn.Tanh()
        self.steps = torch.nn.ModuleList([Linear(WIDTH, WIDTH), Doubled()])
        self.weight, self.bias = Parameter(torch.rand(WIDTH)), Parameter(torch.rand(WIDTH))
        self.register_buffer("mean", torch.rand(WIDTH))
        self.kept = torch.rand(2, 3)
        self.counting, self.walked = Counting(), Walked()
        self.rate, self.powers, self.gate, self.turned = 0.3, [1.0, 2.0], in_a_cell(1.5), False

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)


class Own(Parts):
    """A layer of a user's, whose message reads what it can."""

    def forward(self, x: Tensor, edge_index: Tensor, e: Any = None, w: Any = None) -> Tensor:
        return self.propagate(edge_index, x=x, e=e, w=w)

    def helped(self, x: Tensor) -> Tensor:
        return x * 1.25 + self.shift

    def message(self, x_i: Tensor, x_j: Tensor, e: OptTensor, w: Any) -> Tensor:
        out = self.act(self.lin(x_j)) * self.weight.exp() - x_i * self.rate
        for step in self.steps:
            out = step(out)
        if self.bias is not None:
            out = out + self.bias
        if e is not None:
            out = out * e
        if w is not None:
            out = out * w
        out = functional.leaky_relu(out - self.mean * self.kept.reshape(-1), 0.1)
        return -out if self.turned else scaled(self.gate(self.helped(out))) + self.powers[0]


def layer_of(message: Callable[..., Tensor], base: Any = Parts) -> Any:
    """A layer with a message, which PyG looks up by its name."""
    function = types.FunctionType(message.__code__, message.__globals__, "message")
    function.__annotations__ = {**message.__annotations__, "x_j": Tensor}
    function.__module__ = message.__module__

    class Mine(base):
        message = function

    # PyG renders one propagate for all classes of one name.
    Mine.__name__ = f"With{message.__name__}"
    return Mine()


def results(layer: Any, x: Tensor, *others: Any) -> dict[str, Tensor]:
    """The output, and all gradients."""
    x = x.detach().to(next(layer.parameters()).dtype).requires_grad_()
    layer.zero_grad()
    torch.manual_seed(1)
    out = layer(x, *others)
    out.square().sum().backward()
    found = {"output": out.detach(), "gradient": x.grad}
    return found | {name: each.grad for name, each in layer.named_parameters() if each.grad is not None}


def compare(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    # Of parameters in float32, the gradients of float64 are rounded too.
    exact = all(each.dtype is torch.float64 for each in expected.values())
    assert_same(found, expected, *([1e-9] * 2 if exact else [1e-4] * 2))


def assert_as_without(layer: Any, run: Callable[[Any], Any], **tolerances: float) -> None:
    """A function of a layer gives under the patch what it gives for a copy of the layer without."""
    plain = copy.deepcopy(layer)
    torch.manual_seed(0)
    expected = run(plain)
    torch.manual_seed(0)
    with onehop.patch():
        assert_same(run(layer), expected, **tolerances)
