"""Guards: whether a layer is still as it was when its message was traced.

A guard compares what the code of a message names in the layer, and in the modules that the message may reach:
plain values, functions, and tensors without their numbers. It holds no tensors, no modules and no functions
of a user's, so that it keeps nothing alive, and gives out the tensors that there are now.
"""

import types
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from onehop.compiler.functions import ABSENT, Check, check_of
from onehop.compiler.reading import OF_MODULES, STORES, Reading, calls, of_class
from onehop.compiler.trusted import OPERATORS, is_plain

# What a class may define so that calls of its modules, and their attributes, are others.
_CALLED = frozenset({"__call__", "__getattr__", "__getattribute__"})

Facts = tuple[Any, ...]


class Unfit(Exception):
    """Raised for a tensor that must not be cached now."""


@dataclass(slots=True)
class _Kind:
    """A class of modules."""

    kind: "weakref.ref[type]"
    checks: list[tuple[str, Check]]  # names of its attributes, and what they were
    absent: frozenset[str]  # names that it does not have
    bases: tuple[type, ...]  # classes that have no part in messages

    def holds(self) -> bool:
        """Return whether the class is as it was. A module of it is there now."""
        kind = self.kind()
        assert kind is not None
        for base in kind.__mro__:
            if base not in self.bases and not self.absent.isdisjoint(vars(base)):
                return False
        for name, check in self.checks:  # noqa: SIM110, a loop is faster, and every call does this
            if not check(of_class(kind, name, self.bases)):
                return False
        return True


@dataclass(slots=True)
class _Part:
    """One module of a layer. A place is the name of a store, empty for the attributes, and a name there."""

    kind: "weakref.ref[type]"
    keys: tuple[tuple[str, ...], ...]  # names of its parameters, buffers and modules
    # Places of plain values, and the values.
    values: list[tuple[str, str, Any]] = field(default_factory=list)
    # Names of functions and lists, and what they were.
    checks: list[tuple[str, Check]] = field(default_factory=list)
    absent: frozenset[str] = frozenset()  # names of attributes that it does not have
    # Names of modules in it that count, and their numbers.
    modules: list[tuple[str, int]] = field(default_factory=list)
    # Places of its tensors, and all but their numbers.
    tensors: list[tuple[str, str, Facts]] = field(default_factory=list)

    def collect(self, module: Any, modules: list[Any], tensors: list[Tensor]) -> bool:
        """Collects the modules and tensors in a module, by their numbers; False if it is not as it was."""
        if type(module) is not self.kind():  # it may be None
            return False
        state = vars(module)
        keys = tuple(state["_parameters"]), tuple(state["_buffers"]), tuple(state["_modules"])
        if keys != self.keys or not self.absent.isdisjoint(state):
            return False
        for store, name, value in self.values:
            if (state[store] if store else state).get(name, ABSENT) is not value:
                return False
        for name, check in self.checks:
            if not check(state.get(name)):
                return False
        for name, at in self.modules:
            child = state["_modules"][name]
            if modules[at] is None:
                modules[at] = child
            elif modules[at] is not child:
                return False
        for store, name, facts in self.tensors:
            tensor: Any = (state[store] if store else state).get(name)
            if _facts(tensor) != facts:
                return False
            tensors.append(tensor)
        return True


class Guard:
    """A guard of a layer and its message.

    Args:
        reading: All that the message can reach, which is nothing outside the layer.
        names: Names of attributes of the layer, and of modules in it with such a name, which count although
            the message does not name them.

    Raises:
        Unfit: A tensor has a hook, a history, attributes, or a type or layout of its own.
        Opaque: A value is such that nothing knows it again.
    """

    __slots__ = ("_base", "_kinds", "_methods", "_names", "_of_torch", "_parts", "_same")

    def __init__(self, reading: Reading, names: Iterable[str]) -> None:
        layer, others = reading.modules[0], frozenset(names)
        self._kinds = [_kind(reading, kind) for kind in dict.fromkeys(map(type, reading.modules))]
        # The first base is derived from the others.
        self._base, self._names = reading.bases[0], reading.names
        methods = (name for name in reading.names if hasattr(Parameter, name))
        self._methods = attrgetter(*OPERATORS, *methods)
        self._of_torch = self._now_of_torch()
        reading.add_others(others)
        self._parts = [_part(reading, module, reading.names | others) for module in reading.modules]
        self._same: list[tuple[int, int]] = []
        tensors = self.tensors(layer)
        if tensors is None:
            raise Unfit
        last = {id(tensor): at for at, tensor in enumerate(tensors)}
        # The message may have read any of several names of one tensor.
        self._same = [(last[id(t)], at) for at, t in enumerate(tensors) if last[id(t)] != at]

    def _now_of_torch(self) -> tuple[Any, Any]:
        """The functions that run when torch's modules and tensors are used."""
        return calls(self._base), self._methods(Parameter)

    def tensors(self, layer: Module) -> list[Tensor] | None:
        """The tensors of a layer that count; None if the layer is not as it was."""
        if self._now_of_torch() != self._of_torch:
            return None
        modules: list[Any] = [layer, *[None] * (len(self._parts) - 1)]
        tensors: list[Tensor] = []
        for at, part in enumerate(self._parts):
            if not part.collect(modules[at], modules, tensors):
                return None
        for kind in self._kinds:
            if not kind.holds():
                return None
        for tensor in tensors:
            if not self._names.isdisjoint(vars(tensor)):
                return None
        for one, other in self._same:
            if tensors[one] is not tensors[other]:
                return None
        return tensors


def _facts(tensor: Any) -> Facts | None:
    """All of a tensor that a trace may depend on, but for its numbers; None of one that is not plain."""
    if type(tensor) not in (Tensor, Parameter) or tensor.layout is not torch.strided:
        return None
    if not tensor.is_leaf or tensor._backward_hooks:
        return None
    return tensor.dtype, tensor.requires_grad, tensor.shape, tensor.stride(), tensor.device


def _kind(reading: Reading, kind: type) -> _Kind:
    """The part of a class that counts."""
    checks: list[tuple[str, Check]] = []
    absent = set()
    for name in reading.names | _CALLED | {"forward"}:
        attribute = of_class(kind, name, reading.bases)
        if attribute is ABSENT:
            absent.add(name)
        elif isinstance(attribute, types.FunctionType) and attribute in reading.functions:
            checks.append((name, reading.functions[attribute].holds))
        elif name == "forward":
            pass  # the layer's own, which its message does not call
        elif isinstance(attribute, types.FunctionType | property):
            # Torch's or PyG's; of a user's class, the first is known, and the other is outside.
            checks.append((name, partial(is_, attribute)))
        else:
            checks.append((name, check_of(attribute, reading.outside)))
    return _Kind(weakref.ref(kind), checks, frozenset(absent), reading.bases)


def _part(reading: Reading, module: Module, names: frozenset[str]) -> _Part:
    """The part of a module that counts: attributes of these names, and all parameters and buffers."""
    state = vars(module)
    part = _Part(weakref.ref(type(module)), tuple(tuple(state[store]) for store in STORES))
    part.absent = names - state.keys()
    # Code may compute the names of parameters, as ParameterList does.
    places = [(store, name) for store in STORES[:2] for name in state[store]]
    places += [("", name) for name in names & state.keys() - OF_MODULES]
    for store, name in places:
        value = state[store][name] if store else state[name]
        if is_plain(value):
            part.values.append((store, name, value))
        elif isinstance(value, Tensor):
            facts = _facts(value)
            if facts is None:
                raise Unfit
            part.tensors.append((store, name, facts))
        else:
            part.checks.append((name, check_of(value, reading.outside)))
    for name, child in state["_modules"].items():
        if child is None:
            part.values.append(("_modules", name, None))
        elif id(child) in reading.numbers:
            part.modules.append((name, reading.numbers[id(child)]))
    return part
