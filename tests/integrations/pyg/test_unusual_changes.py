"""Changes that few make between calls of a layer, and layers of unusual parts: results are PyG's."""

import copy
import gc
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import Linear, Module, Parameter
from torch_geometric import nn as gnn
from torch_geometric.nn.aggr import SoftmaxAggregation

import onehop
from tests.integrations.pyg.traced_layers import (
    EDGES,
    NODES,
    SEEN,
    WIDTH,
    Own,
    Parts,
    compare,
    layer_of,
    results,
    traces as traces,
)

pytestmark = pytest.mark.usefixtures("in_doubles")


def with_act(self, x_j: Tensor) -> Tensor:
    return x_j if self.act is None else self.act(x_j)


def with_lin(self, x_j: Tensor) -> Tensor:
    return self.lin(x_j)


def with_weight(self, x_j: Tensor) -> Tensor:
    return x_j * self.weight


def with_an_entry(self, x_j: Tensor) -> Tensor:
    return x_j * self.weight[0]


def with_exp(self, x_j: Tensor) -> Tensor:
    return x_j * self.weight.exp()


def with_shift(self, x_j: Tensor) -> Tensor:
    return x_j if self.shift is None else x_j + self.shift


def with_rate(self, x_j: Tensor) -> Tensor:
    return x_j if self.rate is True else -x_j


def with_numbers(self, x_j: Tensor) -> Tensor:
    return x_j * self.numbers[0]


def with_rows(self, x_j: Tensor) -> Tensor:
    return x_j * self.numbers[0].size(0)


def with_named(self, x_j: Tensor) -> Tensor:
    return x_j * sum(self.numbers.values())


def with_numel(self, x_j: Tensor) -> Tensor:
    return x_j * self.kept.numel()


def with_kept(self, x_j: Tensor) -> Tensor:
    return x_j.mul(self.kept)


def with_flat(self, x_j: Tensor) -> Tensor:
    return x_j * self.kept.reshape(-1)


def with_limits(self, x_j: Tensor) -> Tensor:
    return x_j * self.limits[0]


def with_channels(self, x_j: Tensor) -> Tensor:
    return self.mlp(x_j) * self.mlp.out_channels


def made(message: Callable[..., Any], base: Any = Parts, **attributes: Any) -> Any:
    layer = layer_of(message, base)
    for name, value in attributes.items():
        setattr(layer, name, value)
    return layer


def limited() -> Any:
    """A layer whose class has a list."""
    return made(with_limits, type("Limited", (Parts,), {"limits": [2.0, 3.0]}))


def sets(**attributes: Any) -> Callable[..., object]:
    return lambda layer, _: [setattr(layer, name, value) for name, value in attributes.items()]


def of(owner: Any, name: str, value: Any) -> Callable[..., object]:
    return lambda _, patches: patches.setattr(owner, name, value, raising=False)


def finds(name: str, value: Any, otherwise: Any) -> Callable[[Any, str], Any]:
    return lambda self, wanted: value if wanted == name else otherwise(self, wanted)


def with_a_history(*shape: int) -> Tensor:
    return torch.rand(*shape, requires_grad=True) * 2


class Doubling(Tensor):
    """A tensor that gives other products."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(function, types, args, kwargs or {})
        return result.as_subclass(Tensor) * 2 if function is Tensor.mul else result


def tripled(x: Tensor) -> Tensor:
    return x * 3


# A layer, and a change of it between two calls.
CHANGES: dict[str, tuple[Callable[[], Any], Callable[..., object]]] = {
    "a module that goes": (lambda: made(with_act), sets(act=None)),
    "a module that comes": (lambda: made(with_act, act=None), sets(act=nn.Tanh())),
    "a number of a list of parameters": (
        lambda: made(with_numbers, numbers=nn.ParameterList([2.0])),
        lambda layer, _: layer.numbers.__setitem__(0, 3.0),
    ),
    "a parameter of a list": (
        lambda: made(with_numbers, numbers=nn.ParameterList([torch.rand(WIDTH)])),
        lambda layer, _: layer.numbers.__setitem__(0, torch.rand(WIDTH)),
    ),
    "the shape of a parameter of a list": (
        lambda: made(with_rows, numbers=nn.ParameterList([torch.rand(WIDTH)])),
        lambda layer, _: layer.numbers.__setitem__(0, torch.rand(3)),
    ),
    "one more number of a dictionary of parameters": (
        lambda: made(with_named, numbers=nn.ParameterDict({"a": 2.0})),
        lambda layer, _: layer.numbers.__setitem__("b", 3.0),
    ),
    "an attribute of a parameter": (
        lambda: made(with_exp),
        lambda layer, _: setattr(layer.weight, "exp", lambda: 5.0),
    ),
    "a number for an equal one": (lambda: made(with_rate, rate=1), sets(rate=True)),
    "nothing, deleted": (lambda: made(with_shift, shift=None), lambda layer, _: delattr(layer, "shift")),
    "a tensor with a history": (
        lambda: made(with_numel, kept=with_a_history(2)),
        lambda layer, _: setattr(layer, "kept", with_a_history(3)),
    ),
    "a tensor with rows that are apart": (
        lambda: made(with_flat, kept=torch.rand(2, 6)[:, ::2]),
        lambda layer, _: setattr(layer, "kept", torch.rand(2, 8)[:, :3]),
    ),
    "a tensor of a class of its own": (
        lambda: made(with_kept, kept=torch.rand(WIDTH)),
        lambda layer, _: setattr(layer, "kept", torch.rand(WIDTH).as_subclass(Doubling)),
    ),
    "an entry of a list of the class": (
        limited,
        lambda layer, _: layer.limits.__setitem__(0, 5.0),
    ),
    "an operator of tensors": (lambda: made(with_weight), of(Tensor, "__mul__", lambda x, y: x.sigmoid())),
    "an operator of parameters": (
        lambda: made(with_an_entry),
        of(Parameter, "__getitem__", lambda x, y: 7.0),
    ),
    "how all modules are called": (
        lambda: made(with_lin),
        of(Module, "_call_impl", lambda self, *args, **kwargs: self.forward(*args, **kwargs) * 2),
    ),
    "how all modules find attributes": (
        lambda: made(with_lin),
        of(Module, "__getattribute__", finds("lin", tripled, object.__getattribute__)),
    ),
    "how all layers find attributes": (
        lambda: made(with_lin),
        of(gnn.MessagePassing, "__getattr__", finds("lin", tripled, Module.__getattr__)),
    ),
    "how modules of a class find attributes": (
        lambda: made(with_lin),
        of(Linear, "__getattribute__", finds("bias", None, object.__getattribute__)),
    ),
    "how modules of a class find what they lack": (
        lambda: made(with_lin),
        of(Linear, "__getattr__", finds("bias", None, Module.__getattr__)),
    ),
    "a call of a module that is compiled": (
        lambda: made(with_lin),
        lambda layer, _: setattr(layer.lin, "_compiled_call_impl", tripled),
    ),
    "a call of a class that is compiled": (
        lambda: made(with_lin),
        of(Linear, "_compiled_call_impl", lambda self, x: x * 3),
    ),
    "a property of PyG's class": (
        lambda: made(with_channels, mlp=gnn.MLP([WIDTH, 4], norm=None)),
        of(gnn.MLP, "out_channels", property(lambda self: 7)),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_unusual_change_between_two_calls_is_seen(name, edge_index, monkeypatch):
    new, change = CHANGES[name]
    layer, x = new(), torch.randn(NODES, WIDTH)
    before = results(layer, x, edge_index)
    with onehop.patch():
        for _ in range(2):
            compare(results(layer, x, edge_index), before)
        change(layer, monkeypatch)
        found = results(layer, x, edge_index)
    expected = results(layer, x, edge_index)
    compare(found, expected)
    assert not torch.equal(expected["output"], before["output"])


def all_blocks(self, x_j: Tensor) -> Tensor:
    return sum(block(x_j) for block in self.blocks.values())


def _tied(layer: Any) -> Any:
    layer.second = Linear(WIDTH, WIDTH)
    layer.second.weight = layer.lin.weight
    return layer


def both(self, x_j: Tensor) -> Tensor:
    return self.second(self.lin(x_j))


def _shared(layer: Any) -> Any:
    layer.second = layer.lin
    return layer


KEPT: dict[str, Callable[[], Any]] = {
    "a parameter with two names": lambda: _tied(made(both)),
    "a module with two names": lambda: _shared(made(both)),
    "modules of a dictionary": lambda: made(
        all_blocks, blocks=nn.ModuleDict({"a": Linear(WIDTH, WIDTH), "b": nn.Tanh()})
    ),
    "a list of parameters": lambda: made(with_numbers, numbers=nn.ParameterList([torch.rand(WIDTH)])),
    "a list of the class": limited,
    "a property of PyG's class": lambda: made(with_channels, mlp=gnn.MLP([WIDTH, 4], norm=None)),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_stays_as_it_is_is_traced_once(name, edge_index, traces):
    layer, x = KEPT[name](), torch.randn(NODES, WIDTH)
    before = results(layer, x, edge_index)
    with onehop.patch():
        for _ in range(3):
            compare(results(layer, x, edge_index), before)
    assert len(traces) == 1


def test_a_factor_of_the_reduction_that_changes_is_seen(edge_index, traces):
    """Whether the program of the message is short enough is looked at anew."""
    layer, x = made(with_weight), torch.randn(NODES, WIDTH)
    layer.aggr_module = SoftmaxAggregation(t=1.0)
    with onehop.patch():
        layer(x, edge_index)
        layer.aggr_module.t = 2.0
        found = layer(x, edge_index)
    assert len(traces) == 2
    torch.testing.assert_close(found, layer(x, edge_index))


# Values of an attribute that the message does not read, with a name that aggregations have too.
VALUES: dict[str, Any] = {
    "an object": object(),
    "a number of numpy": np.float64(0.5),
    "a dictionary": {"a": 1.0},
    "a function that does more": lambda x: SEEN.append(x),
    "a sparse tensor": torch.eye(3).to_sparse(),
}


@pytest.mark.parametrize("name", VALUES)
def test_what_the_message_does_not_read_may_be_anything(name, edge_index):
    layer, x = made(with_weight, t=VALUES[name]), torch.randn(NODES, WIDTH)
    before = results(layer, x, edge_index)
    with onehop.patch():
        for _ in range(2):
            compare(results(layer, x, edge_index), before)
        layer.t = 1.0
        compare(results(layer, x, edge_index), before)
        layer.t = VALUES[name]
        compare(results(layer, x, edge_index), before)


@pytest.mark.parametrize("owner", [Module, gnn.MessagePassing])
@pytest.mark.parametrize("name", ["__call__", "__getattr__"])
def test_other_ways_to_use_modules_are_refused(owner, name, edge_index, traces, monkeypatch):
    layer, x = made(with_lin), torch.randn(NODES, WIDTH)
    theirs = getattr(owner, name)
    monkeypatch.setattr(
        owner, name, lambda self, *args, **kwargs: theirs(self, *args, **kwargs), raising=False
    )
    before = results(layer, x, edge_index)
    with onehop.patch():
        compare(results(layer, x, edge_index), before)
    assert not traces


def test_an_operator_that_was_replaced_before_is_called_as_often(edge_index, monkeypatch):
    layer, x, theirs = made(with_weight), torch.randn(NODES, WIDTH), Tensor.__mul__
    monkeypatch.setattr(Tensor, "__mul__", lambda self, other: SEEN.append(1) or theirs(self, other))
    with onehop.patch():
        for _ in range(3):
            before = len(SEEN)
            layer(x, edge_index)
            assert len(SEEN) == before + 1


class Noting:
    """An attribute of a class that does more when it is read."""

    def __get__(self, owner: Any, kind: type) -> float:
        SEEN.append(1)
        return 3.0


def test_an_attribute_that_does_more_is_read_as_often(edge_index):
    layer, x = made(with_shift), torch.randn(NODES, WIDTH)
    with onehop.patch():
        layer(x, edge_index)
        type(layer).shift = Noting()
        before = len(SEEN)
        layer(x, edge_index)
    assert len(SEEN) == before + 2


def noting(x: Tensor) -> Tensor:
    SEEN.append(1)
    return x


def calls_an_entry(self, x_j: Tensor) -> Tensor:
    return self.numbers[0](x_j)


def test_a_function_in_a_list_of_parameters_is_called_once_each_time(edge_index):
    layer, x = made(calls_an_entry, numbers=nn.ParameterList([noting])), torch.randn(NODES, WIDTH)
    with onehop.patch():
        for _ in range(3):
            before = len(SEEN)
            layer(x, edge_index)
            assert len(SEEN) == before + 1


def with_e(self, x_j: Tensor, e: Any) -> Tensor:
    return x_j * e.exp()


def with_w(self, x_j: Tensor, w: Any) -> Tensor:
    return x_j * w.exp()


@pytest.mark.parametrize("message", [with_e, with_w])
def test_attributes_of_operands_count(message, edge_index, traces):
    layer, x = made(message, Own), torch.randn(NODES, WIDTH)
    operands = torch.rand(EDGES, WIDTH), torch.rand(WIDTH)
    with onehop.patch():
        layer(x, edge_index, *operands)
        for operand in operands:
            operand.exp = lambda: 5.0
        found = layer(x, edge_index, *operands)
    assert len(traces) == 1
    torch.testing.assert_close(found, layer(x, edge_index, *operands))


def test_a_class_that_is_gone_is_another(edge_index):
    layer, x = made(with_lin), torch.randn(NODES, WIDTH)
    other = copy.deepcopy(layer)
    other.__class__ = type(made(with_weight))
    expected = results(other, x, edge_index)
    with onehop.patch():
        results(layer, x, edge_index)
        layer.__class__ = type(made(with_weight))
        gc.collect()
        compare(results(layer, x, edge_index), expected)


def test_the_forward_of_a_layer_is_not_kept_alive(edge_index):
    layer, x = made(with_weight), torch.randn(NODES, WIDTH)
    type(layer).forward = types.FunctionType(Parts.forward.__code__, Parts.forward.__globals__)
    freed = weakref.ref(type(layer).forward)
    with onehop.patch():
        layer(x, edge_index)
        del type(layer).forward
        gc.collect()
        assert freed() is None


def test_the_class_of_a_module_that_was_replaced_is_freed(edge_index):
    class Freed(Linear):
        pass

    freed = weakref.ref(Freed)
    layer, x = made(with_lin, lin=Freed(WIDTH, WIDTH)), torch.randn(NODES, WIDTH)
    del Freed
    with onehop.patch():
        layer(x, edge_index)
        layer.lin = Linear(WIDTH, WIDTH)
        gc.collect()
        assert freed() is None
