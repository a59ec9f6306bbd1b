"""Messages are read before they run: what only computes is told from what may do more."""

import functools
import itertools
import math
import random
import types
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch_geometric.utils
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.utils import softmax

from onehop.compiler.functions import Opaque
from onehop.compiler.reading import Reading

NUMBERS, TABLE, COUNTED, QUEUE = [1.0, 2.0], {"a": 2.0}, Counter(), deque()
STEPS, NUMBER, TENSOR, OPTIONS = itertools.count(), 2.0, torch.ones(4), types.SimpleNamespace(scale=2.0)
GENERATOR, HOOKED = torch.Generator(), nn.Linear(4, 4)
HOOKED.register_forward_hook(lambda *_: None)


@dataclass
class Settings:
    scale: float = 2.0

    def doubled(self) -> float:
        return self.scale * 2


SETTINGS = Settings()


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.calls = nn.Linear(4, 4), 0

    def forward(self, x: Tensor) -> Tensor:
        return self.lin(x)


class CountingInner(Inner):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.lin(x)


class Callable_:
    def __call__(self, x):
        return x


CALLED = Callable_()


class Base(nn.Module):
    rates = (1.0, 2.0)
    seen_by_all: ClassVar[list[Any]] = []

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.inner, self.counting = nn.Linear(4, 4), Inner(), CountingInner()
        self.lins = nn.ModuleList([nn.Linear(4, 4)])
        self.rate, self.seen, self.act, self.options = (
            0.5,
            [1.0],
            torch.tanh,
            types.SimpleNamespace(scale=2.0),
        )
        self.register_buffer("mean", torch.zeros(4))
        self.called, self.bound, self.bound_to_more = CALLED, self.inner.forward, self.counting.forward

    def message(self, x_j: Tensor) -> Tensor:
        return x_j * self.rate

    def helped(self, x: Tensor) -> Tensor:
        return self.lin(x) * self.rates[0]

    @property
    def doubled(self) -> float:
        return self.rate * 2


def helper(x: Tensor, by: float = 2.0, *, plus: float = 1.0) -> Tensor:
    return x * by + plus


def noting(x: Tensor) -> Tensor:
    NUMBERS.append(1.0)
    return x


def asks(x: Tensor) -> Tensor:
    return x if x.is_leaf else -x


FUNCTIONS, STEPS_OF, PARTIAL = {"asks": asks}, (asks,), functools.partial(asks)


def own_list(self, x_j):
    out = []
    for lin in self.lins:
        out.append(lin(x_j))  # noqa: PERF401
    out.extend([x_j])
    return torch.cat(out, -1)


def own_dictionary(self, x_j):
    out = {}
    out["a"] = x_j * 2
    return out["a"]


def own_elements(self, x_j):
    out = torch.zeros_like(x_j)
    out[:, :2] = x_j[:, :2]
    other = self.lin(x_j)
    other = other * 2
    other[:, 0] = 1.0
    return out + other


def local_function(self, x_j):
    def inside(x):
        return x * self.rate

    return inside(x_j) + sum(lin(x_j) for lin in self.lins)


def closed_over(factor):
    return lambda self, x_j: x_j * factor


def closed_over_module(inner):
    return lambda self, x_j: inner(x_j)


ONLY_COMPUTES: dict[str, Callable[..., Tensor]] = {
    "arithmetic": lambda self, x_j: -x_j * 2 + self.rate,
    "functions of torch": lambda self, x_j: F.relu(torch.cat([x_j, x_j], -1)).sum(-1),
    "modules": lambda self, x_j: self.inner(self.lin(x_j)),
    "a module of a list": lambda self, x_j: self.lins[0](x_j),
    "a function as an attribute": lambda self, x_j: self.act(x_j),
    "a method": lambda self, x_j: self.helped(x_j),
    "a property": lambda self, x_j: x_j * self.doubled,
    "a function": lambda self, x_j: helper(x_j, plus=2.0),
    "a global": lambda self, x_j: x_j * NUMBER * TENSOR,
    "entries": lambda self, x_j: x_j * NUMBERS[0] * TABLE["a"] * TABLE.get("b", 1.0),
    "options": lambda self, x_j: x_j * OPTIONS.scale * self.options.scale * SETTINGS.scale,
    "a closure": closed_over(3.0),
    "a closed-over tensor": closed_over(torch.ones(4)),
    "a closed-over module": closed_over_module(Inner()),
    "PyG's softmax": lambda self, x_j, index, size_i: softmax(x_j, index, num_nodes=size_i),
    "PyG's functions": lambda self, x_j, index: x_j * torch_geometric.utils.degree(index)[index].view(-1, 1),
    "math": lambda self, x_j: x_j * math.sqrt(2.0) * math.pi,
    "sizes": lambda self, x_j: x_j.view(x_j.size(0), 2, -1).sum(1) * x_j.shape[-1],
    "a partial function": lambda self, x_j: functools.partial(helper, by=3.0)(x_j),
    "the base": lambda self, x_j: Base.message(self, x_j),
    "a bound method": lambda self, x_j: self.bound(x_j),
    "a method of tensors that Python has": lambda self, x_j: x_j.split(2, -1)[0],
    "a type": lambda self, x_j: x_j if isinstance(x_j, Tensor) else x_j.float(),
    "numbers of a dtype": lambda self, x_j: x_j.clamp(min=torch.finfo(x_j.dtype).eps),
    "lists of its own": own_list,
    "a dictionary of its own": own_dictionary,
    "elements of its own tensors": own_elements,
    "a local function": local_function,
}


def stores(self, x_j):
    self.last = x_j
    return x_j


def stores_in_a_buffer(self, x_j):
    self.mean[0] = 1.0
    return x_j


def stores_in_its_operand(self, x_j):
    x_j[0] = 1.0
    return x_j


def stores_through_a_name(self, x_j):
    seen = self.seen
    seen[0] = 3.0
    return x_j


def stores_in_one_of_two(self, x_j):
    seen = self.seen if self.training else []
    seen.append(1.0)
    return x_j


def stores_in_what_a_function_returns(self, x_j):
    found = lists(self)
    found[0] = 1.0
    return x_j


def lists(layer):
    return layer.seen


def adds_to_a_list(self, x_j):
    seen = self.seen
    seen += [1.0]
    return x_j


def deletes(self, x_j):
    del self.last
    return x_j


def sets_a_global(self, x_j):
    global NUMBER
    NUMBER = 3.0
    return x_j


def sets_its_class(self, x_j):
    type(self).rates = (2.0,)
    return x_j


def outer():
    count = 0

    def counts(self, x_j):
        nonlocal count
        count += 1
        return x_j

    return counts


def without_gradients(self, x_j):
    with torch.no_grad():
        return x_j * 2


def logged(x_j):
    return x_j


logged.log = []


def adds_to_log(x_j):
    log = logged.log
    log += [1.0]
    return x_j


def tries(self, x_j):
    try:
        return self.lin(x_j)
    except RuntimeError:
        return x_j


def imports(self, x_j):
    import onehop

    return x_j * len(onehop.__name__)


def yields(self, x_j):
    yield x_j


def decorated(function):
    @functools.wraps(function)
    def counting(*args, **kwargs):
        COUNTED["calls"] += 1
        return function(*args, **kwargs)

    return counting


MORE: dict[str, tuple[Callable[..., Any], str]] = {
    "stores": (stores, "stores something"),
    "stores in a buffer": (stores_in_a_buffer, "stores something"),
    "stores in its operand": (stores_in_its_operand, "stores something"),
    "stores through a name": (stores_through_a_name, "stores something"),
    "stores in one of two": (stores_in_one_of_two, "uses append"),
    "stores in what a function returns": (
        stores_in_what_a_function_returns,
        "writes to elements of what lists",
    ),
    "adds to a list": (adds_to_a_list, "uses \\+=, which may change a list"),
    "deletes": (deletes, "stores something"),
    "sets a global": (sets_a_global, "stores something"),
    "sets its class": (sets_its_class, "stores something"),
    "sets a variable outside": (outer(), "stores something"),
    "is decorated": (decorated(Base.message), "stores something"),
    "enters a context": (without_gradients, "enters a context"),
    "handles an exception": (tries, "handles exceptions"),
    "imports": (imports, "imports a module"),
    "yields": (yields, "does more than compute"),
    "prints": (lambda self, x_j: print(1) or x_j, "uses print"),  # noqa: T201
    "appends": (lambda self, x_j: NUMBERS.append(1.0) or x_j, "uses append"),
    "appends to an attribute": (lambda self, x_j: self.seen.append(1.0) or x_j, "uses append"),
    "appends to an attribute of the class": (
        lambda self, x_j: self.seen_by_all.append(1) or x_j,
        "uses append",
    ),
    "sorts a list": (lambda self, x_j: self.seen.sort() or x_j, "uses sort, which may change a list"),
    "a module that counts": (lambda self, x_j: self.counting(x_j), "stores something"),
    "a function in a table": (lambda self, x_j: FUNCTIONS["asks"](x_j), "uses is_leaf"),
    "a function in a tuple": (lambda self, x_j: STEPS_OF[0](x_j), "uses is_leaf"),
    "a partial function that asks": (lambda self, x_j: PARTIAL(x_j), "uses is_leaf"),
    "a default that asks": (lambda self, x_j, by=asks: by(x_j), "uses is_leaf"),
    "a function that notes": (lambda self, x_j: noting(x_j), "uses append"),
    "an attribute of a function": (lambda self, x_j: x_j * len(logged.log), "uses log, an attribute"),
    "a list that a function has": (lambda self, x_j: adds_to_log(x_j), "uses log, an attribute"),
    "a hooked module": (lambda self, x_j: HOOKED(x_j), "hooks are registered"),
    "a method of options": (lambda self, x_j: x_j * SETTINGS.doubled(), "uses doubled, which a Settings has"),
    "random": (lambda self, x_j: x_j * random.random(), "uses random.random"),
    "numpy": (lambda self, x_j: x_j * np.random.rand(), "uses np.random.rand"),  # noqa: NPY002
    "a counter": (lambda self, x_j: COUNTED.update("a") or x_j, "uses COUNTED.update|uses COUNTED"),
    "a queue": (lambda self, x_j: QUEUE.append(1) or x_j, "uses QUEUE"),
    "an iterator": (lambda self, x_j: x_j * next(STEPS), "uses (next|STEPS)"),
    "a generator": (lambda self, x_j: x_j * torch.rand(1, generator=GENERATOR), "uses GENERATOR"),
    "the mode": (lambda self, x_j: x_j if torch.is_grad_enabled() else -x_j, "uses torch.is_grad_enabled"),
    "inference": (lambda self, x_j: x_j if x_j.is_inference() else -x_j, "uses is_inference"),
    "a history": (lambda self, x_j: x_j if x_j.grad_fn is None else -x_j, "uses grad_fn"),
    "a leaf": (lambda self, x_j: x_j if x_j.is_leaf else -x_j, "uses is_leaf"),
    "a need": (lambda self, x_j: x_j if x_j.requires_grad else -x_j, "uses requires_grad"),
    "a version": (lambda self, x_j: x_j * x_j._version, "uses _version"),
    "memory": (lambda self, x_j: x_j * (x_j.data_ptr() % 64), "uses data_ptr"),
    "strides": (lambda self, x_j: x_j if x_j.is_contiguous() else -x_j, "uses is_contiguous"),
    "the data": (lambda self, x_j: x_j.data, "uses data"),
    "an array": (lambda self, x_j: torch.as_tensor(x_j.numpy()), "uses numpy"),
    "a hook": (lambda self, x_j: x_j.register_hook(print) or x_j, "uses (register_hook|print)"),
    "by a name": (lambda self, x_j: x_j * getattr(self, "rate"), "uses getattr"),  # noqa: B009
    "sets by a name": (lambda self, x_j: setattr(self, "rate", 2.0) or x_j, "uses setattr"),
    "its dictionary": (lambda self, x_j: self.__dict__.update(rate=2.0) or x_j, "uses (__dict__|update)"),
    "evaluates": (lambda self, x_j: eval("x_j"), "uses eval"),
    "an object as an attribute": (lambda self, x_j: self.called(x_j), "uses a Callable_"),
    "a bound method that counts": (lambda self, x_j: self.bound_to_more(x_j), "stores something"),
    "an object that is called": (lambda self, x_j: CALLED(x_j), "uses CALLED"),
    "seeds": (lambda self, x_j: torch.manual_seed(1) and x_j, "uses torch.manual_seed"),
    "another mode": (lambda self, x_j: torch.set_grad_enabled(True) and x_j, "uses torch.set_grad_enabled"),
    "trains": (lambda self, x_j: self.lin.train() and x_j, "uses train"),
    "draws parameters again": (lambda self, x_j: self.lin.reset_parameters() or x_j, "uses reset_parameters"),
    "adds a module": (lambda self, x_j: self.lins.append(self.lin) and x_j, "uses append"),
    "a name that is not there": (lambda self, x_j: x_j * nothing, "uses nothing"),  # noqa: F821
}


def reading_of(message: Callable[..., Any]) -> Reading:
    kind = type("Own", (Base,), {"message": message})
    return Reading(kind(), (), ("message", "training"))


@pytest.mark.parametrize("message", ONLY_COMPUTES.values(), ids=ONLY_COMPUTES)
def test_what_only_computes_is_read(message):
    assert "message" in reading_of(message).names


@pytest.mark.parametrize(("message", "why"), MORE.values(), ids=MORE)
def test_what_may_do_more_is_refused(message, why):
    with pytest.raises(Opaque, match=why) as raised:
        reading_of(message)
    assert raised.value.sentence.startswith("its message ")


def test_a_method_that_is_called_as_one_of_pyg_is_read_like_any_other():
    def norms(self, x_j):
        return self.__norm__(x_j)

    own = {"message": norms, "__norm__": lambda self, x: x / self.rate}
    assert "__norm__" in Reading(type("Own", (Base,), own)(), (), ("message", "training")).names
    own["__norm__"] = stores
    with pytest.raises(Opaque, match="stores something"):
        Reading(type("Own", (Base,), own)(), (), ("message", "training"))


def test_a_function_of_torch_that_other_code_has_replaced_is_read_too(monkeypatch):
    monkeypatch.setattr(F, "relu", noting)
    with pytest.raises(Opaque, match="uses append"):
        reading_of(lambda self, x_j: F.relu(x_j))


def test_a_method_of_tensors_that_other_code_has_replaced_is_refused(monkeypatch):
    monkeypatch.setattr(Tensor, "exp", noting)
    with pytest.raises(Opaque, match="uses exp, which is not torch's"):
        reading_of(lambda self, x_j: x_j.exp())


@pytest.mark.parametrize("kind", [Tensor, nn.Parameter])
@pytest.mark.parametrize("name", ["__mul__", "__rsub__", "__matmul__", "__bool__", "__lt__"])
def test_an_operator_of_tensors_that_other_code_has_replaced_is_refused(kind, name, monkeypatch):
    monkeypatch.setattr(kind, name, noting)
    with pytest.raises(Opaque, match=f"uses {name}, which is not torch's"):
        reading_of(lambda self, x_j: x_j)


@pytest.mark.parametrize("name", ["__call__", "_call_impl", "__getattr__", "__getattribute__"])
def test_a_call_of_modules_that_other_code_has_replaced_is_refused(name, monkeypatch):
    layer = type("Own", (Base,), {"message": lambda self, x_j: self.lin(x_j)})()
    theirs = getattr(nn.Module, name)
    monkeypatch.setattr(nn.Module, name, lambda self, *args: theirs(self, *args))
    with pytest.raises(Opaque, match=f"uses {name} of Module, which is not torch's"):
        Reading(layer, (), ("message",))


def test_what_reads_numbers_in_c_is_told_from_what_asks_them():
    assert reading_of(lambda self, x_j: x_j * len(range(3))).counts_in_c
    assert reading_of(lambda self, x_j: x_j * math.log(2)).counts_in_c
    assert reading_of(lambda self, x_j: x_j * self.rates[x_j.size(0)]).counts_in_c
    assert not reading_of(lambda self, x_j: x_j[:, 1:3] * self.rates[0]).counts_in_c


def calls_its_base(self, x_j):
    return super(Base, self).message(x_j)


STAYING: dict[str, tuple[Callable[..., Any], bool, bool]] = {
    "arithmetic": (lambda self, x_j: x_j * self.rate, True, True),
    "a list of its own": (lambda self, x_j: x_j * self.seen[0], True, True),
    "a module outside": (closed_over_module(Inner()), False, True),
    "a tensor outside": (closed_over(torch.ones(4)), False, True),
    "options": (lambda self, x_j: x_j * OPTIONS.scale, False, True),
    "a default that is a list": (lambda self, x_j, by=NUMBERS: x_j * by[0], False, True),
    "a keyword with a default": (lambda self, x_j, *, by=2.0: x_j * by, False, True),
    "a partial function": (lambda self, x_j: PARTIAL_OF_HELPER(x_j), False, True),
    "a property": (lambda self, x_j: x_j * self.doubled, False, False),
    "its base": (calls_its_base, False, False),
}
PARTIAL_OF_HELPER = functools.partial(helper, by=3.0)


@pytest.mark.parametrize(("message", "kept", "stays"), STAYING.values(), ids=STAYING)
def test_what_is_read_is_known_again_or_can_be_copied(message, kept, stays):
    reading = reading_of(message)
    assert (not reading.outside, reading.stays) == (kept, stays)


def test_a_layer_that_reads_itself_from_outside_is_not_copied():
    kind = type("Own", (Base,), {"message": lambda self, x_j: x_j if LAYERS[0] == self else -x_j})
    layer = kind()
    LAYERS.append(layer)
    assert not Reading(layer, (), ("message", "training")).stays


LAYERS: list[Base] = []
