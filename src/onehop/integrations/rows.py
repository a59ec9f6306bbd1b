"""Rows of the patch table: attributes of modules and classes that are replaced while a patch is in place."""

import contextlib
import functools
import inspect
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import _jit_internal
from torch.jit import _state

from onehop.ops import contexts

Function = Callable[..., Any]


counter: Counter[tuple[str, bool]] | None = None
"""Counts calls of functions: by name, and by whether our code ran. None where nothing is counted."""


@contextlib.contextmanager
def counted() -> Iterator[Counter[tuple[str, bool]]]:
    """Counts the calls of replaced functions inside the block: (name, whether our code ran) -> number."""
    global counter
    before, counter = counter, Counter()
    try:
        yield counter
    finally:
        counter = before


@dataclass(frozen=True, slots=True)
class Row:
    """One attribute of a module or class.

    Attributes:
        owner: The module or class.
        attribute: The name of the attribute.
        ours: The value while the patch is in place.
        theirs: The value before the patch, which is restored afterwards.
        inherited: Whether ``theirs`` is not the owner's own but, for example, that of a base class. Then the
            attribute is deleted afterwards.
    """

    owner: Any
    attribute: str
    ours: Any
    theirs: Any
    inherited: bool = False

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

    The argument is the sentence that says why. torch cannot trace exceptions with their own constructors.
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
    told: str = "",
) -> Row:
    """The row of a function or method that is replaced by one that runs ``body`` first.

    Args:
        owner: The module or class.
        attribute: The name of its function, method or static method.
        body: Takes the replaced function and that function's arguments. If it returns None or raises
            :class:`Leave`, the replaced function runs with the same arguments.
        traced: Runs instead of ``body`` while a program is traced. None means that neither runs there.
        where: Returns whether ``body`` runs, in traced programs too; ``traced`` is then unused. None means
            that it runs outside of traced programs.
        told: The name by which :func:`counted` counts the calls that ``body`` sees; empty means not at all.
    """
    held = inspect.getattr_static(owner, attribute)
    theirs, leave = getattr(owner, attribute), Leave
    # As ops.contexts.compiling, with fewer calls.
    in_dynamo, flags = torch.compiler.is_dynamo_compiling, torch.compiler
    state, this = contexts, sys.modules[__name__]

    def function(*args, **kwargs):  # type: ignore[no-untyped-def]
        ours = traced if in_dynamo() or flags._is_compiling_flag or state.as_program else body
        try:
            out = None if ours is None else ours(theirs, *args, **kwargs)
        except leave:
            out = None
        if this.counter is not None and told:
            this.counter[told, out is not None] += 1
        return theirs(*args, **kwargs) if out is None else out

    def function_where(*args, **kwargs):  # type: ignore[no-untyped-def]
        try:
            out = body(theirs, *args, **kwargs) if where() else None  # type: ignore[misc]
        except leave:
            out = None
        return theirs(*args, **kwargs) if out is None else out

    ours: Any = stand_in(theirs, function if where is None else function_where)
    if isinstance(held, staticmethod):
        ours = staticmethod(ours)
    inherited = isinstance(owner, type) and attribute not in vars(owner)
    return Row(owner, attribute, ours, held, inherited)


def replacing_in(
    modules: Sequence[Any],
    attribute: str,
    body: Function,
    traced: Function | None = None,
    *,
    where: Callable[[], bool] | None = None,
    told: str = "",
) -> list[Row]:
    """The rows of a function that several modules have; one function replaces it in all of them.

    TorchScript knows functions by their qualified names, so one function must not have two replacements.

    Args:
        modules: The modules. Those whose attribute is not the function of the first get no row.
        attribute: As in :func:`replacing`.
        body: As in :func:`replacing`.
        traced: As in :func:`replacing`.
        where: As in :func:`replacing`.
        told: As in :func:`replacing`.
    """
    first = replacing(modules[0], attribute, body, traced, where=where, told=told)
    return [replace(first, owner=each) for each in modules if getattr(each, attribute) is first.theirs]


# They and all that they import know nothing of PyG. To search them would take most of the time.
_NOT_SEARCHED = frozenset({"onehop", "torch", "numpy", "scipy", "sympy", *sys.stdlib_module_names})
# Modules that had none of some functions, and how many attributes each had then.
_without: dict[frozenset[int], dict[str, int]] = {}


def everywhere(rows: Iterable[Row]) -> list[Row]:
    """The rows of the same functions in every module that has them, by any name.

    A script may import a function first, and patch afterwards. Whatever else holds the function, such as a
    class or a default argument, keeps it.
    """
    of = {id(row.theirs): row for row in rows}
    without = _without.setdefault(frozenset(of), {})
    made: list[Row] = []
    for name, module in list(sys.modules.items()) if of else ():
        if name.partition(".")[0] in _NOT_SEARCHED or not isinstance(module, types.ModuleType):
            continue
        # Modules that are loaded on first use stay unloaded.
        held = object.__getattribute__(module, "__dict__")
        if without.get(name) != len(held):
            found = [(key, of[id(value)]) for key, value in list(held.items()) if id(value) in of]
            made += [replace(row, owner=module, attribute=key) for key, row in found]
            if not found:
                without[name] = len(held)
    return made


def stand_in(theirs: Function, ours: Function) -> Function:
    """A function with the code of ``ours`` and the identity of ``theirs``.

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
    """Gives ``ours`` the overloads that ``theirs`` was declared with by ``torch.jit._overload``.

    TorchScript keeps overloads by the function's qualified name until the first compilation, and compiled
    ones by the function object. Of two functions with one name, the one compiled second would find none. So
    ``ours`` gets its own name, and a copy of the overloads.
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

    A function that decorates a wrapper is another function, although ``functools.wraps`` copies the
    wrapper's attributes to it.
    """
    theirs: Function | None = getattr(function, "onehop_theirs", None)
    return theirs if theirs is getattr(function, "__wrapped__", None) else None
