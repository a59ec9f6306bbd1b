"""Guards, which check whether a layer is unchanged since its message was traced.

A guard compares what a message's code names in the layer and in modules that the message may reach: plain
values, functions, and the properties of tensors, but not their contents. It holds no tensors, no modules and
no user functions, so it keeps nothing alive. It returns the layer's current tensors.
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

# Methods by which a class can change how its modules are called and how attributes are found.
_CALLED = frozenset({"__call__", "__getattr__", "__getattribute__"})

Facts = tuple[Any, ...]


class Unfit(Exception):
    """Raised for a tensor that must not be cached now."""


@dataclass(slots=True)
class _Kind:
    """A class of modules."""

    kind: "weakref.ref[type]"
    checks: list[tuple[str, Check]]  # names of attributes, and checks of their values
    absent: frozenset[str]  # names that it must not have
    bases: tuple[type, ...]  # classes that are not considered

    def holds(self) -> bool:
        """Return whether the class is unchanged. A module of the class must exist."""
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
    """One module of a layer. A place is (store, name); the store is empty for plain attributes."""

    kind: "weakref.ref[type]"
    keys: tuple[tuple[str, ...], ...]  # names of parameters, buffers and submodules
    # Places of plain values, with the values.
    values: list[tuple[str, str, Any]] = field(default_factory=list)
    # Names of functions and lists, with checks of them.
    checks: list[tuple[str, Check]] = field(default_factory=list)
    absent: frozenset[str] = frozenset()  # names of attributes that the module must not have
    # Names of submodules that the guard covers, with their numbers.
    modules: list[tuple[str, int]] = field(default_factory=list)
    # Places of tensors, with their properties except contents.
    tensors: list[tuple[str, str, Facts]] = field(default_factory=list)

    def collect(self, module: Any, modules: list[Any], tensors: list[Tensor]) -> bool:
        """Collects the submodules and tensors of a module; returns False if the module has changed."""
        if type(module) is not self.kind():  # the module may be None
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
        reading: Everything that the message can reach; nothing of it is outside the layer.
        names: Names of attributes of the layer, and of its submodules, that are compared although the message
            does not name them.

    Raises:
        Unfit: A tensor has a hook, an autograd history, attributes, or a special type or layout.
        Opaque: No check can recognise a value.
    """

    __slots__ = ("_base", "_kinds", "_methods", "_names", "_of_torch", "_parts", "_same")

    def __init__(self, reading: Reading, names: Iterable[str]) -> None:
        layer, others = reading.modules[0], frozenset(names)
        self._kinds = [_kind(reading, kind) for kind in dict.fromkeys(map(type, reading.modules))]
        # The first base class is derived from the other ones.
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
        # A tensor may have several names, and the message may have read any of them.
        self._same = [(last[id(t)], at) for at, t in enumerate(tensors) if last[id(t)] != at]

    def _now_of_torch(self) -> tuple[Any, Any]:
        """Return the functions that run when torch's modules and tensors are used."""
        return calls(self._base), self._methods(Parameter)

    def tensors(self, layer: Module) -> list[Tensor] | None:
        """Return the layer's current tensors; None if the layer has changed."""
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
    """Return all properties of a tensor that a trace may depend on, except contents; None if not plain."""
    if type(tensor) not in (Tensor, Parameter) or tensor.layout is not torch.strided:
        return None
    if not tensor.is_leaf or tensor._backward_hooks:
        return None
    return tensor.dtype, tensor.requires_grad, tensor.shape, tensor.stride(), tensor.device


def _kind(reading: Reading, kind: type) -> _Kind:
    """Return what the guard compares in a class."""
    checks: list[tuple[str, Check]] = []
    absent = set()
    for name in reading.names | _CALLED | {"forward"}:
        attribute = of_class(kind, name, reading.bases)
        if attribute is ABSENT:
            absent.add(name)
        elif isinstance(attribute, types.FunctionType) and attribute in reading.functions:
            checks.append((name, reading.functions[attribute].holds))
        elif name == "forward":
            pass  # the layer's own method, which its message does not call
        elif isinstance(attribute, types.FunctionType | property):
            # These are of torch or PyG. In a user's class, functions are in ``reading.functions``, and
            # properties in ``reading.outside``.
            checks.append((name, partial(is_, attribute)))
        else:
            checks.append((name, check_of(attribute, reading.outside)))
    return _Kind(weakref.ref(kind), checks, frozenset(absent), reading.bases)


def _part(reading: Reading, module: Module, names: frozenset[str]) -> _Part:
    """Return what the guard compares in a module: attributes of these names, all parameters and buffers."""
    state = vars(module)
    part = _Part(weakref.ref(type(module)), tuple(tuple(state[store]) for store in STORES))
    part.absent = names - state.keys()
    # All parameters are included, because code may compute their names, as ParameterList does.
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
