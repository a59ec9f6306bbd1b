"""Analysis of a message: whether all code that it can reach, in the layer and outside, only computes.

The message of a layer names attributes of the layer and of its submodules, and functions. Their code is read,
not run. Code that may do more than compute raises :class:`.functions.Opaque`.
"""

import itertools
import types
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from torch import Tensor
from torch.nn import Module, Parameter, ParameterDict, ParameterList

from onehop.compiler.bytecode import CHANGING, MAKING
from onehop.compiler.functions import ABSENT, IN_C, IN_PLACE, Known, Opaque, Outside, check_of, read_function
from onehop.compiler.lines import Line
from onehop.compiler.modules import modules_reason
from onehop.compiler.trusted import (
    OPERATORS,
    computes,
    is_module,
    is_of_tensors,
    is_replaced,
    is_trusted,
    replaced_by,
)

STORES = ("_parameters", "_buffers", "_modules")
"""The attributes in which a module keeps parameters, buffers and submodules."""

OF_MODULES = frozenset(vars(Module())) - {"training"}
"""Internal attributes of modules; those that matter are checked in every call."""

# Special names that classes may define without changing the meaning of calls, attributes and elements; and
# one name that is not Python's: a method of PyG's ChebConv, which layers of other packages have copied.
_PYTHONS = frozenset({
    "__annotate__", "__annotate_func__", "__copy__", "__deepcopy__", "__getstate__", "__init__",
    "__init_subclass__", "__norm__", "__reduce__", "__repr__", "__setstate__", "__str__",
})  # fmt: skip
# Names of methods that change lists and dictionaries; tensors or a user's modules may have them too.
_CHANGING_LISTS = CHANGING | {"sort", IN_PLACE}

_CALLED = ("__call__", "_call_impl", "__getattr__", "__getattribute__")
calls = attrgetter(*_CALLED)
"""Reads the methods by which modules are called and their attributes are found."""

# Attributes that containers of parameters have besides their parameters.
_OF_LISTS = frozenset(vars(Module())) | {"_keys", "_size"}


def of_class(kind: type, name: str, bases: tuple[type, ...]) -> Any:
    """Return the attribute of a class, skipping the given base classes."""
    for base in kind.__mro__:
        if base not in bases and name in vars(base):
            attribute = vars(base)[name]
            return attribute.__func__ if isinstance(attribute, staticmethod) else attribute
    return ABSENT


class Reading:
    """Everything that the code of a message can reach.

    Args:
        layer: The layer with the message, or the module that is the message; None for a plain function.
        bases: Classes that are not analysed, also as base classes.
        names: The attributes of the layer that are the message, or that are read with it.
        functions: The functions that are the message.

    Attributes:
        layer: The layer, as given.
        bases: The given classes, and the bases of all modules.
        modules: The modules that the message may use: the layer first, then its submodules.
        names: The names of attributes that the message may read.
        functions: The message's functions.
        outside: What the message reads outside the layer, or what no guard can recognise.

    Raises:
        Opaque: The message may do more than compute.
    """

    def __init__(
        self,
        layer: Module | None,
        bases: Sequence[type],
        names: Iterable[str],
        functions: Iterable[Any] = (),
    ) -> None:
        self.layer, self.bases = layer, (*bases, Module, object)
        self.modules: list[Module] = [] if layer is None else [layer]
        self.numbers = {id(module): at for at, module in enumerate(self.modules)}
        self.functions: dict[types.FunctionType, Known] = {}
        self.names = frozenset(names)
        self.outside = Outside()
        self._has_super = False
        # Bound functions and properties are analysed, but no guard can recognise them.
        for each in functions:
            self._add(each, None)
        self._follow_all()
        self._check()

    @property
    def counts_in_c(self) -> bool:
        """Return whether the code may read the number of edges so that :class:`.Count` does not notice it."""
        return any(IN_C in each.reads for each in self.functions.values())

    @property
    def stays(self) -> bool:
        """Return whether the values that the message reads can be copied for a run in the backward pass."""
        layer_modules = set() if self.layer is None else set(map(id, self.layer.modules()))
        return not any(
            each is super or isinstance(each, property | classmethod) for each in self.outside.values
        ) and not any(id(module) in layer_modules for module in self.outside.modules)

    def tensors(self) -> Iterator[Tensor]:
        """Yields the tensors of all modules, and the tensors outside."""
        for module in self.modules:
            yield from module.parameters()
            yield from module.buffers()
            yield from (each for each in vars(module).values() if isinstance(each, Tensor))
        yield from (each for each in self.outside.values if isinstance(each, Tensor))

    def add_others(self, names: frozenset[str]) -> None:
        """Adds the layer's submodules with these names, and all modules in them, even if they are unused."""
        first = len(self.modules)
        self._add_modules(self.modules[0], names)
        # The list grows during this loop.
        for module in itertools.islice(self.modules, first, None):
            self._add_modules(module, None)

    def _follow_all(self) -> None:
        while True:
            before = self._size()
            for module in self.modules:
                self._follow(module)
                # Container modules use all modules that they contain.
                self._add_modules(module, self.names if module is self.layer else None)
            for function in list(self.outside.functions):
                self._add(function, None)
            for module in self.outside.modules:
                self._note(module)
            for holder in self.outside.holders:
                self._follow_holder(holder)
            if before == self._size():
                return

    def _size(self) -> tuple[int, ...]:
        outside = self.outside
        collections = self.modules, self.functions, outside.modules, outside.holders
        return tuple(map(len, collections))

    def _follow(self, module: Module) -> None:
        """Analyses the functions of a module's class, and the module's attributes."""
        kind, state = type(module), vars(module)
        for base in kind.__mro__:
            if base not in self.bases and not is_trusted(base):
                for name, value in vars(base).items():
                    if name.startswith("__") and callable(value) and name not in _PYTHONS:
                        raise Opaque(f"uses a {base.__name__}, whose class defines {name}")
        for name in self.names if module is self.layer else (*self.names, "forward"):
            for attribute in self._of_class(kind, name):
                self._add_of_class(kind, attribute)
            value = state.get(name)
            if value is not None and name not in OF_MODULES and not isinstance(value, Tensor):
                try:
                    self._add(value, self._line(name))
                except Opaque:
                    if self._is_own(name) or isinstance(value, types.FunctionType):
                        raise
                    self.outside.values.append(value)  # only functions of torch and PyG read it
        if isinstance(module, ParameterList | ParameterDict):
            for value in (state[name] for name in state.keys() - _OF_LISTS):  # these are not parameters
                self._add(value, None)
                self.outside.values.append(value)

    def _of_class(self, kind: type, name: str) -> Iterator[Any]:
        """Yields the attribute of a class with a name; for all base classes if ``super()`` may read them."""
        for base in kind.__mro__:
            if base not in self.bases and name in vars(base):
                attribute = vars(base)[name]
                yield attribute.__func__ if isinstance(attribute, staticmethod) else attribute
                if not self._has_super:
                    return

    def _follow_holder(self, holder: Any) -> None:
        for name in self.names:
            if not self._is_own(name):
                continue
            if name in vars(holder):
                self._add(vars(holder)[name], self._line(name))
            elif hasattr(type(holder), name):
                raise Opaque(f"uses {name}, which a {type(holder).__name__} has", self._line(name))

    def _is_own(self, name: str) -> bool:
        """Return whether an untrusted function reads attributes with this name."""
        return any(name in each.reads for each in self.functions.values())

    def _line(self, name: str) -> Line | None:
        return next((each.reads[name] for each in self.functions.values() if name in each.reads), None)

    def _add_of_class(self, kind: type, attribute: Any) -> None:
        if isinstance(attribute, property | classmethod):
            function = attribute.fget if isinstance(attribute, property) else attribute.__func__
            if not is_trusted(kind) or not is_trusted(function):
                self.outside.values.append(attribute)
            self._add(function, None)
        elif isinstance(attribute, types.FunctionType) or not is_trusted(kind):
            self._add(attribute, None)

    def _add(self, value: Any, line: Line | None) -> None:
        """Analyses a function, or another value that the message may read."""
        if isinstance(value, types.MethodType):
            self.outside.values.append(value)
            check_of(value.__self__, self.outside, line)
            value = value.__func__
        theirs = replaced_by(value)
        if theirs is not value:
            self.outside.values.append(value)  # a function of the patch: its result depends on further state
        value = theirs
        if not isinstance(value, types.FunctionType):
            check_of(value, self.outside, line)
            return
        if value not in self.functions:
            self.functions[value] = function = read_function(value, self.outside, line=line)
            self.names |= function.names
            if not self._has_super and any(super in (v for _, v in each.values) for each in _all([function])):
                self._has_super = True
                self.outside.values.append(super)  # no guard compares what super() reads

    def _add_modules(self, parent: Module, names: frozenset[str] | None) -> None:
        for name, child in vars(parent)["_modules"].items():
            if child is not None and (names is None or name in names):
                self._note(child)

    def _note(self, module: Module) -> None:
        if id(module) not in self.numbers:
            self.numbers[id(module)] = len(self.modules)
            self.modules.append(module)

    def _check(self) -> None:
        reads: dict[str, Line] = {}
        for each in self.functions.values():
            reads = {**each.reads, **reads}
        for name, line in reads.items():
            if name not in (IN_C, IN_PLACE) and not self._is_known(name):
                raise Opaque(f"uses {name}, of which onehop cannot tell that it only computes", line)
        for name in (*sorted(self.names), *OPERATORS):
            if is_replaced(getattr(Parameter, name, None)):
                raise Opaque(f"uses {name}, which is not torch's", reads.get(name))
        for base in self.bases:
            for name in _CALLED:
                if is_replaced(getattr(base, name, None)):
                    raise Opaque(f"uses {name} of {base.__name__}, which is not torch's")
        for tensor in self.tensors():
            for name in sorted(reads.keys() & vars(tensor).keys()):
                raise Opaque(f"uses {name}, an attribute of a tensor", reads[name])
        for name in sorted(self.outside.of_functions & reads.keys()):
            raise Opaque(f"uses {name}, an attribute of a function", reads[name])
        for function in self.functions.values():
            for name, line in function.results.items():
                if not self._is_trusted_module(name) and (name not in MAKING or self._has(name)):
                    raise Opaque(f"writes to elements of what {name} returns", line)
        if self.outside.changeable:
            for name in reads:
                if name in _CHANGING_LISTS:
                    raise Opaque(f"uses {name}, which may change a list", reads[name])
        reason = modules_reason(part for module in self.outside.modules for part in module.modules())
        if reason is not None:
            raise Opaque(f"uses a module from outside, and {reason}")

    def _is_trusted_module(self, name: str) -> bool:
        """Return whether all attributes with this name are modules of torch or PyG."""
        children = [vars(module)["_modules"].get(name) for module in self.modules]
        return any(children) and not any(
            (child is not None and not is_trusted(type(child)))
            or name in vars(module)
            or of_class(type(module), name, self.bases) is not ABSENT
            for module, child in zip(self.modules, children, strict=True)
        )

    def _is_known(self, name: str) -> bool:
        """Return whether a name that a user's function reads belongs to a module here or to tensors."""
        if name in OF_MODULES or name.startswith("reset_"):
            return False
        if name in CHANGING:
            # Methods that change a container of modules are excluded.
            methods = [each for module in self.modules for each in self._of_class(type(module), name)]
            return bool(methods) and not any(map(is_trusted, methods))
        if any(computes(vars(each).get(name)) for each in self.outside.values if is_module(each)):
            return True
        return is_of_tensors(name) or self._has(name)

    def _has(self, name: str) -> bool:
        """Return whether a module, or an object that holds values, has an attribute with this name."""
        return any(name in vars(holder) for holder in self.outside.holders) or any(
            name in vars(module)
            or any(name in vars(module)[store] for store in STORES)
            or of_class(type(module), name, self.bases) is not ABSENT
            for module in self.modules
        )


def _all(functions: Iterable[Known]) -> Iterator[Known]:
    """Yields functions and the functions that they read."""
    waiting = list(functions)
    while waiting:
        function = waiting.pop()
        yield function
        waiting += [inner for _, inner in function.functions]
