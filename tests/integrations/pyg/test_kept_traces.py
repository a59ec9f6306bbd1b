"""What a trace of a message found out, kept: whatever changes between calls, results are PyG's."""

import contextlib
import copy
import functools
import gc
import pickle
import random
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Parameter, Sequential, functional
from torch.nn.utils import parametrizations, parametrize
from torch_geometric import nn as gnn
from torch_geometric.typing import OptTensor
from torch_geometric.utils import softmax

import onehop
from onehop import thresholds
from onehop.compiler import functions
from onehop.integrations import reports
from onehop.integrations.pyg.rules import own_message
from onehop.loading import is_loaded

WIDTH, NODES, EDGES = 6, 20, 90
FACTOR, SEEN, COUNT, OTHER = 2.0, [], 0, types.SimpleNamespace(factor=2.0)
DEFAULT, DONE = [2.0], False

pytestmark = pytest.mark.usefixtures("in_doubles")


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


def changed_class(name: str, value: Any) -> Callable[..., None]:
    return lambda layer, patches: patches.setattr(type(layer), name, value)


def changed(change: Callable[[Any], object]) -> Callable[..., None]:
    return lambda layer, patches: change(layer)


def changed_global(name: str, value: Any) -> Callable[..., None]:
    return lambda layer, patches: patches.setitem(globals(), name, value)


def other_message(self, x_i: Tensor, x_j: Tensor, e: OptTensor, w: Any) -> Tensor:
    return self.act(x_i + x_j)


def refilled(layer: Own) -> None:
    with torch.no_grad():
        layer.lin.weight.copy_(torch.rand(WIDTH, WIDTH))


def tied(layer: Own) -> None:
    layer.steps[0].weight = layer.lin.weight


# What is changed between two calls of a layer of a user's.
CHANGES: dict[str, Callable[[Any, pytest.MonkeyPatch], object]] = {
    "a number": changed(lambda layer: setattr(layer, "rate", 0.7)),
    "a truth value": changed(lambda layer: setattr(layer, "turned", True)),
    "an entry of a list": changed(lambda layer: layer.powers.__setitem__(0, 5.0)),
    "another list": changed(lambda layer: setattr(layer, "powers", [5.0])),
    "a function": changed(lambda layer: setattr(layer, "gate", torch.sigmoid)),
    "a function of the same code": changed(lambda layer: setattr(layer, "gate", in_a_cell(9.0))),
    "a variable in a cell": changed(lambda layer: setattr(layer.gate.__closure__[0], "cell_contents", 7.0)),
    "an attribute of the class": changed_class("shift", 3.0),
    "a method": changed_class("helped", lambda self, x: x - 1),
    "a method on the instance": changed(lambda layer: setattr(layer, "helped", torch.sin)),
    "an attribute before that of the class": changed(lambda layer: setattr(layer, "shift", 4.0)),
    "the message": changed_class("message", other_message),
    "the code of the message": lambda layer, patches: patches.setattr(
        type(layer).message, "__code__", other_message.__code__
    ),
    "the message on the instance": changed(
        lambda layer: setattr(layer, "message", types.MethodType(other_message, layer))
    ),
    "a global": changed_global("FACTOR", 5.0),
    "a global function": changed_global("scaled", lambda x: x / 3),
    "defaults of a function": lambda layer, patches: patches.setattr(scaled, "__defaults__", (7.0,)),
    "a function of torch": lambda layer, patches: patches.setattr(
        functional, "leaky_relu", lambda x, slope: x.sigmoid()
    ),
    "a method of tensors": lambda layer, patches: patches.setattr(Tensor, "exp", lambda self: self.sigmoid()),
    "a call of any module": lambda layer, patches: patches.setattr(
        torch.nn.Module, "__call__", lambda self, *args, **kwargs: _called(self, *args, **kwargs)
    ),
    "a built-in name": changed_global("Linear", Linear),
    "a parameter": changed(lambda layer: setattr(layer.lin, "weight", Parameter(torch.rand(WIDTH, WIDTH)))),
    "numbers of a parameter": changed(
        lambda layer: setattr(layer.lin.weight, "data", torch.rand(WIDTH, WIDTH))
    ),
    "numbers written in place": changed(refilled),
    "a frozen parameter": changed(lambda layer: layer.lin.weight.requires_grad_(False)),
    "no parameter": changed(lambda layer: setattr(layer, "bias", None)),
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
    "a module": changed(lambda layer: setattr(layer, "act", torch.nn.ReLU())),
    "a module in a list": changed(lambda layer: layer.steps.__setitem__(0, torch.nn.Tanh())),
    "one more module": changed(lambda layer: layer.steps.append(torch.nn.Tanh())),
    "a module of the same class": changed(lambda layer: setattr(layer, "lin", Linear(WIDTH, WIDTH, False))),
    "an attribute of a module": changed(lambda layer: setattr(layer.steps[1], "factor", 3.0)),
    "an attribute of a module's class": lambda layer, patches: patches.setattr(Doubled, "factor", 3.0),
    "forward of a module's class": lambda layer, patches: patches.setattr(
        Doubled, "forward", lambda self, x: x - 1
    ),
    "forward of torch's class": lambda layer, patches: patches.setattr(
        Linear, "forward", lambda self, x: x @ self.weight
    ),
    "a call of a module's class": lambda layer, patches: patches.setattr(
        Doubled, "__call__", lambda self, x: x - 1, raising=False
    ),
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
    "the flow": changed(lambda layer: setattr(layer, "flow", "target_to_source")),
    "another class": changed(lambda layer: setattr(layer, "__class__", _Turned)),
    "another aggregation": changed(lambda layer: setattr(layer, "aggr_module", gnn.aggr.MaxAggregation())),
    "float32": changed(lambda layer: layer.float()),
}
# What changes no number.
SAME = ("a built-in name",)


def _called(module: Any, *args: Any, **kwargs: Any) -> Tensor:
    return module.forward(*args, **kwargs) * (2 if isinstance(module, Linear) else 1)


def _doubling(module: Any, given: Any, taken: Any) -> Any:
    return tuple(None if each is None else each * 2 for each in given)


class _Turned(Own):
    def message(self, x_i: Tensor, x_j: Tensor, e: OptTensor, w: Any) -> Tensor:
        return x_i - x_j


def results(layer: Any, x: Tensor, *others: Any) -> dict[str, Tensor]:
    """The output, and all gradients."""
    x = x.detach().to(next(layer.parameters()).dtype).requires_grad_()
    layer.zero_grad()
    torch.manual_seed(1)
    out = layer(x, *others)
    out.square().sum().backward()
    found = {"output": out.detach(), "gradient": x.grad}
    return found | {name: each.grad for name, each in layer.named_parameters() if each.grad is not None}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    # Of parameters in float32, the gradients of float64 are rounded too.
    exact = all(each.dtype is torch.float64 for each in expected.values())
    tolerance = 1e-9 if exact else 1e-4
    for name, each in expected.items():
        torch.testing.assert_close(
            found[name], each, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_between_two_calls_is_seen(name, edge_index, traces, monkeypatch):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    before = results(layer, x, edge_index)
    with onehop.patch():
        for _ in range(2):
            assert_same(results(layer, x, edge_index), before)
        assert len(traces) == 1
        CHANGES[name](layer, monkeypatch)
        for _ in range(2):
            found = results(layer, x, edge_index)
    expected = results(layer, x, edge_index)
    assert_same(found, expected)
    changes = before.keys() != expected.keys() or any(
        before[key].dtype is not expected[key].dtype or not torch.equal(before[key], expected[key])
        for key in before
    )
    assert changes == (name not in SAME)


def test_what_is_changed_back_is_seen(edge_index):
    x, found = torch.randn(NODES, WIDTH), {}
    first = Own()
    for patched, layer in ((False, copy.deepcopy(first)), (True, first)):
        found[patched] = []
        with onehop.patch() if patched else contextlib.nullcontext():
            for step in range(6):
                layer.train(step % 2 == 0)
                layer.turned = step % 3 == 0
                if step == 2:
                    hook = layer.lin.register_forward_hook(lambda *values: values[-1] * 2)
                elif step == 4:
                    hook.remove()
                found[patched].append(results(layer, x, edge_index))
    for ours, theirs in zip(found[True], found[False], strict=True):
        assert_same(ours, theirs)


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
            assert_same(results(layer, x, edge_index, *CALLS[name](e)), expected[name])


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
            assert_same(results(layer, x, edge_index), expected[0])
        _separate(layer, shared)
        assert_same(results(layer, x, edge_index), expected[1])


def uses_both(self, x_j: Tensor) -> Tensor:
    return self.second(self.lin(x_j))


def _separate(layer: Any, shared: str) -> None:
    if shared == "a module":
        layer.second = copy.deepcopy(layer.second)
        layer.second.weight.data *= 3
    else:
        layer.second[1].weight = Parameter(3 * layer.second[1].weight.detach())


def test_a_method_that_was_replaced_before_is_called_each_time(edge_index, traces, monkeypatch):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    monkeypatch.setattr(Tensor, "exp", lambda self: SEEN.append(1) or self.sigmoid())
    with onehop.patch():
        for number in range(3):
            before = len(SEEN)
            layer(x, edge_index)
            assert len(SEEN) > before
            assert len(traces) == number + 1


def test_a_hook_on_a_parameter_is_refused_later_too(edge_index, took_fast_path):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    with onehop.patch():
        assert took_fast_path(layer, x, edge_index) == [None]
        layer.weight.register_hook(lambda grad: grad)
        (reason,) = took_fast_path(layer, x, edge_index)
    assert reason.startswith("its message uses a parameter on which a hook is registered")


CONTEXTS: dict[str, Callable[[], Any]] = {
    "plain": torch.enable_grad,
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "device": lambda: torch.device("cpu"),
}


def test_contexts_in_turns(edge_index):
    layer, x = Own().float(), torch.randn(NODES, WIDTH).float()
    order = [*CONTEXTS, *reversed(CONTEXTS), *CONTEXTS]
    outs: dict[bool, list[Tensor]] = {False: [], True: []}
    for patched, found in outs.items():
        with onehop.patch() if patched else contextlib.nullcontext():
            for name in order:
                with CONTEXTS[name]():
                    found.append(layer(x, edge_index))
    for name, ours, theirs in zip(order, outs[True], outs[False], strict=True):
        assert ours.requires_grad == theirs.requires_grad
        close = {"rtol": 0.1, "atol": 0.1} if name == "autocast" else {"rtol": 1e-4, "atol": 1e-4}
        torch.testing.assert_close(ours, theirs, **close)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def float32_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float64)


def in_blocks() -> Any:
    return thresholds.changed(compiled_edges=1 << 20, cached_bytes=0)


# What a trace may depend on, so that there is another one.
STATES: dict[str, Callable[[], Any]] = {
    **CONTEXTS,
    "float32 by default": float32_by_default,
    "deterministic": deterministic,
    "in blocks": in_blocks,
    "wide features of edges": lambda: thresholds.changed(edge_columns=1),
}


@pytest.mark.parametrize("name", [name for name in STATES if name not in ("plain", "inference")])
def test_another_state_of_torch_leads_to_another_trace(name, edge_index, traces):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    with onehop.patch():
        for at, state in enumerate([STATES["plain"], STATES[name], STATES["plain"]]):
            with state():
                layer(x, edge_index)
            assert len(traces) == (1, 2, 2)[at]


def test_other_graphs_lead_to_other_traces(edges, traces):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    many, few = edges(NODES, NODES, EDGES), edges(NODES, NODES, 10)
    expected = [layer(x, index) for index in (many, many[:, :0], few)]
    counts = []
    with onehop.patch():
        for at in (0, 1, 2, 0, 1, 2):
            torch.testing.assert_close(layer(x, (many, many[:, :0], few)[at]), expected[at])
            counts.append(len(traces))
        # Products for nodes are made where there are no more nodes than edges.
        assert counts == [1, 2, 3, 3, 3, 3]
        layer(torch.randn(2, NODES, WIDTH)[0], few)
        assert len(traces) == 3


# Messages that no guard can know, with what they leave behind; all are traced at every call.
def appends(self, x_j: Tensor) -> Tensor:
    SEEN.append(1)
    return x_j * 2


def counts(self, x_j: Tensor) -> Tensor:
    global COUNT
    COUNT += 1
    return x_j * COUNT**0


def prints(self, x_j: Tensor) -> Tensor:
    print("here")  # noqa: T201
    return x_j * 2


def reads_an_object(self, x_j: Tensor) -> Tensor:
    return x_j * OTHER.factor


def looks(self, x_j: Tensor) -> Tensor:
    return x_j * 2 if self.weight.sum() > 0 else -x_j


def takes_a_number(self, x_j: Tensor) -> Tensor:
    return x_j * float(self.weight.detach().max())


def makes_a_tensor(self, x_j: Tensor) -> Tensor:
    return x_j * torch.tensor([OTHER.factor])


def by_its_name(self, x_j: Tensor) -> Tensor:
    return x_j * getattr(self, "rate")  # noqa: B009, as users write it


def by_its_dictionary(self, x_j: Tensor) -> Tensor:
    return x_j * self.__dict__["rate"]


def generates(self, x_j: Tensor) -> Tensor:
    return x_j * sum(each for each in (OTHER.factor, 1.0))


def tries(self, x_j: Tensor) -> Tensor:
    try:
        return x_j * OTHER.factor
    except AttributeError:
        return x_j


def without_recording(self, x_j: Tensor) -> Tensor:
    with torch.no_grad():
        scale = self.weight * 2
    return x_j * (scale + self.bias)


@functools.wraps(gnn.GINEConv.message)
def wraps_a_message(self, x_j: Tensor) -> Tensor:
    return x_j * OTHER.factor


@functools.wraps(functional.relu)
def wrapped(x: Tensor) -> Tensor:
    SEEN.append(1)
    return x * OTHER.factor


def calls_a_wrapper(self, x_j: Tensor) -> Tensor:
    return wrapped(x_j)


def calls_a_module(self, x_j: Tensor) -> Tensor:
    return self.counting(x_j)


def walks(self, x_j: Tensor) -> Tensor:
    for each in self.walked:
        x_j = x_j * each
    return x_j


def by_its_store(self, x_j: Tensor) -> Tensor:
    return x_j * self._buffers["mean"].size(0)


def by_a_list(x: Tensor, by: Any = DEFAULT) -> Tensor:
    return x * by[0]


def by_a_keyword(x: Tensor, *, by: float = 2.0) -> Tensor:
    return x * by


def again(x: Tensor, times: int = 2) -> Tensor:
    return x if times == 0 else again(x * FACTOR, times - 1)


def reads_a_default(self, x_j: Tensor) -> Tensor:
    return by_a_list(x_j)


def reads_a_keyword(self, x_j: Tensor) -> Tensor:
    return by_a_keyword(x_j)


def repeats(self, x_j: Tensor) -> Tensor:
    return again(x_j)


UNKNOWN = [
    wraps_a_message,
    reads_a_default, reads_a_keyword, repeats,
    calls_a_module,
    walks,
    by_its_store,
    calls_a_wrapper,
    appends, counts, prints, reads_an_object, looks, takes_a_number, makes_a_tensor, by_its_name,
    by_its_dictionary, generates, tries, without_recording,
]  # fmt: skip


@pytest.mark.parametrize("message", UNKNOWN, ids=lambda message: message.__name__)
def test_messages_that_may_do_more_are_traced_at_every_call(message, edge_index, traces, monkeypatch, capsys):
    layer, x = layer_of(message), torch.randn(NODES, WIDTH)
    sizes = []
    plain, expected = copy.deepcopy(layer), []
    for patched, each in ((False, plain), (True, layer)):
        found = []
        with onehop.patch() if patched else torch.enable_grad():
            for step in range(4):
                sizes.append((len(SEEN), COUNT, len(capsys.readouterr().out)))
                monkeypatch.setattr(OTHER, "factor", 2.0 + step)
                DEFAULT[0] = 2.0 + step
                each.mean = torch.rand(step + 1)
                monkeypatch.setattr(by_a_keyword, "__kwdefaults__", {"by": 2.0 + step})
                each.weight.data = each.weight.data.neg() * (step + 1)
                each.rate += 1.0
                found.append(results(each, x, edge_index))
        if patched:
            for ours, theirs in zip(found, expected, strict=True):
                assert_same(ours, theirs)
        expected = found
    assert len(traces) == 4
    if message in (appends, counts):
        assert len(set(sizes)) == len(sizes)


def sets_a_global(self, x_j: Tensor) -> Tensor:
    global DONE
    DONE = True
    return x_j * 2


def seeds(self, x_j: Tensor) -> Tensor:
    torch.manual_seed(5)
    return x_j * 2


def test_what_a_message_sets_is_set_at_every_call(edge_index, monkeypatch):
    setting, seeding = layer_of(sets_a_global), layer_of(seeds)
    x = torch.randn(NODES, WIDTH)
    with onehop.patch():
        for _ in range(3):
            monkeypatch.setitem(globals(), "DONE", False)
            torch.manual_seed(1)
            setting(x, edge_index)
            seeding(x, edge_index)
            assert DONE
            assert torch.initial_seed() == 5


@pytest.mark.parametrize("message", [by_its_name, without_recording], ids=lambda message: message.__name__)
def test_functions_of_a_trusted_package(message, edge_index):
    """They may get attributes by texts and stop recording, which functions of others may not."""
    layer, x = layer_of(message), torch.randn(NODES, WIDTH)
    trusted = {**globals(), "__name__": "torch_geometric.messages"}
    type(layer).message = types.FunctionType(message.__code__, trusted, "message")
    found: dict[bool, list[Any]] = {False: [], True: []}
    for patched, each in found.items():
        with onehop.patch() if patched else contextlib.nullcontext():
            for layer.rate in (1.0, 1.0, 2.0, 3.0):
                each.append(results(layer, x, edge_index))
    for ours, theirs in zip(found[True], found[False], strict=True):
        assert_same(ours, theirs)


def layer_of(message: Callable[..., Tensor], base: Any = Parts) -> Any:
    """A layer with a message, which PyG looks up by its name."""
    function = types.FunctionType(message.__code__, globals(), "message")
    function.__annotations__ = {**message.__annotations__, "x_j": Tensor}
    function.__module__ = message.__module__

    class Mine(base):
        message = function

    # PyG renders one propagate for all classes of one name.
    Mine.__name__ = f"With{message.__name__}"
    return Mine()


# Layers of PyG, and whether they take features of edges.
LAYERS = {
    "ResGated": lambda: (gnn.ResGatedGraphConv(WIDTH, WIDTH, edge_dim=3), True),
    "GINE": lambda: (gnn.GINEConv(Linear(WIDTH, 4), edge_dim=3), True),
    "CG": lambda: (gnn.CGConv(WIDTH, dim=3), True),
    "GEN": lambda: (gnn.GENConv(WIDTH, 4, edge_dim=3, learn_t=True), True),
    "GMM": lambda: (gnn.GMMConv(WIDTH, 4, dim=3, kernel_size=2), True),
    "NN": lambda: (gnn.NNConv(WIDTH, 4, Linear(3, 4 * WIDTH)), True),
    "PNA": lambda: (
        gnn.PNAConv(WIDTH, 4, ["mean", "std"], ["amplification"], torch.tensor([1, 9, 9])),
        False,
    ),
    "Edge": lambda: (
        gnn.EdgeConv(Sequential(Linear(2 * WIDTH, 4), torch.nn.Dropout(0.0), torch.nn.ELU())),
        False,
    ),
    "MLP": lambda: (gnn.EdgeConv(gnn.MLP([2 * WIDTH, 5, 4], norm="layer_norm")), False),
    "FeaSt": lambda: (gnn.FeaStConv(WIDTH, 4, heads=2), False),
    "FiLM": lambda: (gnn.FiLMConv(WIDTH, 4), False),
    "General": lambda: (gnn.GeneralConv(WIDTH, 4, attention=True), False),
    "SAGE std": lambda: (gnn.SAGEConv(WIDTH, 4, aggr="std"), False),
    "median": lambda: (gnn.SAGEConv(WIDTH, 4, aggr="median"), False),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_pyg_are_traced_once(name, edge_index, edges, traces):
    (layer, takes), x = LAYERS[name](), torch.randn(NODES, WIDTH)
    others = [torch.randn(EDGES, 3)] if takes else []
    indices = [edge_index, edge_index, edges(NODES, NODES, EDGES, seed=3)]
    plain, expected = copy.deepcopy(layer), []
    for patched, each in ((False, plain), (True, layer)):
        found, counts = [], []
        with onehop.patch() if patched else torch.enable_grad():
            for index in indices:
                with torch.no_grad():
                    for parameter in each.parameters():
                        parameter.mul_(0.9)
                found.append(results(each, x, index, *others))
                counts.append(len(traces))
        if patched:
            for ours, theirs in zip(found, expected, strict=True):
                assert_same(ours, theirs)
        expected = found
    # Once graphs can be divided, a normalisation of PyG depends on the processes too, and no guard knows it.
    normalises = name == "MLP" and is_loaded("distributed")
    assert counts == ([1, 2, 3] if normalises else [1, 1, 1])
    copied = pickle.loads(pickle.dumps(layer))
    assert vars(copied).keys() == vars(layer).keys()
    expected = results(copied, x, edge_index, *others)
    with onehop.patch():
        assert_same(results(copied, x, edge_index, *others), expected)


def message_of_edges(self, x_i: Tensor, x_j: Tensor, index: Tensor, ptr: Any, size_i: int) -> Tensor:
    scores = softmax((x_i * x_j).sum(-1, keepdim=True), index, ptr, size_i)
    return functional.dropout(scores, self.rate, self.training) * x_j


def test_dropout_draws_anew_and_follows_the_mode(edge_index, traces):
    layer, x = layer_of(message_of_edges), torch.randn(NODES, WIDTH)
    modes = [(True, 0.3), (True, 0.3), (False, 0.3), (True, 0.3), (True, 0.9), (False, 0.9)]
    found: dict[bool, list[Any]] = {False: [], True: []}
    for patched, each in found.items():
        with onehop.patch() if patched else contextlib.nullcontext():
            for training, layer.rate in modes:
                layer.train(training)
                each.append(results(layer, x, edge_index))
    for ours, theirs in zip(found[True], found[False], strict=True):
        assert_same(ours, theirs)
    with onehop.patch():
        layer.train()
        outs = [layer(x, edge_index) for _ in range(3)]
    assert not any(torch.equal(outs[0], each) for each in outs[1:])
    assert len(traces) < len(modes) + len(outs)


def test_a_parameter_that_learns_again_in_blocks(edge_index):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    layer.lin.weight.requires_grad_(False)
    found: dict[bool, list[Any]] = {False: [], True: []}
    for patched, each in found.items():
        with onehop.patch() if patched else contextlib.nullcontext(), in_blocks():
            for needed in (False, True, False, True):
                layer.lin.weight.requires_grad_(needed)
                each.append(results(layer, x, edge_index))
    for ours, theirs in zip(found[True], found[False], strict=True):
        assert_same(ours, theirs)


def test_parameters_of_a_functional_call(edge_index):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    others = {name: torch.rand_like(each) for name, each in layer.named_parameters()}
    expected = layer(x, edge_index), torch.func.functional_call(layer, others, (x, edge_index))
    with onehop.patch():
        for _ in range(2):
            torch.testing.assert_close(layer(x, edge_index), expected[0])
            torch.testing.assert_close(
                torch.func.functional_call(layer, others, (x, edge_index)), expected[1]
            )


def test_a_gradient_reaches_a_matrix_that_is_the_same_for_all_edges(edge_index):
    class Multiplying(gnn.MessagePassing):
        def forward(self, x: Tensor, edge_index: Tensor, w: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x, w=w)

        def message(self, x_j: Tensor, w: Tensor) -> Tensor:
            return x_j @ w

    layer, x, found = Multiplying(), torch.randn(NODES, WIDTH), []
    w = torch.randn(WIDTH, 4, requires_grad=True)
    for patched in (False, True, True):
        with onehop.patch() if patched else torch.enable_grad():
            out = layer(x, edge_index, w)
            found.append((out.detach(), *torch.autograd.grad(out.square().sum(), w)))
    for each in found[1:]:
        torch.testing.assert_close(each, found[0])


def test_nothing_is_kept_alive(edge_index):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    gc.disable()  # nothing is freed late, by the collector alone
    try:
        with onehop.patch():
            for _ in range(2):
                results(layer, x, edge_index)
                freed = [weakref.ref(layer.lin.weight), weakref.ref(layer.act), weakref.ref(layer.gate)]
                layer.lin.weight, layer.act = Parameter(torch.rand(WIDTH, WIDTH)), torch.nn.ReLU()
                layer.gate = in_a_cell(2.5)
                assert [each() for each in freed] == [None] * 3
            freed = [weakref.ref(layer), weakref.ref(layer.weight)]
            del layer
            assert [each() for each in freed] == [None] * 2
    finally:
        gc.enable()


def test_a_class_is_freed_with_its_layers(edge_index):
    names: dict[str, Any] = {"gnn": gnn, "Linear": Linear, "WIDTH": WIDTH}
    code = "class Freed(gnn.MessagePassing):\n"
    code += "    def __init__(self):\n        super().__init__()\n        self.lin = Linear(WIDTH, WIDTH)\n"
    code += "    def message(self, x_j):\n        return self.lin(x_j) * WIDTH\n"
    exec(code, names)
    names["layer"] = names["Freed"]()
    freed = weakref.ref(names["Freed"])
    with onehop.patch():
        for _ in range(2):
            names["layer"].propagate(edge_index, x=torch.randn(NODES, WIDTH))
    del names
    gc.collect()
    assert freed() is None


@pytest.mark.parametrize("patched", [False, True])
def test_functions_of_torch_are_known_under_the_patch_and_without(patched, edge_index, traces):
    functions._of_torch.cache_clear()
    with onehop.patch() if patched else contextlib.nullcontext():
        assert functions.is_of_tensors("relu")
    layer, x = layer_of(by_a_step), torch.randn(NODES, WIDTH)
    with onehop.patch():
        for _ in range(2):
            layer(x, edge_index)
    assert len(traces) == 1


def by_a_step(self, x_j: Tensor) -> Tensor:
    return functional.linear(self.lin(x_j), self.lin.weight)


def test_an_id_that_is_used_again_is_another_layer(edge_index, traces):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    with onehop.patch():
        expected = layer(x, edge_index)
        of = type(layer).propagate.onehop_records[Own].own.traces._of
        other = copy.deepcopy(layer)
        of[id(other)] = of[id(layer)]
        torch.testing.assert_close(other(x, edge_index), expected)
        assert len(traces) == 2
        traces.clear()
        del layer, other
        gc.collect()
        assert not of


def test_threads_share_what_is_kept(edge_index):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    e = torch.randn(EDGES, WIDTH)
    operands = [call(e) for call in CALLS.values()]
    expected = [layer(x, edge_index, *each) for each in operands]
    wrong: list[int] = []

    def call(first: int) -> None:
        for turn in range(30):
            at = (first + turn) % len(operands)
            out = layer(x, edge_index, *operands[at])
            if not torch.allclose(out, expected[at], rtol=1e-6, atol=1e-6):
                wrong.append(at)

    with onehop.patch():
        threads = [threading.Thread(target=call, args=(3 * number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_what_is_kept_is_bounded(edge_index):
    layer, x = Own(), torch.randn(NODES, WIDTH)
    with onehop.patch():
        for number in range(40):
            layer(x, edge_index, None, float(number))
        with reports.recorded():
            records = type(layer).propagate.onehop_records
        assert sum(len(kept) for _, kept in records[Own].own.traces._of.values()) == 16
