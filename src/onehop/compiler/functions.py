"""Functions, as their bytecode shows them: what they read from outside, and whether they only compute.

What was found out about a function holds while its code is the same and reads the same values. That is so for
functions of torch and PyG, which are trusted, and for others that only compute: they store nothing outside,
and call torch's functions on tensors, methods of tensors, modules, and functions that only compute.
"""

import builtins
import dis
import functools
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import get_overridable_functions

PACKAGES = ("torch", "torch_geometric")
"""Packages whose functions are trusted to compute what their documentation says."""

ABSENT: Any = object()
"""The value of a name that nothing has."""

Names = tuple[str, ...]
"""A name, and those of attributes behind it."""

Check = Callable[[Any], bool]
"""Returns whether a value is as it was."""

_PLAIN = (type(None), bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
_OURS = str(Path(__file__).parents[1])
_COMPUTING_MODULES = frozenset({"math", "torch_geometric.utils._softmax", "torch_geometric.utils._scatter"})
_BUILTINS = frozenset({
    abs, all, any, bool, enumerate, float, int, isinstance, len, list, max, min, range, reversed, slice, sum,
    tuple, zip, AssertionError, ValueError, NotImplementedError, Tensor,
})  # fmt: skip
# Attributes of tensors that tell no more than shape and type.
_OF_TENSORS = frozenset({"shape", "dtype", "device", "ndim", "T", "mT", "is_cpu", "is_cuda", "requires_grad"})
# How the names of instructions begin that reach nothing outside, and of those among these that do.
_COMPUTING = (
    "BINARY_", "BUILD_", "CALL", "COMPARE_OP", "CONTAINS_OP", "CONVERT_VALUE", "COPY", "DICT_", "END_FOR",
    "EXTENDED_ARG", "FOR_ITER", "FORMAT_", "GET_ITER", "GET_LEN", "IS_OP", "JUMP_", "KW_NAMES", "LIST_",
    "LOAD_", "MAKE_", "MAP_ADD", "NOP", "NOT_TAKEN", "POP_", "PRECALL", "PUSH_NULL", "RAISE_VARARGS",
    "RERAISE", "RESUME", "RETURN_CONST", "RETURN_VALUE", "SET_", "STORE_FAST", "SWAP", "TO_BOOL", "UNARY_",
    "UNPACK_",
)  # fmt: skip
_REACHING = (
    "LOAD_BUILD_CLASS",
    "LOAD_CLASSDEREF",
    "LOAD_FROM_DICT",
    "LOAD_LOCALS",
    "LOAD_NAME",
    "LOAD_SUPER",
)
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")


class Opaque(Exception):
    """Nothing shows when a function, or a value, leads to something else."""


@dataclass(frozen=True, slots=True)
class _Scan:
    """The names in the code of a function."""

    # Names from outside, each with the names of attributes that are taken from it one after another.
    paths: frozenset[Names]
    attributes: frozenset[str]  # names of attributes of everything else
    texts: frozenset[str]  # its texts that could be names
    computes: bool  # whether none of its instructions reaches anything outside


@functools.lru_cache(maxsize=512)
def _scan(code: types.CodeType) -> _Scan:
    paths: set[Names] = set()
    attributes: set[str] = set()
    texts: set[str] = set()
    computes, outer = True, code.co_freevars
    for part in _parts(code):
        texts.update(each for each in part.co_consts if isinstance(each, str) and each.isidentifier())
        path: Names = ()
        for instruction in dis.get_instructions(part):
            name, argument = instruction.opname, instruction.argval
            if path and name in _ATTRIBUTE:
                path = (*path, argument)
                continue
            if path:
                paths.add(path)
                path = ()
            if name == "LOAD_GLOBAL" or (name in ("LOAD_DEREF", "LOAD_CLOSURE") and argument in outer):
                path = (argument,)
            elif name in _ATTRIBUTE:
                attributes.add(argument)
            elif name == "STORE_DEREF":
                # A variable of its own, for a function inside it.
                computes &= argument in part.co_cellvars
            else:
                computes &= name.startswith(_COMPUTING) and not name.startswith(_REACHING)
    return _Scan(frozenset(paths), frozenset(attributes), frozenset(texts), computes)


def _parts(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function, and of those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _parts(constant)


@dataclass(frozen=True, slots=True)
class Known:
    """A function, as it was looked at. It holds neither the function nor what that is part of.

    Attributes:
        code: Its code.
        defaults: Its defaults.
        values: Names from outside, each with those of attributes of modules, and the values that were there.
        functions: Likewise, and other functions that were there.
        names: Names of attributes that it may read of anything else.
        own: Those of them that a function which is not trusted reads.
    """

    code: types.CodeType
    defaults: tuple[Any, ...] | None
    values: tuple[tuple[Names, Any], ...]
    functions: "tuple[tuple[Names, Known], ...]"
    names: frozenset[str]
    own: frozenset[str]

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
        value = vars(value).get(attribute, ABSENT) if _is_module(value) else ABSENT
    return value


def known(function: Any, below: tuple[types.CodeType, ...] = ()) -> Known:
    """Looks at a function, and at those that it reads.

    Args:
        function: The function.
        below: The code of functions that are being looked at: one of them may call itself.

    Raises:
        Opaque: It does more than to compute, or cannot be looked at.
    """
    if type(function) is not types.FunctionType or function.__kwdefaults__ or function.__code__ in below:
        raise Opaque
    scan, trusted = _scan(function.__code__), is_trusted(function)
    if not trusted and not (scan.computes and _all_plain(function.__defaults__ or ())):
        raise Opaque
    names = set(scan.attributes | scan.texts if trusted else scan.attributes)
    values: list[tuple[Names, Any]] = []
    functions: list[tuple[Names, Known]] = []
    for path in scan.paths:
        # Attributes of a value that is no module are read like those of everything else.
        lengths = range(1, len(path))
        length = next((n for n in lengths if not _is_module(_read(function, path[:n]))), len(path))
        names.update(path[length:])
        path = path[:length]
        value = _read(function, path)
        if _is_known(value, trusted):
            values.append((path, value))
        elif is_trusted(value):
            raise Opaque
        else:
            functions.append((path, known(value, (*below, function.__code__))))
    own = set() if trusted else set(names)
    for _, inner in functions:
        names |= inner.names
        own |= inner.own
    return Known(
        function.__code__,
        function.__defaults__,
        tuple(values),
        tuple(functions),
        frozenset(names),
        frozenset(own),
    )


def check_of(value: Any) -> Check:
    """Return the check that knows a plain value, a list of these, or a function again.

    Raises:
        Opaque: It is none of these.
    """
    if type(value) is list and _all_plain(value):
        return functools.partial(_is_list, tuple(value))
    if _is_known(value, False):
        return functools.partial(_is, value)
    if is_trusted(value):
        raise Opaque
    return known(value).holds


def _is(one: Any, other: Any) -> bool:
    return one is other


def _is_list(values: tuple[Any, ...], value: Any) -> bool:
    return type(value) is list and len(value) == len(values) and all(map(_is, value, values))


def is_plain(value: Any) -> bool:
    """Return whether a value never changes."""
    return type(value) in _PLAIN or (type(value) is tuple and _all_plain(value))


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
    """Return whether tensors have a method or attribute of a name, which only computes."""
    return name in _of_torch()[1]


@functools.cache
def _of_torch() -> tuple[frozenset[Any], frozenset[str]]:
    """Torch's functions on tensors, and the names of tensors' methods."""
    listed = get_overridable_functions()
    owners = [owner for owner in listed if isinstance(owner, types.ModuleType)]
    methods = {each.__name__ for each in listed[Tensor]}
    return (
        frozenset(replaced_by(each) for owner in owners for each in listed[owner]),
        _OF_TENSORS.union(name for name in methods if not name.startswith("_")),
    )


def _is_known(value: Any, trusted: bool) -> bool:
    """Return whether a value is known by itself: one that never changes, or a function that computes."""
    if is_plain(value) or _is_computing(value):
        return True
    # What trusted functions read is not looked into, except for functions that a user has put there.
    return trusted and (is_trusted(value) or not isinstance(value, types.FunctionType))


def _is_computing(value: Any) -> bool:
    if not isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
        return False
    value, (functions, _) = replaced_by(value), _of_torch()
    return value in functions or value in _BUILTINS or _module_of(value) in _COMPUTING_MODULES


def replaced_by(value: Any) -> Any:
    """The function that a wrapper of the patch replaces; any other value as it is."""
    if isinstance(value, types.FunctionType) and value.__code__.co_filename.startswith(_OURS):
        return getattr(value, "onehop_theirs", getattr(value, "__wrapped__", value))
    return value


def _is_module(value: Any) -> bool:
    return type(value) is types.ModuleType
