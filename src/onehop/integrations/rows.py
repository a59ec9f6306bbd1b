"""Rows of the patch table: attributes of modules and classes that are replaced while a patch is in place."""

import contextlib
import functools
import inspect
import sys
import types
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import _jit_internal
from torch.jit import _state

from onehop import native
from onehop.ops.contexts import as_program
from onehop.scopes import Scoped

Function = Callable[..., Any]
Counts = Counter[tuple[str, bool]]
# The packages whose functions are replaced.
_HOSTS = ("torch", "torch_geometric", "dgl", "torch_scatter", "torch_sparse", "e3nn", "mace", "nequip")


class Part:
    """A part of the patch. While it is off, its functions call the functions that they replace.

    Attributes:
        on: Whether its rows are installed.
        functions: The replacement functions of this part that are still referenced somewhere.
    """

    __slots__ = ("functions", "on")

    def __init__(self, on: bool = False) -> None:
        self.on = on
        self.functions: weakref.WeakSet[Function] = weakref.WeakSet()


building: Scoped[Part] = Scoped("onehop_building", Part(on=True))
"""The part whose rows are being made."""

counting: Scoped[Counts | None] = Scoped("onehop_counter", None)


@contextlib.contextmanager
def counted(everywhere: bool = False) -> Iterator[Counts]:
    """Counts the calls of replaced functions inside the block: (name, whether our code ran) -> number.

    Args:
        everywhere: Whether to also count the calls of other threads that have no counter of their own.
    """
    counter: Counts = Counter()
    with counting.set(counter, everywhere):
        yield counter


def count(name: str, ours: bool) -> None:
    """Counts a call of a function, by its name and by whether our code ran."""
    counter = counting.get()
    if counter is not None:
        counter[name, ours] += 1


@dataclass(frozen=True, slots=True)
class Row:
    """One attribute of a module or class.

    Attributes:
        owner: The module or class.
        attribute: The name of the attribute.
        ours: The value while the patch is in place.
        theirs: The value before the patch, which is restored afterwards.
        inherited: Whether the owner inherits ``theirs``, for example from a base class. Then the attribute is
            deleted afterwards.
    """

    owner: Any
    attribute: str
    ours: Any
    theirs: Any
    inherited: bool = False

    @property
    def applies(self) -> bool:
        """Return whether the row changes the attribute, and does not replace another library's function."""
        theirs = getattr(self.theirs, "__func__", self.theirs)
        return self.ours is not self.theirs and (not isinstance(theirs, types.FunctionType) or is_own(theirs))

    @property
    def name(self) -> str:
        """The dotted name of the attribute."""
        if isinstance(self.owner, types.ModuleType):
            return f"{self.owner.__name__}.{self.attribute}"
        return f"{self.owner.__module__}.{self.owner.__qualname__}.{self.attribute}"

    def install(self) -> None:
        """Sets the value of the patch."""
        setattr(self.owner, self.attribute, self.ours)

    def restore(self) -> None:
        """Sets the value from before, unless other code has replaced the attribute since."""
        if vars(self.owner).get(self.attribute) is not self.ours:
            return
        if self.inherited:
            delattr(self.owner, self.attribute)
        else:
            setattr(self.owner, self.attribute, self.theirs)


class Leave(Exception):
    """Ends one of onehop's functions before it has changed anything, so that the framework's own code runs.

    The argument is the sentence that says why. The class has no constructor of its own, because torch cannot
    trace such exceptions.
    """

    @property
    def sentence(self) -> str:
        """The sentence that :func:`onehop.explain` shows."""
        sentence: str = self.args[0]
        return sentence


def replacing(
    owner: Any,
    attribute: str,
    body: Function,
    traced: Function | None = None,
    *,
    where: Callable[[], bool] | None = None,
    counted_as: str = "",
) -> Row:
    """Return a row that replaces a function or method by one that runs ``body`` first.

    The row has no effect if another library has already replaced the function.

    Args:
        owner: The module or class.
        attribute: The name of its function, method or static method.
        body: Takes the replaced function and that function's arguments. If it returns None or raises
            :class:`Leave`, the replaced function runs with the same arguments.
        traced: Runs instead of ``body`` while a program is traced. None means that the original runs there.
        where: Returns whether ``body`` runs, also in traced programs; ``traced`` is then unused. None means
            that ``body`` runs only outside of traced programs.
        counted_as: The name under which :func:`counted` counts calls of ``body``; empty means no count.
    """
    held = inspect.getattr_static(owner, attribute)
    inherited = isinstance(owner, type) and attribute not in vars(owner)
    theirs, part, leave = host_function(owner, attribute), building.get(), Leave
    if not isinstance(theirs, types.FunctionType):
        return Row(owner, attribute, held, held, inherited)
    # This is ops.contexts.compiling, written with fewer calls.
    in_dynamo, flags, in_program = torch.compiler.is_dynamo_compiling, torch.compiler, as_program
    counts, add = counting, count

    def function(*args, **kwargs):  # type: ignore[no-untyped-def]
        if not part.on:
            return theirs(*args, **kwargs)
        is_traced = in_dynamo() or flags._is_compiling_flag or (in_program.live and in_program.get())
        ours = traced if is_traced else body
        try:
            out = None if ours is None else ours(theirs, *args, **kwargs)
        except leave:
            out = None
        if counted_as and counts.live:
            add(counted_as, out is not None)
        return theirs(*args, **kwargs) if out is None else out

    def function_where(*args, **kwargs):  # type: ignore[no-untyped-def]
        try:
            out = body(theirs, *args, **kwargs) if part.on and where() else None  # type: ignore[misc]
        except leave:
            out = None
        return theirs(*args, **kwargs) if out is None else out

    ours: Any = stand_in(theirs, function if where is None else function_where)
    part.functions.add(ours)
    if isinstance(held, staticmethod):
        ours, held = staticmethod(ours), held if held.__func__ is theirs else staticmethod(theirs)
    elif not inherited:
        held = theirs
    return Row(owner, attribute, ours, held, inherited)


def host_function(owner: Any, attribute: str) -> Any:
    """Return the function that a module or class has without the part that is being built.

    If another library has put back a wrapper of an earlier patch, return the function that the wrapper
    replaces.
    """
    function = getattr(owner, attribute)
    while not building.get().on and (theirs := replaced(function)) is not None:
        function = theirs
    return function


def is_own(function: Any) -> bool:
    """Return whether a function, and every function that it decorates, belongs to a host framework.

    A wrapper of onehop counts as the function that it replaces.
    """
    theirs = replaced(function)
    if theirs is not None:
        return is_own(theirs)
    beneath = getattr(function, "__wrapped__", None)
    return _is_of_host(function) and (beneath is None or is_own(beneath))


def _is_of_host(function: Any) -> bool:
    """Return whether a function was defined in a host's module, with that module's code and globals."""
    if not isinstance(function, types.FunctionType):
        return isinstance(function, types.BuiltinFunctionType)
    names = function.__globals__
    name = names.get("__name__", "")
    module = sys.modules.get(name)
    is_host = name.partition(".")[0] in _HOSTS or any(sys.modules.get(host) is module for host in _HOSTS)
    return is_host and vars(module) is names and function.__code__.co_filename == names.get("__file__")


def replacing_in(
    modules: Sequence[Any],
    attribute: str,
    body: Function,
    traced: Function | None = None,
    *,
    where: Callable[[], bool] | None = None,
    counted_as: str = "",
) -> list[Row]:
    """Return the rows that replace a function in several modules by one and the same function.

    TorchScript knows functions by their qualified names, so one function must not have two replacements.

    Args:
        modules: The modules. A module gets no row if its attribute is not the first module's function.
        attribute: As in :func:`replacing`.
        body: As in :func:`replacing`.
        traced: As in :func:`replacing`.
        where: As in :func:`replacing`.
        counted_as: As in :func:`replacing`.
    """
    first = replacing(modules[0], attribute, body, traced, where=where, counted_as=counted_as)
    return [
        replace(first, owner=owner) for owner in modules if host_function(owner, attribute) is first.theirs
    ]


# Neither these packages nor what they import uses PyG. Searching them would take most of the time.
_NOT_SEARCHED = frozenset({"onehop", "torch", "numpy", "scipy", "sympy", *sys.stdlib_module_names})


def everywhere(rows: Iterable[Row]) -> list[Row]:
    """Returns a row for every module and name that refers to a function of these rows.

    This covers scripts that import a function first and patch afterwards. Other references to the function,
    such as in a class or a default argument, are not replaced.
    """
    of = {id(row.theirs): row for row in rows}
    # Modules may have imported functions of an earlier patch.
    earlier = [(function, of.get(id(replaced(function)))) for function in list(building.get().functions)]
    sought = [(row.theirs, row) for row in of.values()]
    sought += [(function, row) for function, row in earlier if row and function is not row.ours]
    modules = [
        module
        for name, module in list(sys.modules.items() if of else ())
        if name.partition(".")[0] not in _NOT_SEARCHED and isinstance(module, types.ModuleType)
    ]
    # Modules that are loaded on first use stay unloaded.
    names = [object.__getattribute__(module, "__dict__") for module in modules]
    places = native.extension.holders(names, [function for function, _ in sought])
    return [replace(sought[which][1], owner=modules[place], attribute=name) for place, which, name in places]


def stand_in(theirs: Function, ours: Function) -> Function:
    """Return a function with the code of ``ours`` and the identity of ``theirs``.

    It keeps the name, the module, the signature and, through ``__wrapped__``, the source of ``theirs``, and
    looks up names in the module of ``theirs``. So TorchScript, which compiles source text, compiles
    ``theirs``, with its overloads. Therefore ``ours`` may use closure variables only, and no global names.
    """
    function = types.FunctionType(
        ours.__code__, theirs.__globals__, theirs.__name__, ours.__defaults__, ours.__closure__
    )
    functools.update_wrapper(function, theirs)
    function.onehop_theirs = theirs  # type: ignore[attr-defined]
    share_overloads(theirs, function)
    return function


def share_overloads(theirs: Function, ours: Function) -> None:
    """Gives ``ours`` the overloads that ``torch.jit._overload`` declared for ``theirs``.

    TorchScript stores overloads under the function's qualified name until the first compilation, and compiled
    overloads under the function object. If two functions had the same name, the one compiled second would
    find none. So ``ours`` gets its own name and a copy of the overloads.
    """
    name = _jit_internal._qualified_name(theirs)
    declared = _jit_internal._get_fn_overloads(name)
    compiled = _state._try_get_jit_cached_overloads(theirs)
    if declared is None and compiled is None:
        return
    own_name = f"{name}_of_onehop"
    ours._jit_override_qualname = own_name  # type: ignore[attr-defined]
    if declared is not None:
        _jit_internal._overloaded_fns[own_name] = list(declared)
    if compiled is not None:
        _state._set_jit_overload_cache(ours, compiled)


def replaced(function: Any) -> Function | None:
    """Return the function that a wrapper of onehop replaces; None for any other function.

    The result is also None for a function that decorates a wrapper, although ``functools.wraps`` copies the
    wrapper's attributes to it.
    """
    theirs: Function | None = getattr(function, "onehop_theirs", None)
    return theirs if theirs is getattr(function, "__wrapped__", None) else None
