"""A row of the patch table: one attribute that is ours while the patch is on, and theirs otherwise."""

import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onehop.integrations.torchscript import share_overloads
from onehop.ops.contexts import compiling


@dataclass(frozen=True, slots=True)
class Row:
    """One attribute of a module or class.

    Attributes:
        owner: The module or class.
        attribute: The name that is set.
        ours: What it is while patched.
        theirs: What it was, and is again afterwards.
        inherited: Whether a class has it from a base, so that afterwards it has none of its own.
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
        """Sets ours."""
        setattr(self.owner, self.attribute, self.ours)

    def restore(self) -> None:
        """Sets theirs, unless somebody else has set something on top of ours."""
        if vars(self.owner).get(self.attribute) is not self.ours:
            return
        if self.inherited:
            delattr(self.owner, self.attribute)
        else:
            setattr(self.owner, self.attribute, self.theirs)


def replacing(
    owner: Any,
    attribute: str,
    body: Callable[..., Any],
    traced: Callable[..., Any] | None = None,
) -> Row:
    """The row of a function or method that runs ``body`` first.

    Args:
        owner: The module or class.
        attribute: The name of its function.
        body: Takes the function that it replaces, then that function's arguments. If it returns None, the
            function that it replaces runs with the same arguments.
        traced: Runs instead of ``body`` while a program is traced; None means that neither does.
    """
    theirs, in_program = getattr(owner, attribute), compiling

    def function(*args, **kwargs):  # type: ignore[no-untyped-def]
        ours = traced if in_program() else body
        out = None if ours is None else ours(theirs, *args, **kwargs)
        return theirs(*args, **kwargs) if out is None else out

    inherited = isinstance(owner, type) and attribute not in vars(owner)
    return Row(owner, attribute, stand_in(theirs, function), theirs, inherited)


def stand_in(theirs: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the code of ``ours`` that passes for ``theirs``.

    It keeps the name, the module, the signature and, through ``__wrapped__``, the source of ``theirs``, and
    looks its names up in the module of ``theirs``. So TorchScript, which compiles source text, compiles
    ``theirs``, with its overloads. For that reason ``ours`` may use closure variables only, no global names.
    """
    function = types.FunctionType(
        ours.__code__, theirs.__globals__, theirs.__name__, ours.__defaults__, ours.__closure__
    )
    functools.update_wrapper(function, theirs)
    function.onehop_theirs = theirs  # type: ignore[attr-defined]
    share_overloads(theirs, function)
    return function


def replaced(function: Any) -> Callable[..., Any] | None:
    """The function that a wrapper of onehop replaces; None for any other function.

    Others are also those that decorate one of ours, and have its attributes by ``functools.wraps``.
    """
    theirs: Callable[..., Any] | None = getattr(function, "onehop_theirs", None)
    return theirs if theirs is getattr(function, "__wrapped__", None) else None
