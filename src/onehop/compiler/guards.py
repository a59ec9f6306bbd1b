"""Guards: whether a layer is still as it was when its message was traced.

A guard compares what the code of a message names in the layer, and in the modules that the message may reach:
plain values, functions, and tensors without their numbers. It holds no tensors, no modules and no functions
of a user's, so that it keeps nothing alive, and gives out the tensors that there are now.
"""

import itertools
import types
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from onehop.compiler.functions import (
    ABSENT,
    Check,
    Known,
    Opaque,
    check_of,
    is_of_tensors,
    is_plain,
    is_trusted,
    known,
    replaced_by,
)

_STORES = ("_parameters", "_buffers", "_modules")
# What modules keep for themselves, or what is looked at at every call.
_OF_MODULES = frozenset(vars(Module())) - {"training"}
# What classes may have of Python's own without another meaning of calls, attributes and elements.
_PYTHONS = frozenset({
    "__annotate__", "__annotate_func__", "__copy__", "__deepcopy__", "__getstate__", "__init__",
    "__init_subclass__", "__reduce__", "__repr__", "__setstate__", "__str__",
})  # fmt: skip
_CALLED = frozenset({"_compiled_call_impl", "__call__", "__getattr__", "__getattribute__"})

# How modules are called, and their attributes found.
_calls = attrgetter("__call__", "_call_impl", "__getattr__")

Facts = tuple[Any, ...]


class Unfit(Exception):
    """A tensor is such that nothing should be kept of it at present."""


@dataclass(slots=True)
class _Kind:
    """A class of modules."""

    kind: "weakref.ref[type]"
    checks: list[tuple[str, Check]]  # names of its attributes, and what they were
    absent: frozenset[str]  # names that it does not have
    bases: tuple[type, ...]  # classes that have no part in messages

    def holds(self) -> bool:
        """Return whether the class is as it was."""
        kind = self.kind()
        if kind is None:
            return False
        for base in kind.__mro__:
            if base not in self.bases and not self.absent.isdisjoint(vars(base)):
                return False
        for name, check in self.checks:  # noqa: SIM110, a loop is faster, and every call does this
            if not check(_of_class(kind, name, self.bases)):
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
        state = vars(module)
        keys = tuple(state["_parameters"]), tuple(state["_buffers"]), tuple(state["_modules"])
        if type(module) is not self.kind() or keys != self.keys or not self.absent.isdisjoint(state):
            return False
        for store, name, value in self.values:
            if (state[store] if store else state).get(name, ABSENT) is not value:
                return False
        for name, check in self.checks:
            if not check(state.get(name, ABSENT)):
                return False
        for name, at in self.modules:
            child = state["_modules"][name]
            if modules[at] is None:
                modules[at] = child
            elif modules[at] is not child:
                return False
        for store, name, facts in self.tensors:
            tensor = (state[store] if store else state).get(name)
            if _facts(tensor) != facts:
                return False
            tensors.append(tensor)
        return True


class Guard:
    """A guard of a layer and its message.

    Args:
        layer: The layer.
        bases: Classes that have no part in messages, whatever is derived from them.
        names: Names of attributes of the layer, and of modules in it with such a name, which count although
            the message does not name them.

    Raises:
        Opaque: Not all that may count is known.
        Unfit: A tensor has a hook, a history, or a type or layout of its own.
    """

    __slots__ = ("_called", "_kinds", "_methods", "_parts", "_same", "_values")

    def __init__(self, layer: Module, bases: Sequence[type], names: Iterable[str]) -> None:
        reach, others = _Reach(layer, (*bases, Module, object)), frozenset(names)
        used = len(reach.modules)
        kinds = {type(module): module is not layer for module in reversed(reach.modules)}
        self._kinds = [reach.kind(kind, called) for kind, called in kinds.items()]
        self._called = _calls(Module)
        self._methods = attrgetter("shape", "dtype", *(name for name in reach.names if hasattr(Tensor, name)))
        self._values = self._methods(Tensor)
        for each in (*self._called, *self._values):
            each = replaced_by(each)
            if isinstance(each, types.FunctionType) and not is_trusted(each):
                raise Opaque
        reach.add_others(others)
        self._parts = [
            reach.part(module, reach.names | others if at < used else others)
            for at, module in enumerate(reach.modules)
        ]
        self._same: list[tuple[int, int]] = []
        tensors = self.tensors(layer)
        if tensors is None:
            raise Unfit
        first = {id(tensor): at for at, tensor in reversed(list(enumerate(tensors)))}
        # The message may have read any of several names of one tensor.
        self._same = [(first[id(t)], at) for at, t in enumerate(tensors) if first[id(t)] != at]

    def tensors(self, layer: Module) -> list[Tensor] | None:
        """The tensors of a layer that count; None if the layer is not as it was."""
        if _calls(Module) != self._called or self._methods(Tensor) != self._values:
            return None
        for kind in self._kinds:
            if not kind.holds():
                return None
        modules: list[Any] = [layer, *[None] * (len(self._parts) - 1)]
        found: list[Tensor] = []
        for at, part in enumerate(self._parts):
            if not part.collect(modules[at], modules, found):
                return None
        for one, other in self._same:
            if found[one] is not found[other]:
                return None
        return found


def _facts(tensor: Any) -> Facts | None:
    """All of a tensor that a trace may depend on, but for its numbers; None of one that is not plain."""
    if type(tensor) not in (Tensor, Parameter) or tensor.layout is not torch.strided:
        return None
    if tensor.requires_grad and (not tensor.is_leaf or tensor._backward_hooks):
        return None
    return tensor.dtype, tensor.requires_grad, tensor.shape, tensor.stride(), tensor.device


def _of_class(kind: type, name: str, bases: tuple[type, ...]) -> Any:
    """The attribute of a class, other than from bases that have no part in messages."""
    for base in kind.__mro__:
        if base not in bases and name in vars(base):
            found = vars(base)[name]
            return found.__func__ if isinstance(found, staticmethod) else found
    return ABSENT


class _Reach:
    """The modules that a message may use, and the names of attributes that it may read.

    Attributes:
        modules: The modules, the layer first.
        names: The names.
        known: The functions.
    """

    def __init__(self, layer: Module, bases: tuple[type, ...]) -> None:
        self.modules: list[Module] = [layer]
        self._numbers = {id(layer): 0}
        self.known: dict[types.FunctionType, Known] = {}
        self.names = frozenset({"message", "aggregate", "training"})
        own: set[str] = set()
        self._bases = bases
        while True:
            before = len(self.names), len(self.modules), len(self.known)
            for module in self.modules:
                self._follow(module, module is not layer)
                # Containers use all that they have.
                self._add_modules(module, self.names if module is layer else None)
            for each in self.known.values():
                own |= each.own
            if before == (len(self.names), len(self.modules), len(self.known)):
                break
        if not all(map(self._is_known, own)):
            raise Opaque

    def add_others(self, names: frozenset[str]) -> None:
        """Adds the modules that the layer has under names, with all in them, though the message uses none."""
        first = len(self.modules)
        self._add_modules(self.modules[0], names)
        # The list grows.
        for module in itertools.islice(self.modules, first, None):
            self._add_modules(module, None)

    def kind(self, kind: type, called: bool) -> _Kind:
        """The part of a class that counts; ``called`` says that its ``forward`` does."""
        checks: list[tuple[str, Check]] = []
        absent = set()
        for name in self.names | _CALLED | ({"forward"} if called else set()):
            found = _of_class(kind, name, self._bases)
            if found is ABSENT:
                absent.add(name)
            elif isinstance(found, types.FunctionType) and found in self.known:
                checks.append((name, self.known[found].holds))
            elif is_plain(found):
                checks.append((name, check_of(found)))
            elif not is_trusted(kind):
                raise Opaque
        return _Kind(weakref.ref(kind), checks, frozenset(absent), self._bases)

    def part(self, module: Module, names: frozenset[str]) -> _Part:
        """The part of a module that counts: attributes of these names."""
        state = vars(module)
        part = _Part(weakref.ref(type(module)), tuple(tuple(state[store]) for store in _STORES))
        part.absent = (names | _CALLED) - state.keys()
        places = [(store, name) for store in _STORES[:2] for name in state[store] if name in names]
        places += [("", name) for name in names & state.keys() - _OF_MODULES]
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
                part.checks.append((name, check_of(value)))
        for name, child in state["_modules"].items():
            if child is None:
                part.values.append(("_modules", name, None))
            elif id(child) in self._numbers:
                part.modules.append((name, self._numbers[id(child)]))
        return part

    def _add_modules(self, parent: Module, names: frozenset[str] | None) -> None:
        for name, child in vars(parent)["_modules"].items():
            if child is not None and (names is None or name in names) and id(child) not in self._numbers:
                self._numbers[id(child)] = len(self.modules)
                self.modules.append(child)

    def _follow(self, module: Module, is_called: bool) -> None:
        """Looks at the functions of a module's class, and at those that it has as attributes."""
        kind = type(module)
        for base in kind.__mro__:
            if base not in self._bases and not is_trusted(base):
                for name, value in vars(base).items():
                    if name.startswith("__") and callable(value) and name not in _PYTHONS:
                        raise Opaque
        for name in (*self.names, "forward") if is_called else self.names:
            found = _of_class(kind, name, self._bases)
            if isinstance(found, types.FunctionType):
                self._add(found)
            elif (
                isinstance(found, property)
                and isinstance(found.fget, types.FunctionType)
                and is_trusted(kind)
            ):
                self._add(found.fget)
            value = vars(module).get(name)
            if isinstance(value, types.FunctionType):
                self._add(value)

    def _add(self, function: types.FunctionType) -> None:
        if function not in self.known:
            self.known[function] = found = known(function)
            self.names |= found.names

    def _is_known(self, name: str) -> bool:
        """Return whether a name that a user's function reads is one of a module here, or of tensors."""
        if name in _OF_MODULES:
            return False
        return is_of_tensors(name) or any(
            name in vars(module)
            or any(name in vars(module)[store] for store in _STORES)
            or _of_class(type(module), name, self._bases) is not ABSENT
            for module in self.modules
        )
