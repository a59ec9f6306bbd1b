"""Functions, as their bytecode shows them: what they read from outside, and that they only compute.

A message may run on a few edges, in blocks, or as a program only if its result is a function of its operands
and of what it reads. Reading shows that, never watching a run. Functions of torch and PyG are trusted to
compute. Others store nothing but their own local variables, and call torch's functions on tensors, methods of
tensors, modules, and functions that only compute. Whatever else they reach raises :class:`Opaque`. What was
found out about a function holds while its code is the same and reads the same values.
"""

import argparse
import builtins
import dataclasses
import functools
import math
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.overrides import get_overridable_functions

from onehop.compiler.bytecode import Names, Scan, scan_of
from onehop.compiler.lines import Line, told

PACKAGES = ("torch", "torch_geometric")
"""Packages whose functions are trusted to compute what their documentation says."""

ABSENT: Any = object()
"""The value of a name that nothing has."""

IN_PLACE = "+="
"""The name of operators that change a list, among the names of attributes that functions read."""

IN_C = "range"
"""Likewise, of what reads a whole number without the methods of its class."""

Check = Callable[[Any], bool]
"""Returns whether a value is as it was."""

_PLAIN = (type(None), bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
_OURS = str(Path(__file__).parents[1])
_COMPUTING_MODULES = frozenset({
    "math", "torch.nn.modules.activation", "torch_geometric.utils._degree", "torch_geometric.utils._scatter",
    "torch_geometric.utils._segment", "torch_geometric.utils._softmax", "torch_geometric.utils.num_nodes",
})  # fmt: skip
_BUILTINS = frozenset({
    abs, all, any, bool, dict, divmod, enumerate, float, functools.partial, int, isinstance, len, list, max,
    min, pow, range, reversed, round, slice, sum, super, tuple, zip, AssertionError, IndexError, KeyError,
    NotImplementedError, RuntimeError, TypeError, ValueError, Tensor,
})  # fmt: skip
# Those of them that read a whole number without the methods of its class, as functions of math may.
_IN_C = frozenset({enumerate, range, slice})
# Functions of torch that take no tensor, which torch does not count among those that classes may override.
_MAKERS = frozenset({
    torch.arange, torch.as_tensor, torch.empty, torch.eye, torch.finfo, torch.full, torch.iinfo,
    torch.is_tensor, torch.linspace, torch.logspace, torch.normal, torch.ones, torch.rand, torch.randint,
    torch.randn, torch.randperm, torch.scalar_tensor, torch.tensor, torch.zeros,
})  # fmt: skip
_MAKING_METHODS = frozenset({"new_empty", "new_full", "new_ones", "new_tensor", "new_zeros"})
# Attributes of tensors and dtypes that tell no more than shape and type.
_OF_TENSORS = frozenset({
    "H", "T", "bits", "device", "dtype", "eps", "imag", "is_cpu", "is_cuda", "itemsize", "layout", "mH", "mT",
    "ndim", "real", "resolution", "shape", "smallest_normal", "tiny",
})  # fmt: skip
# Methods of tensors that ask about memory, history or modes, or that do more than to compute.
_NO_COMPUTING = frozenset({
    "apply_", "backward", "const_data_ptr", "data_ptr", "detach_", "dim_order", "is_contiguous",
    "is_distributed", "is_inference", "is_pinned", "is_set_to", "is_shared", "map2_", "map_", "module_load",
    "numpy", "pin_memory", "record_stream", "register_hook", "register_post_accumulate_grad_hook",
    "requires_grad_", "resize", "resize_", "resize_as", "resize_as_", "retain_grad", "set_", "share_memory_",
    "storage", "storage_offset", "storage_type", "tolist", "untyped_storage",
})  # fmt: skip
# Methods of lists, dictionaries and texts that change nothing.
_OF_CONTAINERS = frozenset({"count", "endswith", "get", "index", "items", "keys", "startswith", "values"})


class Opaque(Exception):
    """Nothing shows that a message only computes. The text says why; it begins like "uses print"."""

    def __init__(self, why: str, line: Line | None = None) -> None:
        super().__init__(why)
        self.line = line

    @property
    def sentence(self) -> str:
        """The sentence that :func:`onehop.explain` shows."""
        return f"its message {self}{told(self.line)}"


@dataclass(slots=True)
class Outside:
    """What messages read and no guard can know again, so that they are read anew for each call.

    Attributes:
        modules: Modules that are not in the layer.
        holders: Objects that hold values by name, such as options, and do nothing.
        values: Other values: tensors, and containers of these.
        changeable: Whether lists or dictionaries are among what is read, which some operators change.
    """

    modules: list[Module] = field(default_factory=list)
    holders: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    changeable: bool = False

    def __bool__(self) -> bool:
        """Return whether there is anything."""
        return bool(self.modules or self.holders or self.values)


@dataclass(frozen=True, slots=True)
class Known:
    """A function, as it was looked at. It holds neither the function nor what that is part of.

    Attributes:
        code: Its code.
        defaults: Its defaults.
        values: Names from outside, each with those of attributes of modules, and the values that were there.
        checks: Likewise, and what knows lists of values again.
        functions: Likewise, and other functions that were there.
        names: Names of attributes that it may read of anything else.
        own: Those of them that a function which is not trusted reads, each with the first line that does.
        results: Those whose results, when called, such a function writes elements to, likewise.
    """

    code: types.CodeType
    defaults: tuple[Any, ...] | None
    values: tuple[tuple[Names, Any], ...]
    checks: tuple[tuple[Names, Check], ...]
    functions: "tuple[tuple[Names, Known], ...]"
    names: frozenset[str]
    own: dict[str, Line]
    results: dict[str, Line]

    def holds(self, function: Any) -> bool:
        """Return whether a function is this one, and reads what it has read."""
        if (
            type(function) is not types.FunctionType
            or function.__code__ is not self.code
            or function.__defaults__ is not self.defaults
            or function.__kwdefaults__
        ):
            return False
        for path, value in self.values:
            if _read(function, path) is not value:
                return False
        for path, check in self.checks:
            if not check(_read(function, path)):
                return False
        for path, inner in self.functions:  # noqa: SIM110, a loop is faster, and every call does this
            if not inner.holds(_read(function, path)):
                return False
        return True


def _read(function: types.FunctionType, path: Names) -> Any:
    """The value that a function finds under a name from outside, and behind it while that is a module."""
    name = path[0]
    free = function.__code__.co_freevars
    if name in free:
        assert function.__closure__ is not None
        try:
            value = function.__closure__[free.index(name)].cell_contents
        except ValueError:  # nothing is in it
            return ABSENT
    else:
        value = function.__globals__.get(name, ABSENT)
        if value is ABSENT:
            value = vars(builtins).get(name, ABSENT)
    for attribute in path[1:]:
        value = _attribute(value, attribute)
    return value


def _leads_on(value: Any) -> bool:
    """Return whether attributes of a value are found without running any code: of modules, and of classes."""
    return is_module(value) or (
        isinstance(value, type) and type(value).__getattribute__ is type.__getattribute__
    )


def _attribute(value: Any, name: str) -> Any:
    if not _leads_on(value):
        return ABSENT
    for each in value.__mro__ if isinstance(value, type) else (value,):
        if name in vars(each):
            found = vars(each)[name]
            return found.__func__ if isinstance(found, staticmethod) else found
    return ABSENT


def known(
    function: Any, outside: Outside, below: tuple[types.CodeType, ...] = (), line: Line | None = None
) -> Known:
    """Looks at a function, and at those that it reads.

    Args:
        function: The function.
        outside: Takes what it reads and no guard can know again.
        below: The code of functions that are being looked at: one of them may call itself.
        line: The line that reads it.

    Raises:
        Opaque: It does more than to compute, or cannot be looked at.
    """
    function = replaced_by(function)
    if type(function) is not types.FunctionType:
        raise Opaque(f"uses a {type(function).__name__}, which onehop cannot read", line)
    if function.__code__ in below:
        raise Opaque(f"uses {function.__name__}, which calls itself", line)
    scan, trusted = scan_of(function.__code__), is_trusted(function)
    # Of trusted functions it counts only that they store something, such as a layer that keeps its weights.
    if scan.effect is not None and (not trusted or scan.effect[0].startswith("stores")):
        raise Opaque(*scan.effect)
    if not trusted:
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            check_of(value, outside, line)
    if function.__kwdefaults__ or not _all_plain(function.__defaults__ or ()):
        outside.values.append(function)
    return _Reader(function, scan, trusted, outside, below).read()


class _Reader:
    """Reads what a function names."""

    def __init__(
        self,
        function: types.FunctionType,
        scan: Scan,
        trusted: bool,
        outside: Outside,
        below: tuple[types.CodeType, ...],
    ) -> None:
        self._function, self._scan, self._trusted = function, scan, trusted
        self._outside, self._below = outside, (*below, function.__code__)
        self._own = {} if trusted else dict(scan.attributes)
        self._names = set(scan.attributes) | (scan.texts if trusted else set())
        self._values: list[tuple[Names, Any]] = []
        self._checks: list[tuple[Names, Check]] = []
        self._functions: list[tuple[Names, Known]] = []

    def read(self) -> Known:
        """The function, as it is now."""
        for path, line in self._scan.paths.items():
            self._read(path, line)
        for path, line in () if self._trusted else self._scan.writes.items():
            if not _makes_tensors(_read(self._function, path)):
                raise Opaque(f"writes to elements of what {'.'.join(path)} returns", line)
        scan, own, results = self._scan, dict(self._own), dict[str, Line]()
        if not self._trusted:
            results = dict(scan.results)
            if scan.in_place is not None:
                own[IN_PLACE] = scan.in_place
            if scan.counts_in_c or any(_takes_in_c(value) for _, value in self._values):
                own[IN_C] = self._function.__code__.co_filename, self._function.__code__.co_firstlineno
        for _, inner in self._functions:
            self._names |= inner.names
            own = {**inner.own, **own}
            results = {**inner.results, **results}
        function = self._function
        return Known(
            function.__code__,
            function.__defaults__,
            tuple(self._values),
            tuple(self._checks),
            tuple(self._functions),
            frozenset(self._names),
            own,
            results,
        )

    def _read(self, path: Names, line: Line) -> None:
        # Attributes of a value that is no module and no class are read like those of everything else.
        lengths = range(1, len(path))
        length = next((n for n in lengths if not _leads_on(_read(self._function, path[:n]))), len(path))
        self._names.update(path[length:])
        if not self._trusted:
            self._own = {**dict.fromkeys(path[length:], line), **self._own}
        path = path[:length]
        value = _read(self._function, path)
        if path == ("__class__",) or _is_known(value, self._trusted):
            self._values.append((path, value))
        elif type(value) is types.FunctionType and not (is_trusted(value) and is_module(self._owner(path))):
            self._functions.append((path, known(value, self._outside, self._below, line)))
        else:
            self._checks.append((path, check_of(value, self._outside, line, ".".join(path))))

    def _owner(self, path: Names) -> Any:
        """The module or class that a name is read from."""
        return _read(self._function, path[:-1]) if len(path) > 1 else torch


def check_of(value: Any, outside: Outside, line: Line | None = None, name: str = "") -> Check:
    """Return the check that knows a value again that a message may read.

    Args:
        value: The value.
        outside: Takes a value that no check knows again.
        line: The line that reads it.
        name: Its name in sentences; empty for that of its type.

    Raises:
        Opaque: Reading it may do more than to compute.
    """
    if type(value) is list and _all_plain(value):
        outside.changeable = True
        return functools.partial(_is_list, tuple(value))
    if _is_known(value, False):
        return functools.partial(_is, value)
    if type(value) is types.FunctionType and not is_trusted(value):
        return known(value, outside, line=line).holds
    if isinstance(value, Module) or is_holder(value):
        values = outside.modules if isinstance(value, Module) else outside.holders
        if not any(value is each for each in values):
            values.append(value)
    elif type(value) is functools.partial:
        for each in (value.func, *value.args, *value.keywords.values()):
            check_of(each, outside, line, name)
        outside.values.append(value)
    elif type(value) in (list, tuple, dict, frozenset):
        outside.changeable |= type(value) in (list, dict)
        for each in value.values() if type(value) is dict else value:
            check_of(each, outside, line, name)
        outside.values.append(value)
    elif isinstance(value, Tensor) or (is_module(value) and value.__name__.partition(".")[0] in PACKAGES):
        outside.values.append(value)
    else:
        what = name or f"a {type(value).__name__}"
        raise Opaque(f"uses {what}, of which onehop cannot tell that it only computes", line)
    return _never


def is_holder(value: Any) -> bool:
    """Return whether an object holds values by name, and does nothing."""
    kind = type(value)
    return kind in (types.SimpleNamespace, argparse.Namespace) or (
        dataclasses.is_dataclass(kind)
        and hasattr(value, "__dict__")
        and kind.__getattribute__ is object.__getattribute__
        and not hasattr(kind, "__getattr__")
    )


def _never(value: Any) -> bool:
    return False


def _is(one: Any, other: Any) -> bool:
    return one is other


def _is_list(values: tuple[Any, ...], value: Any) -> bool:
    return type(value) is list and len(value) == len(values) and all(map(_is, value, values))


def is_plain(value: Any) -> bool:
    """Return whether a value never changes."""
    return type(value) in _PLAIN or (type(value) in (tuple, torch.Size) and _all_plain(value))


def _all_plain(values: Iterable[Any]) -> bool:
    return all(map(is_plain, values))


def is_trusted(value: Any) -> bool:
    """Return whether a class or function is one of torch's or PyG's."""
    return _module_of(value).partition(".")[0] in PACKAGES


def _module_of(value: Any) -> str:
    """The name of the module of a class or function; of a wrapper its own, not that of what it wraps."""
    found = value.__globals__.get("__name__") if isinstance(value, types.FunctionType) else None
    return found or getattr(value, "__module__", None) or ""


def is_of_tensors(name: str) -> bool:
    """Return whether tensors or containers have a method or attribute of a name, which only computes."""
    return name in _of_torch()[1]


@functools.cache
def _of_torch() -> tuple[frozenset[Any], frozenset[str]]:
    """Torch's functions on tensors, and the names of tensors' methods."""
    listed = get_overridable_functions()
    owners = [owner for owner in listed if isinstance(owner, types.ModuleType)]
    methods = {each.__name__ for each in listed[Tensor]}
    functions = {replaced_by(each) for owner in owners for each in listed[owner]}
    methods |= _MAKING_METHODS
    names = _OF_TENSORS.union(_OF_CONTAINERS, (name for name in methods if not name.startswith("_")))
    unfit = {getattr(torch, name, None) for name in _NO_COMPUTING}
    return frozenset((functions | _MAKERS) - unfit), names - _NO_COMPUTING


def _takes_in_c(value: Any) -> bool:
    """Return whether a function reads whole numbers without the methods of their class."""
    return value in _IN_C if isinstance(value, type) else value is math or _module_of(value) == "math"


def _makes_tensors(value: Any) -> bool:
    return isinstance(value, Callable) and replaced_by(value) in _of_torch()[0]  # type: ignore[arg-type]


def _is_known(value: Any, trusted: bool) -> bool:
    """Return whether a value is known by itself: one that never changes, or a function that computes."""
    if is_plain(value) or computes(value):
        return True
    # What trusted functions read is not looked into, except for functions that a user has put there.
    return trusted and (is_trusted(value) or not isinstance(value, types.FunctionType))


def computes(value: Any) -> bool:
    """Return whether a value is a function or class that is known to compute."""
    if not isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
        return False
    value, (functions, _) = replaced_by(value), _of_torch()
    return value in functions or value in _BUILTINS or _module_of(value) in _COMPUTING_MODULES


def replaced_by(value: Any) -> Any:
    """The function that a wrapper of the patch replaces; any other value as it is."""
    if isinstance(value, types.FunctionType) and value.__code__.co_filename.startswith(_OURS):
        return getattr(value, "onehop_theirs", getattr(value, "__wrapped__", value))
    return value


def is_module(value: Any) -> bool:
    """Return whether a value is a module of Python."""
    return type(value) is types.ModuleType
