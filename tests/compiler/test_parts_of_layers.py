"""What a message can reach in its layer is read: methods, properties, modules in it, and what they hold."""

import functools
import math
import types
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onehop.compiler.functions import Opaque
from onehop.compiler.reading import Reading
from tests.compiler.test_reading import CALLED, NUMBERS, Base, CountingInner, Inner, asks, helper, noting

MATH, STEPS = types.SimpleNamespace(module=F, floor=math.floor, act=asks), [asks]
COUNTING, OPTIONS = CountingInner(), types.SimpleNamespace(act=asks, steps=[asks], named=lambda x: x)


class Object:
    """No module: nothing tells what is behind it."""

    def floor(self, x: Any) -> Any:
        return x


class Named(Inner):
    def floor(self, x: Any) -> Any:
        self.calls += 1
        return x


class Own(Base):
    called_by_class, limits = CALLED, (1.0, 2.0)
    table_of_class: ClassVar[dict[str, Any]] = {"asks": asks}

    def __init__(self) -> None:
        super().__init__()
        self.named, self.block = Named(), nn.Sequential(nn.Linear(4, 4), CountingInner())
        self.blocks = nn.ModuleDict({"a": nn.Sequential(nn.Linear(4, 4))})
        self.bound_to_object, self.bound_here = Object().floor, Inner().forward
        self.partial, self.steps, self.noting = functools.partial(asks), (asks,), noting
        self.plain, self.table = torch.ones(4), {"a": 1.0}
        self.weight, self.missing = nn.Parameter(torch.ones(4)), None

    @property
    def noted(self) -> float:
        NUMBERS.append(1.0)
        return 2.0

    @classmethod
    def noted_by_class(cls, x: Tensor) -> Tensor:
        NUMBERS.append(1.0)
        return x

    @classmethod
    def doubled_by_class(cls, x: Tensor) -> Tensor:
        return x * cls.limits[1]

    @staticmethod
    def doubled_alone(x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def noted_alone(x: Tensor) -> Tensor:
        return noting(x)

    def message(self, x_j: Tensor) -> Tensor:
        NUMBERS.append(1.0)
        return x_j


class Derived(Own):
    def message(self, x_j: Tensor) -> Tensor:
        return super().message(x_j)


def reading_of(message: Callable[..., Any]) -> Reading:
    return Reading(type("Kind", (Derived,), {"message": message})(), (), ("message", "training"))


def calls_its_base(self, x_j):
    return super(Derived, self).message(x_j)


MORE: dict[str, tuple[Callable[..., Any], str]] = {
    "a property": (lambda self, x_j: x_j * self.noted, "uses append"),
    "a class method": (lambda self, x_j: self.noted_by_class(x_j), "uses append"),
    "a static method": (lambda self, x_j: self.noted_alone(x_j), "uses append"),
    "a static method by its class": (lambda self, x_j: Own.noted_alone(x_j), "uses append"),
    "a base": (Derived.message, "uses append"),
    "a base that it names": (calls_its_base, "uses append"),
    "a method of a module": (lambda self, x_j: x_j * self.named.floor(1.0), "stores something"),
    "a module in a sequence": (lambda self, x_j: self.block(x_j), "stores something"),
    "a module outside": (lambda self, x_j: COUNTING(x_j), "stores something"),
    "a method of a module outside": (lambda self, x_j: COUNTING.forward(x_j), "stores something"),
    "a function in options": (lambda self, x_j: OPTIONS.act(x_j), "uses is_leaf"),
    "a function in a list of options": (lambda self, x_j: OPTIONS.steps[0](x_j), "uses is_leaf"),
    "a function in a list": (lambda self, x_j: STEPS[0](x_j), "uses is_leaf"),
    "a function in a tuple of the layer": (lambda self, x_j: self.steps[0](x_j), "uses is_leaf"),
    "a function in a table of the class": (
        lambda self, x_j: self.table_of_class["asks"](x_j),
        "uses is_leaf",
    ),
    "a partial function of the layer": (lambda self, x_j: self.partial(x_j), "uses is_leaf"),
    "a function as an attribute": (lambda self, x_j: self.noting(x_j), "uses append"),
    "an object of the class": (lambda self, x_j: self.called_by_class(x_j), "uses a Callable_"),
    "a bound method of an object": (lambda self, x_j: self.bound_to_object(x_j), "uses a Object"),
    "a keyword's default": (lambda self, x_j, *, by=asks: by(x_j), "uses is_leaf"),
    "an object as a default": (lambda self, x_j, by=CALLED: by(x_j), "uses a Callable_"),
    "an object as a keyword's default": (lambda self, x_j, *, by=CALLED: by(x_j), "uses a Callable_"),
    "parameters": (lambda self, x_j: x_j * self._parameters["weight"], "uses _parameters"),
    "buffers": (lambda self, x_j: x_j * self._buffers["mean"], "uses _buffers"),
    "modules": (lambda self, x_j: self._modules["lin"](x_j), "uses _modules"),
    "hooks": (lambda self, x_j: x_j * len(self._forward_hooks), "uses _forward_hooks"),
    "all modules": (lambda self, x_j: x_j * len(list(self.modules())), "uses modules"),
    "a function that calls itself": (lambda self, x_j: again(x_j), "uses again, which calls itself"),
    "functions that call each other": (lambda self, x_j: one(x_j), "uses one, which calls itself"),
}


def again(x):
    return again(x) if x.dim() else x


def one(x):
    return other(x) if x.dim() else x


def other(x):
    return one(x)


@pytest.mark.parametrize(("message", "why"), MORE.values(), ids=MORE)
def test_what_may_do_more_is_refused(message, why):
    with pytest.raises(Opaque, match=why):
        reading_of(message)


ONLY_COMPUTES: dict[str, Callable[..., Any]] = {
    "a class method": lambda self, x_j: self.doubled_by_class(x_j),
    "a static method": lambda self, x_j: self.doubled_alone(x_j),
    "a static method by its class": lambda self, x_j: Own.doubled_alone(x_j),
    "a static method of a base": lambda self, x_j: Derived.doubled_alone(x_j),
    "a bound method": lambda self, x_j: self.bound_here(x_j),
    "modules of a dictionary": lambda self, x_j: sum(block(x_j) for block in self.blocks.values()),
    "nothing": lambda self, x_j: x_j if self.missing is None else -x_j,
    "a parameter": lambda self, x_j: x_j * self.weight + self.mean,
    "sorts a tensor": lambda self, x_j: x_j.sort(-1)[0],
    "training": lambda self, x_j: x_j if self.training else -x_j,
    "a function of options": lambda self, x_j: OPTIONS.named(x_j),
    "a function of torch in options": lambda self, x_j: MATH.module.relu(x_j),
    "a function of math in options": lambda self, x_j: x_j * MATH.floor(1.5),
}


@pytest.mark.parametrize("message", ONLY_COMPUTES.values(), ids=ONLY_COMPUTES)
def test_what_only_computes_is_read(message):
    assert "message" in reading_of(message).names


SPECIAL = [
    "__call__", "__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__getitem__", "__len__",
    "__iter__", "__next__", "__bool__", "__torch_function__", "__eq__", "__hash__", "__mul__", "__rmul__",
    "__contains__", "__index__", "__new__", "__enter__", "__get__", "__format__", "__instancecheck__",
]  # fmt: skip
ORDINARY = ["__init__", "__repr__", "__str__", "__copy__", "__deepcopy__", "__getstate__", "__reduce__"]


def with_an_inner(name: str) -> Reading:
    """The reading of a layer with a module whose class defines a method."""
    kind = type("Odd", (Inner,), {name: lambda self, *args: getattr(Inner, name)(self, *args)})
    layer = type("Kind", (Base,), {"message": lambda self, x_j: self.inner(x_j)})()
    inner = Inner()
    vars(layer)["_modules"]["inner"] = inner
    inner.__class__ = kind
    return Reading(layer, (), ("message",))


@pytest.mark.parametrize("name", SPECIAL)
def test_a_class_that_gives_calls_attributes_or_elements_another_meaning_is_refused(name):
    with pytest.raises(Opaque, match=f"uses a Odd, whose class defines {name}"):
        with_an_inner(name)


@pytest.mark.parametrize("name", ORDINARY)
def test_a_class_may_say_how_it_is_made_shown_and_copied(name):
    assert with_an_inner(name).names


def test_functions_are_read_without_a_layer():
    assert Reading(None, (), (), [helper]).stays
    with pytest.raises(Opaque, match="uses append"):
        Reading(None, (), (), [noting])


def test_a_bound_function_is_read_with_the_module_that_it_is_bound_to():
    reading = Reading(None, (), (), [Inner().forward])
    assert reading.outside.modules
    with pytest.raises(Opaque, match="stores something"):
        Reading(None, (), (), [COUNTING.forward])


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        (lambda self, x_j: x_j * self.weight + self.mean * self.plain, True),
        (lambda self, x_j: self.lin(x_j), True),
        (lambda self, x_j: self.doubled_alone(x_j), True),
        (lambda self, x_j: self.doubled_by_class(x_j), False),
        (lambda self, x_j: self.bound_here(x_j), False),
        (lambda self, x_j: x_j * self.table["a"], False),
    ],
)
def test_what_a_guard_can_know_again_is_told_from_what_is_outside(message, kept):
    assert bool(reading_of(message).outside) != kept


def test_a_class_method_is_not_copied():
    assert not reading_of(lambda self, x_j: self.doubled_by_class(x_j)).stays
    assert reading_of(lambda self, x_j: self.doubled_alone(x_j)).stays


def of_its_base(layer, x):
    return super(Base, layer).message(x)


def test_what_a_function_reads_of_a_base_is_not_copied():
    kind = type("Kind", (Base,), {"message": lambda self, x_j: of_its_base(self, x_j)})
    assert not Reading(kind(), (), ("message",)).stays


def test_its_tensors_are_those_of_its_modules_and_those_outside():
    layer = type(
        "Kind", (Own,), {"message": lambda self, x_j: self.inner(x_j) * OUTSIDE[0] * OUTSIDE_ALONE}
    )()
    found = {id(tensor) for tensor in Reading(layer, (), ("message",)).tensors()}
    assert {id(layer.inner.lin.weight), id(layer.mean), id(OUTSIDE_ALONE)} <= found


OUTSIDE, OUTSIDE_ALONE = (torch.ones(4),), torch.ones(4)


def test_bases_that_have_no_part_in_messages_are_not_read():
    layer = type("Kind", (Own,), {"message": lambda self, x_j: self.noted_by_class(x_j)})()
    with pytest.raises(Opaque, match="uses noted_by_class"):
        Reading(layer, (Own,), ("message",))


def test_a_function_in_a_list_of_parameters_is_read():
    layer = type("Kind", (Base,), {"message": lambda self, x_j: self.steps_of_it[0](x_j)})()
    layer.steps_of_it = nn.ParameterList([asks])
    with pytest.raises(Opaque, match="uses is_leaf"):
        Reading(layer, (), ("message",))


@pytest.mark.parametrize("name", ["mean", "plain"])
def test_an_attribute_of_a_tensor_is_refused(name):
    messages = {
        "mean": lambda self, x_j: x_j * self.mean.exp(),
        "plain": lambda self, x_j: x_j * self.plain.exp(),
    }
    layer = type("Kind", (Own,), {"message": messages[name]})()
    assert Reading(layer, (), ("message",))
    getattr(layer, name).note = "no method"
    assert Reading(layer, (), ("message",))
    getattr(layer, name).exp = lambda: 5.0
    with pytest.raises(Opaque, match="uses exp, an attribute of a tensor"):
        Reading(layer, (), ("message",))


def test_a_property_that_other_code_gives_a_class_of_torch_is_outside(monkeypatch):
    monkeypatch.setattr(nn.Linear, "doubled", property(lambda self: 2 * helper(1.0)), raising=False)
    assert reading_of(lambda self, x_j: x_j * self.lin.doubled).outside.values
