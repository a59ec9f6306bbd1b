"""What a trace of a message found out, kept: whatever changes between calls, results are PyG's."""

import copy
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Parameter, Sequential, functional
from torch.nn.utils import parametrizations, parametrize
from torch_geometric import nn as gnn
from torch_geometric.typing import OptTensor

import onehop
from tests.integrations.pyg import traced_layers
from tests.integrations.pyg.traced_layers import (
    EDGES,
    NODES,
    SEEN,
    WIDTH,
    Doubled,
    Own,
    assert_as_without,
    compare,
    in_a_cell,
    layer_of,
    results,
    scaled,
    traces as traces,
)

pytestmark = pytest.mark.usefixtures("in_doubles")

Change = Callable[[Any, pytest.MonkeyPatch], object]


def sets(**attributes: Any) -> Change:
    return lambda layer, _: [setattr(layer, name, value) for name, value in attributes.items()]


def replaced(owner: Any, name: str, value: Any, **more: bool) -> Change:
    return lambda _, patches: patches.setattr(owner, name, value, **more)


def changed_class(name: str, value: Any) -> Change:
    return lambda layer, patches: patches.setattr(type(layer), name, value)


def changed(change: Callable[[Any], object]) -> Change:
    return lambda layer, _: change(layer)


def changed_global(name: str, value: Any) -> Change:
    return replaced(traced_layers, name, value)


def other_message(self, x_i: Tensor, x_j: Tensor, e: OptTensor, w: Any) -> Tensor:
    return self.act(x_i + x_j)


def refilled(layer: Own) -> None:
    with torch.no_grad():
        layer.lin.weight.copy_(torch.rand(WIDTH, WIDTH))


def tied(layer: Own) -> None:
    layer.steps[0].weight = layer.lin.weight


def _called(module: Any, *args: Any, **kwargs: Any) -> Tensor:
    return module.forward(*args, **kwargs) * (2 if isinstance(module, Linear) else 1)


def _doubling(module: Any, given: Any, taken: Any) -> Any:
    return tuple(None if each is None else each * 2 for each in given)


class _Turned(Own):
    def message(self, x_i: Tensor, x_j: Tensor, e: OptTensor, w: Any) -> Tensor:
        return x_i - x_j


# What is changed between two calls of a layer of a user's.
CHANGES: dict[str, Change] = {
    "a number": sets(rate=0.7),
    "a truth value": sets(turned=True),
    "an entry of a list": changed(lambda layer: layer.powers.__setitem__(0, 5.0)),
    "another list": sets(powers=[5.0]),
    "a function": sets(gate=torch.sigmoid),
    "a function of the same code": sets(gate=in_a_cell(9.0)),
    "a variable in a cell": changed(lambda layer: setattr(layer.gate.__closure__[0], "cell_contents", 7.0)),
    "an attribute of the class": changed_class("shift", 3.0),
    "a method": changed_class("helped", lambda self, x: x - 1),
    "a method on the instance": sets(helped=torch.sin),
    "an attribute before that of the class": sets(shift=4.0),
    "the message": changed_class("message", other_message),
    "the code of the message": lambda layer, patches: patches.setattr(
        type(layer).message, "__code__", other_message.__code__
    ),
    "the message on the instance": changed(
        lambda layer: setattr(layer, "message", types.MethodType(other_message, layer))
    ),
    "a global": changed_global("FACTOR", 5.0),
    "a global function": changed_global("scaled", lambda x: x / 3),
    "defaults of a function": replaced(scaled, "__defaults__", (7.0,)),
    "a function of torch": replaced(functional, "leaky_relu", lambda x, slope: x.sigmoid()),
    "a method of tensors": replaced(Tensor, "exp", lambda self: self.sigmoid()),
    "a call of any module": replaced(
        torch.nn.Module, "__call__", lambda self, *args, **kwargs: _called(self, *args, **kwargs)
    ),
    "a built-in name": changed_global("Linear", Linear),
    "a parameter": changed(lambda layer: setattr(layer.lin, "weight", Parameter(torch.rand(WIDTH, WIDTH)))),
    "numbers of a parameter": changed(
        lambda layer: setattr(layer.lin.weight, "data", torch.rand(WIDTH, WIDTH))
    ),
    "numbers written in place": changed(refilled),
    "a frozen parameter": changed(lambda layer: layer.lin.weight.requires_grad_(False)),
    "no parameter": sets(bias=None),
    "a deleted parameter": changed(lambda layer: (delattr(layer, "bias"), setattr(layer, "bias", None))),
    "a tied parameter": changed(tied),
    "a buffer": changed(lambda layer: setattr(layer, "mean", torch.rand(1))),
    "a tensor": changed(lambda layer: setattr(layer, "kept", torch.rand(2, 3))),
    "a tensor of another shape": changed(lambda layer: setattr(layer, "kept", torch.rand(WIDTH))),
    "a tensor of other strides": changed(lambda layer: setattr(layer, "kept", torch.rand(3, 2).t())),
    "a parameter of another dtype": changed(
        lambda layer: setattr(layer, "bias", Parameter(torch.rand(WIDTH, dtype=torch.float32)))
    ),
    "a module of another width": changed(lambda layer: setattr(layer, "lin", Linear(WIDTH, 1))),
    "a tensor with a gradient": changed(lambda layer: setattr(layer, "kept", Parameter(torch.rand(WIDTH)))),
    "a module": sets(act=torch.nn.ReLU()),
    "a module in a list": changed(lambda layer: layer.steps.__setitem__(0, torch.nn.Tanh())),
    "one more module": changed(lambda layer: layer.steps.append(torch.nn.Tanh())),
    "a module of the same class": changed(lambda layer: setattr(layer, "lin", Linear(WIDTH, WIDTH, False))),
    "an attribute of a module": changed(lambda layer: setattr(layer.steps[1], "factor", 3.0)),
    "an attribute of a module's class": replaced(Doubled, "factor", 3.0),
    "forward of a module's class": replaced(Doubled, "forward", lambda self, x: x - 1),
    "forward of torch's class": replaced(Linear, "forward", lambda self, x: x @ self.weight),
    "a call of a module's class": replaced(Doubled, "__call__", lambda self, x: x - 1, raising=False),
    "forward of a module": changed(lambda layer: setattr(layer.lin, "forward", torch.sin)),
    "a hook": changed(lambda layer: layer.lin.register_forward_hook(lambda *values: values[-1] * 2)),
    "a hook before": changed(lambda layer: layer.act.register_forward_pre_hook(lambda _, x: (x[0] * 2,))),
    "a hook of gradients": changed(lambda layer: layer.lin.register_full_backward_hook(_doubling)),
    "a hook on a parameter": changed(lambda layer: layer.weight.register_hook(lambda grad: 2 * grad)),
    "a parametrization": changed(
        lambda layer: parametrize.register_parametrization(layer.lin, "weight", torch.nn.Tanh())
    ),
    "a norm of a weight": changed(lambda layer: parametrizations.weight_norm(layer.lin)),
    "a spectral norm": changed(lambda layer: torch.nn.utils.spectral_norm(layer.lin.eval())),
    "the flow": sets(flow="target_to_source"),
    "another class": changed(lambda layer: setattr(layer, "__class__", _Turned)),
    "another aggregation": changed(lambda layer: setattr(layer, "aggr_module", gnn.aggr.MaxAggregation())),
    "float32": changed(lambda layer: layer.float()),
}
# What changes no number.
SAME = ("a built-in name",)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_between_two_calls_is_seen(name, edge_index, traces, monkeypatch):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    before = results(layer, x, edge_index)
    with onehop.patch():
        for _ in range(2):
            compare(results(layer, x, edge_index), before)
        assert len(traces) == 1
        CHANGES[name](layer, monkeypatch)
        for _ in range(2):
            found = results(layer, x, edge_index)
    expected = results(layer, x, edge_index)
    compare(found, expected)
    changes = before.keys() != expected.keys() or any(
        before[key].dtype is not expected[key].dtype or not torch.equal(before[key], expected[key])
        for key in before
    )
    assert changes == (name not in SAME)


def test_another_aggregation_of_messages_that_are_multiplied_after_their_sum(edge_index, traces):
    """The largest products are not the product of the largest."""

    class Product(gnn.MessagePassing):
        def __init__(self) -> None:
            super().__init__()
            self.lin = Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x)

        def message(self, x_j: Tensor) -> Tensor:
            return self.lin(x_j.sin())

    layer, x = Product(), torch.randn(NODES, WIDTH)
    with onehop.patch():
        layer(x, edge_index)
        layer.aggr_module = gnn.aggr.MaxAggregation()
        found = layer(x, edge_index)
    assert len(traces) == 2
    torch.testing.assert_close(found, layer(x, edge_index))


def test_what_is_changed_back_is_seen(edge_index):
    x = torch.randn(NODES, WIDTH)

    def run(layer: Own) -> list[Any]:
        found = []
        for step in range(6):
            layer.train(step % 2 == 0)
            layer.turned = step % 3 == 0
            if step == 2:
                hook = layer.lin.register_forward_hook(lambda *values: values[-1] * 2)
            elif step == 4:
                hook.remove()
            found.append(results(layer, x, edge_index))
        return found

    assert_as_without(Own(), run)


CALLS: dict[str, Callable[[Tensor], tuple[Any, ...]]] = {
    "nothing": lambda e: (),
    "rows of edges": lambda e: (e,),
    "a number an edge": lambda e: (e[:, :1],),
    "rows with a gradient": lambda e: (e.clone().requires_grad_(),),
    "rows of float32": lambda e: (e.float(),),
    "a row for all": lambda e: (None, e[:1]),
    "another row for all": lambda e: (None, e[1:2]),
    "a number for all": lambda e: (None, torch.tensor(2.0)),
    "a row with a gradient": lambda e: (None, e[:1].clone().requires_grad_()),
    "a row of other strides": lambda e: (None, e.t()[:WIDTH, 0]),
    "a number": lambda e: (None, 2.0),
    "another number": lambda e: (None, 3.0),
    "a whole number": lambda e: (None, 2),
    "a truth value": lambda e: (None, True),
}


def test_calls_with_other_operands(edge_index):
    layer, x, e = Own(), torch.randn(NODES, WIDTH), torch.randn(EDGES, WIDTH)
    expected = {name: results(layer, x, edge_index, *CALLS[name](e)) for name in CALLS}
    random.seed(0)
    with onehop.patch():
        for name in [*CALLS, *random.sample(list(CALLS), len(CALLS)), *CALLS]:
            compare(results(layer, x, edge_index, *CALLS[name](e)), expected[name])


def asks(self, x_j: Tensor, w: Any) -> Tensor:
    return -x_j if w is True else x_j


def takes_an_entry(self, x_j: Tensor, w: Any) -> Tensor:
    return x_j * float(w[1000])


def reshapes(self, x_j: Tensor, w: Any) -> Tensor:
    return x_j * (w.reshape(-1) * 2)


def counts_rows(self, x_j: Tensor, w: Any) -> Tensor:
    return x_j * w.size(0)


def asks_for_gradients(self, x_j: Tensor, w: Any) -> Tensor:
    return -x_j * w if w.requires_grad else x_j * w


NUMBERS = [np.arange(2000.0), np.arange(2000.0) + (np.arange(2000) == 1000)]


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        (asks, [1, True]),
        (takes_an_entry, NUMBERS),
        (reshapes, [torch.rand(2, 3), torch.rand(3, 2).t()]),
        (counts_rows, [torch.rand(2, 3), torch.rand(4, 3)]),
        (asks_for_gradients, [torch.ones(EDGES, 1), torch.ones(EDGES, 1, requires_grad=True)]),
    ],
)
def test_numbers_that_look_alike(message, numbers, edge_index):
    layer, x = layer_of(message, Own), torch.rand(NODES, WIDTH)
    numbers = [_double(w) if isinstance(w, Tensor) else w for w in numbers]
    expected = [layer(x, edge_index, None, w) for w in numbers]
    assert not torch.equal(*expected)
    with onehop.patch():
        for w, each in zip(numbers, expected, strict=True):
            torch.testing.assert_close(layer(x, edge_index, None, w), each)


def _double(w: Tensor) -> Tensor:
    return w.detach().double().requires_grad_(w.requires_grad)


def test_operands_that_are_one_tensor(edge_index):
    class Several(gnn.MessagePassing):
        def forward(self, x: Tensor, y: Tensor, z: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x, y=y, z=z)

        def message(self, x_j: Tensor, y_j: Tensor, z_j: Tensor) -> Tensor:
            return x_j * (y_j + 2 * z_j)

    layer, x, y = Several(), torch.randn(NODES, WIDTH), torch.randn(NODES, WIDTH)
    calls = [(x, y, x), (x, y, y), (x, x, y), (x, x, x)]
    expected = [layer(*call, edge_index) for call in calls]
    with onehop.patch():
        for _ in range(2):
            for call, each in zip(calls, expected, strict=True):
                torch.testing.assert_close(layer(*call, edge_index), each)


def uses_the_second(self, x_j: Tensor) -> Tensor:
    return self.second(x_j)


def uses_both(self, x_j: Tensor) -> Tensor:
    return self.second(self.lin(x_j))


def _separate(layer: Any, shared: str) -> None:
    if shared == "a module":
        layer.second = copy.deepcopy(layer.second)
        layer.second.weight.data *= 3
    else:
        layer.second[1].weight = Parameter(3 * layer.second[1].weight.detach())


@pytest.mark.parametrize("shared", ["a module", "a parameter"])
def test_what_has_two_names_may_get_two(shared, edge_index):
    layer, x = layer_of(uses_the_second), torch.randn(NODES, WIDTH)
    layer.first, layer.second = Linear(WIDTH, WIDTH), Linear(WIDTH, WIDTH)
    if shared == "a module":
        layer.second = layer.lin
        layer.message.__func__.__code__ = uses_both.__code__
    else:
        layer.second = Sequential(layer.first, Linear(WIDTH, WIDTH))
        layer.second[1].weight = layer.first.weight
    expected = [results(layer, x, edge_index)]
    other = copy.deepcopy(layer)
    _separate(other, shared)
    expected.append(results(other, x, edge_index))
    with onehop.patch():
        for _ in range(2):
            compare(results(layer, x, edge_index), expected[0])
        _separate(layer, shared)
        compare(results(layer, x, edge_index), expected[1])


def test_a_method_that_was_replaced_before_is_called_once_each_time(edge_index, traces, monkeypatch):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    monkeypatch.setattr(Tensor, "exp", lambda self: SEEN.append(1) or self.sigmoid())
    with onehop.patch():
        for _ in range(3):
            before = len(SEEN)
            layer(x, edge_index)
            assert len(SEEN) == before + 1
    assert not traces


def test_a_hook_on_a_parameter_is_refused_later_too(edge_index, took_fast_path):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    with onehop.patch():
        assert took_fast_path(layer, x, edge_index) == [None]
        layer.weight.register_hook(lambda grad: grad)
        (reason,) = took_fast_path(layer, x, edge_index)
    assert reason.startswith("its message uses a parameter on which a hook is registered")
