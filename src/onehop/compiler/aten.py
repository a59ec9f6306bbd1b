"""The registry of torch's operations: their rules for the edges' dimension, and meanings in programs.

Decorators register the functions: :mod:`edge_dims` defines the rules for the edges' dimension,
:mod:`operations` the meanings.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Tensor


class Mixes(Exception):
    """An operation mixes edges. The text is the reason; it is empty if there is no further detail."""


@dataclass(frozen=True, slots=True)
class Place:
    """The dimension of the edges in a tensor.

    Attributes:
        dim: The dimension, counted from the front.
        inner: How many consecutive entries of the dimension belong to one edge: more than 1 after a view has
            merged the dimension with later ones.
    """

    dim: int
    inner: int = 1


Places = Callable[[Tensor], Place | None]

Rule = Callable[[Any, dict[str, Any], Places, int], Place | None]
"""A rule for the edges' dimension, which returns its place in the operation's result.

It takes the operation's positional arguments, its keyword arguments, a function that returns the places of
the edges in operands, and the number of edges. It raises :class:`Mixes` if the operation mixes edges.
"""

Reading = Callable[[Any, dict[str, Any], Any], Any]
"""The meaning of an operation: takes the reader, the arguments by name and torch's result; returns rows."""


@dataclass(slots=True)
class Operation:
    """An operation of ATen, with all its overloads.

    Attributes:
        rule: How the operation handles the edges' dimension; None if it is not known to keep edges separate.
        sized: Whether the number of edges may be among its arguments.
        makes: Whether it makes a tensor of a given size.
        readings: The meaning in a program, by overload; ``"*"`` for all other overloads.
    """

    rule: Rule | None = None
    sized: bool = False
    makes: bool = False
    readings: dict[str, Reading] = field(default_factory=dict)

    def reading(self, overload: str) -> Reading | None:
        """Return the meaning of an overload; None if programs do not support it."""
        return self.readings.get(overload) or self.readings.get("*")


_OPERATIONS: defaultdict[str, Operation] = defaultdict(Operation)

_R = TypeVar("_R", bound=Rule)
_M = TypeVar("_M", bound=Reading)


def named(name: str) -> Operation:
    """Return the entry of an operation, such as ``"add"``; an empty one if it is not known."""
    return _OPERATIONS.get(name) or Operation()


def name_of(overload: Any) -> str:
    """Return the name of an overload's operation, such as ``"add"``."""
    return str(overload._schema.name.removeprefix("aten::"))


def carries(*names: str, sized: bool = False, makes: bool = False) -> Callable[[_R], _R]:
    """Return a decorator that registers a rule for the edges' dimension for some operations."""

    def note(rule: _R) -> _R:
        for name in names:
            entry = _OPERATIONS[name]
            entry.rule, entry.sized, entry.makes = rule, sized, makes
        return rule

    return note


def means(*names: str) -> Callable[[_M], _M]:
    """Return a decorator that registers the meaning of operations, each ``"name"`` or ``"name.overload"``."""

    def note(reading: _M) -> _M:
        for name in names:
            operation, _, overload = name.partition(".")
            _OPERATIONS[operation].readings[overload or "*"] = reading
        return reading

    return note
