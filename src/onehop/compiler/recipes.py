"""Recipes for the tensors that a message uses for all edges: how to compute them from a layer's tensors.

A trace finds such tensors, for example a transposed weight. A recipe has the operations that made them, and
can make them again from the layer's current tensors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

Call = tuple[Any, tuple[Any, ...], dict[str, Any], Any]
"""An operation, its positional and keyword arguments, and its result."""

_Step = tuple[Any, tuple[Any, ...], dict[str, Any]]


class Tape(TorchDispatchMode):
    """Records the operations inside the block.

    Attributes:
        calls: The operations.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        self.calls.append((operation, args, kwargs or {}, result))
        return result


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a tensor in the list of sources followed by results of steps."""

    at: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """The operations that make tensors.

    Attributes:
        steps: The operations with their positional and keyword arguments.
        results: The positions of the tensors among sources and results of steps.
    """

    steps: tuple[_Step, ...]
    results: tuple[int, ...]

    def tensors(self, sources: Sequence[Tensor]) -> list[Tensor]:
        """Compute the tensors from the sources; differentiable."""
        values = _values(self.steps, sources)
        return [values[at] for at in self.results]


def _values(steps: Iterable[_Step], sources: Sequence[Tensor]) -> list[Tensor]:
    values = list(sources)
    for operation, args, kwargs in steps:
        result = operation(*(_filled(arg, values) for arg in args), **kwargs)
        values += _several(result)
    return values


def _filled(argument: Any, values: list[Tensor]) -> Any:
    if type(argument) is _Place:
        return values[argument.at]
    return [_filled(each, values) for each in argument] if type(argument) is list else argument


def _several(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


class _Unknown(Exception):
    """A tensor has no recipe."""


def recipe_of(tensors: Sequence[Tensor], sources: Sequence[Tensor], calls: Sequence[Call]) -> Recipe | None:
    """Return the recipe of tensors; None if they are not made from the sources by these operations.

    Args:
        tensors: The tensors; no operation has written to them.
        sources: The tensors that they may be made from.
        calls: The recorded operations, including those that made the tensors.
    """
    writer = _Writer(sources, calls)
    try:
        results = tuple(writer.place(tensor).at for tensor in tensors)
    except _Unknown:
        return None
    # If an intermediate tensor was made without recording gradients, the recipe would record them.
    again = _values(writer.steps, sources)[len(sources) :]
    same = all(
        one.requires_grad == other.requires_grad for one, other in zip(again, writer.outs, strict=True)
    )
    return Recipe(tuple(writer.steps), results) if same else None


class _Writer:
    """Writes the steps of a recipe. A class, because an inner function would keep tensors in a cycle."""

    def __init__(self, sources: Sequence[Tensor], calls: Sequence[Call]) -> None:
        self.steps: list[_Step] = []
        self.outs: list[Tensor] = []
        self._count = len(sources)
        self._places = {id(tensor): at for at, tensor in reversed(list(enumerate(sources)))}
        # An operation that turns a number into a tensor has the same tensor as argument and result; it makes
        # nothing.
        self._makers = {
            id(out): call
            for call in calls
            for out in tree_leaves(call[3])
            if not any(out is leaf for leaf in tree_leaves(call[1]))
        }

    def place(self, tensor: Tensor) -> _Place:
        """Return the place of a tensor, after writing the steps that make it."""
        number = id(tensor)
        if number not in self._places:
            if number not in self._makers:
                raise _Unknown
            operation, args, kwargs, result = self._makers[number]
            if any(isinstance(leaf, Tensor) for leaf in tree_leaves(kwargs)):
                raise _Unknown
            self.steps.append((operation, tree_map_only(Tensor, self.place, args), kwargs))
            for out in _several(result):
                self._places[id(out)] = self._count + len(self.outs)
                self.outs.append(out)
        return _Place(self._places[number])
