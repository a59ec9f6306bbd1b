"""The registry of torch's operations: how each carries edges, and what it means in a program.

A decorator makes an entry where its function is: the rules of edges are in :mod:`edge_dims`, the meanings in
:mod:`operations`.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Tensor


class Mixes(Exception):
    """An operation mixes edges. Its text is the reason, or empty where there is no more to say."""


@dataclass(frozen=True, slots=True)
class Place:
    """The dimension of the edges in a tensor.

    Attributes:
        dim: The dimension, counted from the front.
        inner: How many consecutive entries of that dimension belong to one edge: more than 1 after a view
            has merged the dimension with the ones behind it.
    """

    dim: int
    inner: int = 1


Places = Callable[[Tensor], Place | None]

Rule = Callable[[Any, dict[str, Any], Places, int], Place | None]
"""Takes an operation's arguments in order and by name, where the edges are in its operands, and their number.
Returns where they are in its result, or raises :class:`Mixes`."""

Reading = Callable[[Any, dict[str, Any], Any], Any]
"""Takes the reader, the arguments of an operation by name and torch's own result; returns what that is."""


@dataclass(slots=True)
class Operation:
    """An operation of ATen, with all its overloads.

    Attributes:
        rule: How it carries edges; None if it is not known to keep them apart.
        sized: Whether the number of edges may be among its arguments.
        makes: Whether it makes a tensor of a given size.
        readings: What it means in a program, by overload; ``"*"`` for all others.
    """

    rule: Rule | None = None
    sized: bool = False
    makes: bool = False
    readings: dict[str, Reading] = field(default_factory=dict)

    def reading(self, overload: str) -> Reading | None:
        """Return the meaning of an overload; None if programs have none."""
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
    """Decorate the rule of edges of some operations, whose entries have these attributes."""

    def note(rule: _R) -> _R:
        for name in names:
            entry = _OPERATIONS[name]
            entry.rule, entry.sized, entry.makes = rule, sized, makes
        return rule

    return note


def means(*names: str) -> Callable[[_M], _M]:
    """Decorate the meaning of some operations, each ``"name"`` or ``"name.overload"``."""

    def note(reading: _M) -> _M:
        for name in names:
            operation, _, overload = name.partition(".")
            _OPERATIONS[operation].readings[overload or "*"] = reading
        return reading

    return note
