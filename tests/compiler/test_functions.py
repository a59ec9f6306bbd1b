"""Functions that were looked at are known again, and those of torch and PyG are read in part."""

import functools
import itertools
import math
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.utils import scatter, segment, softmax
from torch_geometric.utils.num_nodes import maybe_num_nodes

import onehop
from onehop.compiler import trusted
from onehop.compiler.functions import Opaque, Outside, check_of, read_function
from onehop.compiler.history import History, Refused
from onehop.compiler.reading import Reading
from tests.compiler.test_reading import CALLED, Base, CountingInner, asks, helper, noting

RATE, RATES, TENSOR, SEED = 2.0, [1.0, 2.0], torch.ones(1), torch.manual_seed


def inner(x: Tensor) -> Tensor:
    return x * RATE


def outer(x: Tensor, by: float = 2.0) -> Tensor:
    return inner(x) * by * RATES[0] * math.sqrt(2.0)


def holding(function: Any) -> Callable[[Any], bool]:
    return read_function(function, Outside()).holds


def test_a_function_is_known_again():
    assert holding(outer)(outer)


CHANGES: dict[str, Callable[[pytest.MonkeyPatch], Any]] = {
    "its code": lambda patch: patch.setattr(outer, "__code__", helper_like.__code__),
    "its defaults": lambda patch: patch.setattr(outer, "__defaults__", (3.0,)),
    "defaults of keywords": lambda patch: patch.setattr(outer, "__kwdefaults__", {"plus": 1.0}),
    "a value": lambda patch: patch.setitem(globals(), "RATE", 3.0),
    "a value that is gone": lambda patch: patch.delitem(globals(), "RATE"),
    "a list": lambda patch: patch.setitem(globals(), "RATES", [1.0, 2.0, 3.0]),
    "an element": lambda patch: patch.setitem(globals(), "RATES", [3.0, 2.0]),
    "a list that is none": lambda patch: patch.setitem(globals(), "RATES", (1.0, 2.0)),
    "a function": lambda patch: patch.setitem(globals(), "inner", asks),
    "the code of a function": lambda patch: patch.setattr(inner, "__code__", asks.__code__),
    "no function": lambda patch: patch.setitem(globals(), "inner", CALLED),
    "a function of a module": lambda patch: patch.setattr(math, "sqrt", math.exp),
    "a module": lambda patch: patch.setitem(globals(), "math", torch),
    "no module": lambda patch: patch.setitem(globals(), "math", 2.0),
}


def helper_like(x: Tensor, by: float = 2.0) -> Tensor:
    return inner(x) / by * RATES[0] * math.sqrt(2.0)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_function_that_differs_or_reads_another_value_is_not(change, monkeypatch):
    holds = holding(outer)
    change(monkeypatch)
    assert not holds(outer)
    monkeypatch.undo()
    assert holds(outer)


def test_another_kind_of_value_is_no_function():
    for other in (CALLED, functools.partial(outer), None):
        assert not holding(outer)(other)
    with pytest.raises(Opaque, match="uses a Callable_, which onehop cannot read"):
        read_function(CALLED, Outside())


def test_a_variable_that_nothing_is_in_yet_is_absent():
    def message(x: Tensor) -> Tensor:
        return x * later  # noqa: F821

    with pytest.raises(Opaque, match="uses later"):
        read_function(message, Outside())
    later = 2.0
    holds = holding(message)
    assert holds(message)
    del later
    assert not holds(message)


@pytest.mark.parametrize(("value", "others"), [
    ([1.0, "a"], [[1.0], [1.0, "b"], [1.0, "a", None], (1.0, "a"), None]),
    (2.0, [3.0, 2, None]),
    (inner, [outer, None]),
])  # fmt: skip
def test_a_value_is_known_again(value, others):
    check = check_of(value, Outside())
    assert check(list(value) if isinstance(value, list) else value)
    assert not any(map(check, others))


@pytest.mark.parametrize(
    "value", [{"a": 1.0}, (torch.ones(1),), frozenset({1}), functools.partial(inner), torch.ones(1), torch]
)
def test_what_may_change_is_never_known_again(value):
    outside = Outside()
    assert not check_of(value, outside)(value)
    assert outside


@pytest.mark.parametrize(
    ("value", "changes"), [([torch.ones(1)], True), ([1.0], True), ({}, True), ((torch.ones(1),), False)]
)
def test_lists_and_dictionaries_are_what_may_be_changed(value, changes):
    outside = Outside()
    check_of(value, outside)
    assert outside.changeable == changes


@pytest.mark.parametrize(
    "value",
    [
        [CALLED], (CALLED,), {"a": CALLED}, frozenset({CALLED}), functools.partial(CALLED),
        functools.partial(inner, CALLED), functools.partial(inner, by=CALLED), set(), random, np, object(),
    ],
)  # fmt: skip
def test_values_that_may_do_more_are_refused_wherever_they_are(value):
    with pytest.raises(Opaque, match="of which onehop cannot tell"):
        check_of(value, Outside())


def of_torch(function: Callable[..., Any], **names: Any) -> Any:
    """The function as one of torch's, with these names outside."""
    return types.FunctionType(
        function.__code__, {"__name__": "torch.made", **names}, "made", function.__defaults__
    )


def stores(layer: Any, x: Tensor) -> Tensor:
    layer.last = x
    return x


def without_gradients(layer: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        return layer.lin(x)


def by_a_text(layer: Any, x: Tensor) -> Tensor:
    return getattr(layer, "counting")(x) + len("two words")  # noqa: B009


def writes(layer: Any, x: Tensor) -> Tensor:
    out = lists(layer)
    out[0] = x
    return x


def asks_a_global(x: Tensor) -> Tensor:
    return x if TENSOR.is_leaf else -x


def lists(layer: Any) -> Any:
    return layer


def by_default(x: Tensor, by: Any = CALLED) -> Tensor:
    return x if by is None else -x


def test_of_functions_of_torch_it_counts_that_they_store_something():
    with pytest.raises(Opaque, match="stores something"):
        read_function(of_torch(stores), Outside())
    with pytest.raises(Opaque, match="enters a context"):
        read_function(without_gradients, Outside())
    assert not read_function(of_torch(without_gradients, torch=torch), Outside()).reads


def test_functions_of_torch_may_read_attributes_by_a_text_and_write_to_results():
    found = read_function(of_torch(by_a_text, getattr=getattr, len=len), Outside())
    assert {"lin", "counting", "two words"} & found.names == {"counting"}
    assert not found.reads
    assert not read_function(of_torch(writes, lists=of_torch(lists)), Outside()).results
    assert not read_function(of_torch(writes_to_a_method_of), Outside()).results
    assert not read_function(of_torch(asks_a_global, TENSOR=torch.ones(1)), Outside()).reads
    with pytest.raises(Opaque, match="writes to elements of what lists returns"):
        read_function(writes, Outside())


def test_defaults_of_functions_of_torch_are_theirs():
    assert read_function(of_torch(by_default), Outside())
    with pytest.raises(Opaque, match="uses a Callable_"):
        read_function(by_default, Outside())


def test_what_other_code_has_put_in_a_function_of_torchs_place_is_read(monkeypatch):
    assert trusted.makes_tensors(F.linear)  # what is torch's is found out once
    monkeypatch.setattr(F, "linear", noting)
    with pytest.raises(Opaque, match="uses append"):
        reading_of(lambda self, x_j: self.lin(x_j))
    monkeypatch.undo()
    listed = {torch: [torch.add, noting], Tensor: [Tensor.exp]}
    monkeypatch.setattr(trusted, "get_overridable_functions", lambda: listed)
    functions, _ = trusted._of_torch.__wrapped__()
    assert {torch.add, noting} & functions == {torch.add}


def reading_of(message: Callable[..., Any]) -> Reading:
    return Reading(type("Own", (Base,), {"message": message})(), (), ("message", "training"))


def uses_counting(layer: Any, x: Tensor) -> Tensor:
    return layer.counting(x)


def writes_to_a_method_of(layer: Any, x: Tensor) -> Tensor:
    out = layer.helped(x)
    out[0] = 1.0
    return out


def writes_beside_a_function(self, x_j):
    out = self.helped(helper(x_j))
    out[0] = 1.0
    return out


def writes_to_a_list_it_calls(self, x_j):
    out = RATES(x_j)
    out[0] = 1.0
    return out


MORE: dict[str, tuple[Callable[..., Any], str]] = {
    "a module that a function uses": (lambda self, x_j: uses_counting(self, x_j), "stores something"),
    "what it asks beside a function": (lambda self, x_j: helper(x_j) if x_j.is_leaf else x_j, "uses is_leaf"),
    "writes of a function": (lambda self, x_j: writes_to_a_method_of(self, x_j), "what helped returns"),
    "writes beside a function": (writes_beside_a_function, "what helped returns"),
    "writes to what a list returns": (writes_to_a_list_it_calls, "what RATES returns"),
    "a function of torch by a name of its own": (lambda self, x_j: SEED(1) and x_j, "uses SEED"),
    "a class of Python's": (lambda self, x_j: x_j * next(itertools.count()), "uses (next|itertools.count)"),
    "gradients by the class": (lambda self, x_j: Tensor.backward(x_j.sum()) or x_j, "uses Tensor.backward"),
    "a need by the class": (
        lambda self, x_j: nn.Module.requires_grad_(self.lin) and x_j,
        "uses nn.Module.requires_grad_",
    ),
    "a need by a class": (
        lambda self, x_j: nn.Linear.requires_grad_(self.lin) and x_j,
        "uses nn.Linear.requires_grad_",
    ),
    "adds a module by the class": (
        lambda self, x_j: nn.ModuleList.append(self.lins, self.lin) and x_j,
        "uses append",
    ),
    "a method of its class": (
        lambda self, x_j: CountingInner.forward(self.counting, x_j),
        "stores something",
    ),
}


@pytest.mark.parametrize(("message", "why"), MORE.values(), ids=MORE)
def test_what_may_do_more_is_refused(message, why):
    with pytest.raises(Opaque, match=why):
        reading_of(message)


def test_a_method_of_torch_is_found_by_its_class():
    assert "message" in reading_of(lambda self, x_j: nn.Linear.forward(self.lin, x_j)).names


class Lying(type):
    """Its classes have other attributes than they show."""

    def __getattribute__(cls, name: str) -> Any:
        return noting if name == "floor" else type.__getattribute__(cls, name)


class Lied(metaclass=Lying):
    floor = math.floor


def test_a_class_that_finds_attributes_in_a_way_of_its_own_is_refused():
    with pytest.raises(Opaque, match="uses Lied"):
        reading_of(lambda self, x_j: x_j * Lied.floor(1.5))


@pytest.mark.parametrize("value", [F.relu, softmax, nn.Linear, Tensor])
def test_functions_of_torch_and_pyg_are_trusted(value):
    assert trusted.is_trusted(value)


@pytest.mark.parametrize(
    "value", [np.iterable, random.Random.shuffle, functools.wraps, onehop.patch, helper, print, object()]
)
def test_others_are_not(value):
    assert not trusted.is_trusted(value)


def test_a_wrapper_is_a_function_of_the_module_that_made_it():
    assert not trusted.is_trusted(functools.wraps(F.relu)(lambda x: noting(x)))


@pytest.mark.parametrize(
    "value",
    [
        math.sqrt,
        torch.add,
        F.multi_head_attention_forward,
        softmax,
        scatter,
        segment,
        maybe_num_nodes,
        len,
        Tensor,
    ],
)
def test_functions_that_compute_are_known(value):
    assert trusted.computes(value)


@pytest.mark.parametrize(
    "value",
    [
        random.Random, itertools.count, np.random.default_rng, torch.utils.checkpoint.checkpoint, print,
        helper, torch.manual_seed, torch.is_inference, torch.is_distributed, functools.partial(len), 2.0,
    ],
)  # fmt: skip
def test_functions_that_may_do_more_are_not(value):
    assert not trusted.computes(value)


def test_every_module_from_outside_is_noted_once():
    outside, one, other = Outside(), nn.Linear(1, 1), nn.Linear(1, 1)
    for module in (one, other, one):
        check_of(module, outside)
    assert outside.modules == [one, other]


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


def test_gradients_are_followed_to_their_leaves():
    x, y, z, other = (torch.ones(2, requires_grad=True) for _ in range(4))
    made, unused = x * 2, z * 3
    history = History([made * y, other, torch.ones(2)])
    assert all(map(history.reaches, (x, y, other, made, x * 5)))
    assert not any(map(history.reaches, (z, unused, torch.ones(2), torch.ones(2, requires_grad=True))))


def test_a_gradient_function_in_python_is_refused_wherever_it_is():
    with pytest.raises(Refused, match=r"an autograd function of its own \(TwiceBackward\)"):
        History([torch.ones(2), Twice.apply(torch.ones(2, requires_grad=True)) + 1])
