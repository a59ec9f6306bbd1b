"""Analysis of functions by their bytecode: what they read from outside, and that they only compute.

A message may run on a few edges, in blocks, or as a program only if its result depends only on its operands
and on values that it reads. This is decided by reading its code, never by watching a run. Functions of torch
and PyG are trusted to only compute. Other functions may store only their own local variables, and may call
torch's functions on tensors, methods of tensors, modules, and functions that only compute. Anything else
raises :class:`Opaque`. The findings about a function are valid while its code is the same and reads the same
values.
"""

import builtins
import functools
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.nn import Module

from onehop.compiler.bytecode import Names, Scan, scan_of
from onehop.compiler.lines import Line, at_line
from onehop.compiler.trusted import (
    PACKAGES,
    all_plain,
    is_holder,
    is_known,
    is_module,
    is_trusted,
    makes_tensors,
    replaced_by,
    takes_in_c,
)

ABSENT: Any = object()
"""The value of a name that is not defined."""

IN_PLACE = "+="
"""Stands for operators that change a list, among the names of attributes that functions read."""

IN_C = "range"
"""Stands, among these names, for functions that read an integer without the methods of its class."""

Check = Callable[[Any], bool]
"""A function that returns whether a value is unchanged."""


class Opaque(Exception):
    """It cannot be shown that a message only computes. The text is the reason, such as "uses print"."""

    def __init__(self, why: str, line: Line | None = None) -> None:
        super().__init__(why)
        self.line = line

    @property
    def sentence(self) -> str:
        """The sentence that :func:`onehop.explain` shows."""
        return f"its message {self}{at_line(self.line)}"


@dataclass(slots=True)
class Outside:
    """Values that messages read and that no guard can recognise; messages with them are traced in each call.

    Attributes:
        functions: Functions in defaults and containers, which are analysed too.
        modules: Modules that are not in the layer.
        holders: Objects that only hold values by name, such as options.
        values: Other values: tensors, and containers of tensors.
        of_functions: Names of attributes of functions.
        changeable: Whether the values contain lists or dictionaries, which some operators change.
    """

    functions: list[types.FunctionType] = field(default_factory=list)
    modules: list[Module] = field(default_factory=list)
    holders: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    of_functions: set[str] = field(default_factory=set)
    changeable: bool = False

    def __bool__(self) -> bool:
        """Return whether there is any such module, holder or value."""
        return bool(self.modules or self.holders or self.values)


@dataclass(frozen=True, slots=True)
class Known:
    """The findings about a function. They hold neither the function nor the object that it belongs to.

    Attributes:
        code: The function's code.
        defaults: The function's defaults.
        values: Names from outside, with names of attributes of modules, and their values.
        checks: Names from outside, and a check that recognises each value, such as a list.
        functions: Names from outside, and the findings about their functions.
        names: Names of attributes that it may read of other values.
        reads: The names among these that an untrusted function reads, each with its first line.
        results: Names of functions to whose results an untrusted function writes, each with a line.
    """

    code: types.CodeType
    defaults: tuple[Any, ...] | None
    values: tuple[tuple[Names, Any], ...]
    checks: tuple[tuple[Names, Check], ...]
    functions: "tuple[tuple[Names, Known], ...]"
    names: frozenset[str]
    reads: dict[str, Line]
    results: dict[str, Line]

    def holds(self, function: Any) -> bool:
        """Return whether a function has the same code and reads the same values as before."""
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
    """Return the value of a function's outside name, following attributes of modules and classes."""
    name = path[0]
    free = function.__code__.co_freevars
    if name in free:
        assert function.__closure__ is not None
        try:
            value = function.__closure__[free.index(name)].cell_contents
        except ValueError:  # the cell is empty
            return ABSENT
    else:
        value = function.__globals__.get(name, ABSENT)
        if value is ABSENT:
            value = vars(builtins).get(name, ABSENT)
    for attribute in path[1:]:
        if type(value) is types.ModuleType:  # tested here because most values are modules
            value = vars(value).get(attribute, ABSENT)
        else:
            value = _attribute(value, attribute)
    return value


def _leads_on(value: Any) -> bool:
    """Return whether reading attributes of a value runs no code: true for modules and most classes."""
    return is_module(value) or (
        isinstance(value, type) and type(value).__getattribute__ is type.__getattribute__
    )


def _attribute(value: Any, name: str) -> Any:
    if not _leads_on(value):
        return ABSENT
    for base in value.__mro__:
        if name in vars(base):
            attribute = vars(base)[name]
            return attribute.__func__ if isinstance(attribute, staticmethod) else attribute
    return ABSENT


def read_function(
    function: Any, outside: Outside, below: tuple[types.CodeType, ...] = (), line: Line | None = None
) -> Known:
    """Analyses a function and the functions that it reads.

    Args:
        function: The function.
        outside: Collects values that the function reads and no guard can recognise.
        below: The code of the functions being analysed, to detect recursion.
        line: The line that reads the function.

    Raises:
        Opaque: The function does more than compute, or cannot be analysed.
    """
    function = replaced_by(function)
    if type(function) is not types.FunctionType:
        raise Opaque(f"uses a {type(function).__name__}, which onehop cannot read", line)
    if function.__code__ in below:
        raise Opaque(f"uses {function.__name__}, which calls itself", line)
    scan, trusted = scan_of(function.__code__), is_trusted(function)
    # For trusted functions, only stores are effects, for example in a layer that keeps its weights.
    if scan.effect is not None and (not trusted or scan.effect[0].startswith("stores")):
        raise Opaque(*scan.effect)
    if not trusted:
        outside.of_functions |= vars(function).keys()
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            check_of(value, outside, line)
    if function.__kwdefaults__ or not all_plain(function.__defaults__ or ()):
        outside.values.append(function)
    return _Reader(function, scan, trusted, outside, below).read()


class _Reader:
    """Resolves and checks the names that a function reads."""

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
        self._reads = {} if trusted else dict(scan.attributes)
        self._names = set(scan.attributes) | (scan.texts if trusted else set())
        self._values: list[tuple[Names, Any]] = []
        self._checks: list[tuple[Names, Check]] = []
        self._functions: list[tuple[Names, Known]] = []

    def read(self) -> Known:
        """Return the findings about the function."""
        for path, line in self._scan.paths.items():
            self._read(path, line)
        for path, line in () if self._trusted else self._scan.writes.items():
            if not makes_tensors(_read(self._function, path)):
                raise Opaque(f"writes to elements of what {'.'.join(path)} returns", line)
        scan, reads, results = self._scan, dict(self._reads), dict[str, Line]()
        if not self._trusted:
            results = dict(scan.results)
            if scan.in_place is not None:
                reads[IN_PLACE] = scan.in_place
            if scan.counts_in_c or any(takes_in_c(value) for _, value in self._values):
                reads[IN_C] = self._function.__code__.co_filename, self._function.__code__.co_firstlineno
        for _, inner in self._functions:
            self._names |= inner.names
            reads = {**inner.reads, **reads}
            results = {**inner.results, **results}
        function = self._function
        return Known(
            function.__code__,
            function.__defaults__,
            tuple(self._values),
            tuple(self._checks),
            tuple(self._functions),
            frozenset(self._names),
            reads,
            results,
        )

    def _read(self, path: Names, line: Line) -> None:
        # Attributes of values other than modules and classes are handled as names of attributes.
        lengths = range(1, len(path))
        length = next((n for n in lengths if not _leads_on(_read(self._function, path[:n]))), len(path))
        self._names.update(path[length:])
        if not self._trusted:
            self._reads = {**dict.fromkeys(path[length:], line), **self._reads}
        path = path[:length]
        value = _read(self._function, path)
        if path[0] == "super" and value is not super:
            raise Opaque(f"uses {path[0]}, of which onehop cannot tell that it only computes", line)
        if is_known(value, self._trusted):
            self._values.append((path, value))
        elif type(value) is types.FunctionType and not self._is_theirs(path, value):
            if is_trusted(value):  # a method, read from its class
                self._reads.setdefault(path[-1], line)
            self._functions.append((path, read_function(value, self._outside, self._below, line)))
        else:
            self._checks.append((path, check_of(value, self._outside, line, ".".join(path))))

    def _is_theirs(self, path: Names, function: types.FunctionType) -> bool:
        """Return whether a function is torch's or PyG's, and not a method of one particular module class."""
        if not is_trusted(function):
            return False
        if len(path) == 1 or is_module(_read(self._function, path[:-1])):
            return True
        return any(vars(kind).get(path[-1]) is function for kind in (Module, Tensor))


def check_of(value: Any, outside: Outside, line: Line | None = None, name: str = "") -> Check:
    """Return the check that recognises a value that a message may read.

    Args:
        value: The value.
        outside: Collects a value that no check can recognise.
        line: The line that reads the value.
        name: The value's name in sentences; empty means the name of its type.

    Raises:
        Opaque: Reading the value may do more than compute.
    """
    if type(value) is list and all_plain(value):
        outside.changeable = True
        return functools.partial(_is_list, tuple(value))
    if is_known(value, False):
        return functools.partial(_is, value)
    if type(value) is types.FunctionType and not is_trusted(value):
        outside.functions.append(value)
        return read_function(value, outside, line=line).holds
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


def _never(value: Any) -> bool:
    return False


def _is(one: Any, other: Any) -> bool:
    return one is other


def _is_list(values: tuple[Any, ...], value: Any) -> bool:
    return type(value) is list and len(value) == len(values) and all(map(_is, value, values))
