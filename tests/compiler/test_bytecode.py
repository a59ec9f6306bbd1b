"""Code that may do more than it seems to: one of two values, names that are alike, results of methods."""

import math
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from onehop.compiler.functions import Opaque
from onehop.compiler.reading import Reading
from tests.compiler.test_reading import CALLED, NUMBER, NUMBERS, Base, Inner, helper, lists, noting


class Named(Inner):
    """Has methods that are named like those of torch, of lists and of Python."""

    def floor(self, x: Any) -> Any:
        self.calls += 1
        return x

    def view(self, name: Any) -> Any:
        return self.stack

    def update(self, value: Any) -> Any:
        return value

    def first(self, value: Any) -> Any:
        return self.stack


class Own(Base):
    def __init__(self) -> None:
        super().__init__()
        self.named, self.table, self.tables, self.super = Named(), {"a": 1.0}, ([1.0],), 2.0
        self.named.stack = [1.0]
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        vars(self.named)["second"] = lists

    def listed(self) -> list[float]:
        return self.seen

    def pair(self, one: Any, other: Any) -> Any:
        return one


def reading_of(message: Callable[..., Any], **more: Any) -> Reading:
    return Reading(type("Kind", (Own,), {"message": message, **more})(), (), ("message", "training"))


def elements_of_one_of_two(self, x_j):
    out = [1.0]
    (self.seen if self.training else out)[0] = 3.0
    return x_j


def elements_of_one_of_two_results(self, x_j):
    out = self.seen if self.training else x_j + 1
    out[0] = 3.0
    return x_j


def appends_to_one_of_two(self, x_j):
    out = []
    (self.seen if self.training else out).append(3.0)
    return x_j


def appends_to_a_namesake(self, x_j):
    seen = []
    self.seen.append(3.0)
    return x_j + len(seen)


def elements_of_a_namesake(self, x_j):
    seen = []
    self.seen[0] = 3.0
    return x_j + len(seen)


def stores_in_a_namesake(self, x_j):
    rate = 2.0
    self.rate = 3.0
    return (lambda: x_j * rate)()


def elements_of_an_alias(self, x_j):
    out = x_j
    out[0] = 1.0
    return x_j


def elements_of_a_parameter(self, x_j):
    if self.training:
        x_j = x_j.clone()
    x_j[0] = 1.0
    return x_j


def elements_of_a_keyword(self, *, x_j):
    if self.training:
        x_j = x_j.clone()
    x_j[0] = 1.0
    return x_j


def elements_of_a_slice(self, x_j):
    self.seen[0:1] = [3.0]
    return x_j


def elements_of_what_a_method_returns(self, x_j):
    out = self.listed()
    out[0] = 3.0
    return x_j


def elements_of_what_a_namesake_of_torchs_returns(self, x_j):
    out = self.named.view("a")
    out[0] = 3.0
    return x_j


def elements_of_what_a_local_namesake_returns(self, x_j):
    named = self.named
    out = named.view("a")
    out[0] = 3.0
    return x_j


def elements_of_what_an_attribute_of_a_module_has(self, x_j):
    out = self.lin.weight.detach()
    out[0] = 3.0
    return x_j


def elements_of_what_a_local_function_returns(self, x_j):
    own = self.listed
    out = own()
    out[0] = 3.0
    return x_j


def appends_to_an_element(self, x_j):
    out = self.tables[0]
    out.append(3.0)
    return x_j


def deletes_an_element(self, x_j):
    del self.seen[0]
    return x_j


def deletes_a_global(self, x_j):
    global GONE
    del GONE
    return x_j


def deleting():
    gone = 1.0

    def deletes(self, x_j):
        nonlocal gone
        del gone
        return x_j

    return deletes


def ends_in_any_case(self, x_j):
    try:
        return self.lin(x_j)
    finally:
        x_j * 2


def matches(self, x_j):
    match x_j.shape:
        case [_, _]:
            return x_j
    return -x_j


def makes_a_class(self, x_j):
    class Made:
        rate = NUMBERS.append(1.0)

    return x_j


def makes_a_coroutine(self, x_j):
    async def awaits(other):
        return await other

    return x_j


def stores_and_enters_a_context(self, x_j):
    self.last = x_j
    with torch.no_grad():
        return x_j


def local_function_that_notes(self, x_j):
    def inside(x):
        NUMBERS.append(1.0)
        return x

    return inside(x_j)


# Code of an expression, which finds names as modules do.
EXPRESSION = types.FunctionType(compile("NUMBERS.append(1.0)", __file__, "eval"), globals())


def closed_over_lists(make, first=lists):
    return lambda self, x_j: (make(self), x_j)[1]


def beside_super(other):
    return lambda self, x_j: self.pair(super, other) and x_j


def beside_super_and_a_parameter(other):
    return lambda self, x_j: self.pair(super, other, x_j)


def for_a_method_named_super(other):
    return lambda self, x_j: self.super(other, x_j)


def size_of_its_own_list(self, x_j):
    out = [1.0]
    return x_j * out.__sizeof__()


def beside_the_text_super(other):
    return lambda self, x_j: self.pair("super", other) and x_j


def beside_the_attribute_super(other):
    return lambda self, x_j: self.pair(self.super, other) and x_j


def with_another_super(self, x_j):
    return super(CALLED, self)


ANOTHER_SUPER = types.FunctionType(
    with_another_super.__code__, {"super": lambda one, other: one(other), "CALLED": CALLED}
)

MORE: dict[str, tuple[Callable[..., Any], str]] = {
    "elements of one of two": (elements_of_one_of_two, "stores something"),
    "elements of one of two results": (elements_of_one_of_two_results, "stores something"),
    "appends to one of two": (appends_to_one_of_two, "uses append"),
    "a method of one of two": (
        lambda self, x_j: x_j * (self.named if self.training else math).floor(1.5),
        "uses math",
    ),
    "appends to a namesake": (appends_to_a_namesake, "uses append"),
    "elements of a namesake": (elements_of_a_namesake, "stores something"),
    "stores in a namesake": (stores_in_a_namesake, "stores something"),
    "elements of an alias": (elements_of_an_alias, "stores something"),
    "elements of a parameter": (elements_of_a_parameter, "stores something"),
    "elements of a keyword": (elements_of_a_keyword, "stores something"),
    "elements of a slice": (elements_of_a_slice, "stores something"),
    "elements at a key of one of two": (
        lambda self, x_j: elements_at_a_key_of_one_of_two(self, x_j),
        "stores something",
    ),
    "elements of what a method returns": (
        elements_of_what_a_method_returns,
        "writes to elements of what listed returns",
    ),
    "elements of what a namesake of torch's returns": (
        elements_of_what_a_namesake_of_torchs_returns,
        "stores something",
    ),
    "elements of what a local namesake returns": (
        elements_of_what_a_local_namesake_returns,
        "writes to elements of what view returns",
    ),
    "elements of what an attribute of a module has": (
        elements_of_what_an_attribute_of_a_module_has,
        "stores something",
    ),
    "elements of what a local function returns": (
        elements_of_what_a_local_function_returns,
        "stores something",
    ),
    "appends to an element": (appends_to_an_element, "uses append"),
    "deletes an element": (deletes_an_element, "stores something"),
    "deletes a global": (deletes_a_global, "stores something"),
    "deletes a variable outside": (deleting(), "stores something"),
    "ends in any case": (ends_in_any_case, "handles exceptions"),
    "matches": (matches, "does more than compute \\(MATCH_"),
    "makes a class": (makes_a_class, "does more than compute \\(LOAD_BUILD_CLASS"),
    "makes a coroutine": (makes_a_coroutine, "does more than compute \\(GET_AWAITABLE"),
    "the first of two effects": (stores_and_enters_a_context, "stores something"),
    "a local function that notes": (local_function_that_notes, "uses append"),
    "a comprehension that asks": (lambda self, x_j: all(x.is_leaf for x in (x_j,)) and x_j, "uses is_leaf"),
    "the code of an expression": (lambda self, x_j: EXPRESSION() or x_j, "does more than compute"),
    "a function beside super": (beside_super(noting), "uses append"),
    "an object beside super": (beside_super(CALLED), "uses other"),
    "an object beside the text super": (beside_the_text_super(CALLED), "uses other"),
    "an object beside an attribute": (beside_the_attribute_super(CALLED), "uses other"),
    "an object for a method named super": (for_a_method_named_super(CALLED), "uses other"),
    "an object beside super and a parameter": (beside_super_and_a_parameter(CALLED), "uses other"),
    "an object in a list with super": (lambda self, x_j: [super, CALLED, x_j] and x_j, "uses CALLED"),
    "an object in a tuple beside super": (lambda self, x_j: [super, (CALLED, x_j)] and x_j, "uses CALLED"),
    "an object for a function": (lambda self, x_j: lists(CALLED, x_j), "uses CALLED"),
    "the size of its own list": (size_of_its_own_list, "uses __sizeof__"),
    "another super": (lambda self, x_j: ANOTHER_SUPER(self, x_j), "uses super, of which"),
    "updates a table": (
        lambda self, x_j: self.table.update(a=2.0) or self.named.update(x_j),
        "uses update, which may change a list",
    ),
    "whether it is an attribute": (lambda self, x_j: x_j if x_j is self.mean else -x_j, "asks whether two"),
    "whether it is a parameter": (lambda self, x_j, x_i: x_j if x_j is x_i else -x_j, "asks whether two"),
    "whether it is a global": (lambda self, x_j: x_j if x_j is NUMBER else -x_j, "asks whether two"),
    "whether it is an element": (lambda self, x_j: x_j if x_j is self.rates[0] else -x_j, "asks whether two"),
    "whether it is a result": (lambda self, x_j: x_j if x_j is self.lin(x_j) else -x_j, "asks whether two"),
    "whether it is one of two": (
        lambda self, x_j: x_j if x_j is (x_j if self.training else None) else -x_j,
        "asks whether two",
    ),
}


@pytest.mark.parametrize(("message", "why"), MORE.values(), ids=MORE)
def test_what_may_do_more_is_refused(message, why):
    with pytest.raises(Opaque, match=why) as raised:
        reading_of(message)
    assert raised.value.line is not None


def test_a_method_that_adds_to_a_container_of_modules_is_not_taken_for_a_method_of_ones_own():
    with pytest.raises(Opaque, match="uses append"):
        reading_of(lambda self, x_j: self.lins.append(self.lin) and x_j, append=lambda self, x: x)


@pytest.mark.parametrize(
    "name",
    ["append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "update"],
)
def test_a_change_of_a_list_is_not_taken_for_a_method_of_ones_own(name):
    made: dict[str, Any] = {}
    exec(f"def message(self, x_j):\n    self.seen.{name}(1.0)\n    return self.{name}(x_j)", made)
    with pytest.raises(Opaque, match=f"uses {name}, which may change a list"):
        reading_of(made["message"], **{name: lambda self, x: x})


def elements_at_a_key_of_one_of_two(self, x_j):
    out = [1.0]
    self.seen[out.index(1.0, 0 if self.training else 1)] = 3.0
    return x_j


def variable_of_a_local_function(self, x_j):
    rate = self.rate * 2
    return (lambda: x_j * rate)()


def method_of_a_variable_of_a_local_function(self, x_j):
    x = self.lin(x_j)
    out = x.clone()
    out[0] = 1.0
    return out + (lambda: x * 2)()


def elements_of_its_own_slice(self, x_j):
    out = [0.0, 1.0]
    out[0:1] = [3.0]
    return x_j * out[0]


def dictionary_with_constant_keys(self, x_j):
    out = {"a": x_j, "b": -x_j, "c": x_j}
    out["a"] = x_j * 2
    out.setdefault("d", x_j)
    out.popitem()
    out.update(b=x_j)
    rows = list(out.values())
    out.clear()
    return rows[0]


def list_with_constants(self, x_j):
    out = [1.0, 2.0, 3.0]
    out.reverse()
    out.insert(0, 1.0)
    out.extend([out.pop()])
    out.remove(1.0)
    out[0] = sum(out)
    return x_j * out[0]


def its_base(self, x_j):
    return super(Own, self).message(x_j)


def raises(self, x_j):
    if x_j.dim() not in (1, 2):
        raise ValueError(f"{x_j.dim()!r} dimensions")
    first, *others = x_j, 1
    del others
    return (
        first
        * sum([*self.rates])
        * {**self.table}["a"]
        * sum({n: len(n) for n in ("a", "b")}.values())
        * len({n * 2 for n in self.rates})
    )


ONLY_COMPUTES: dict[str, Callable[..., Any]] = {
    "a variable of a local function": variable_of_a_local_function,
    "a method of a variable of a local function": method_of_a_variable_of_a_local_function,
    "elements of its own slice": elements_of_its_own_slice,
    "a dictionary with constant keys": dictionary_with_constant_keys,
    "a list with constants": list_with_constants,
    "its base": its_base,
    "raises": raises,
    "nothing but a global": lambda self, x_j: NUMBER,
    "a constant": lambda self, x_j: x_j if self.training is True else -x_j,
    "none": lambda self, x_j: x_j if self.lin is not None else -x_j,
    "a generator of its own": lambda self, x_j: x_j * sum(rate * 2 for rate in self.rates),
    "a method with the name of a list's": lambda self, x_j: self.named.update(x_j),
}


@pytest.mark.parametrize("message", ONLY_COMPUTES.values(), ids=ONLY_COMPUTES)
def test_what_only_computes_is_read(message):
    assert "message" in reading_of(message).names


def test_long_code_is_read():
    made = eval(f"lambda self, x_j: x_j + {' + '.join(f'{number}.5 * x_j' for number in range(300))}")
    assert "message" in reading_of(made).names


@pytest.mark.parametrize(
    ("message", "counts"),
    [
        (lambda self, x_j: x_j * len("%d" % x_j.size(0)), True),  # noqa: UP031
        (lambda self, x_j: x_j * self.rates[self.rate], True),
        (lambda self, x_j: x_j[: x_j.size(0)], True),
        (lambda self, x_j: x_j * self.rates[NUMBER], True),
        (lambda self, x_j: x_j * self.rates[len(self.rates) - 1], True),
        (lambda self, x_j: x_j * len(list(enumerate(self.rates))), True),
        (lambda self, x_j: x_j[slice(None)], True),
        (lambda self, x_j: helper(x_j, len("percent")), False),
        (lambda self, x_j: x_j[..., -1:] * self.rates[-1], False),
    ],
)
def test_what_reads_numbers_in_c_is_told_from_what_asks_them(message, counts):
    assert reading_of(message).counts_in_c == counts
