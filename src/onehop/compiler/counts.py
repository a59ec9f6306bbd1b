"""Numbers of edges and destinations in a trial: Python sees the real numbers, torch the trial's.

A trial runs a message on a few edges. If the message reads how many edges there are, it must decide as in the
real call, so it gets the real number. That it read the number is noted, because the trace then holds only for
this number.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# Methods of integers whose result is again a linear function of the number; no decision depends on them.
_LINEAR = ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__neg__", "__pos__")
_ASKING = (
    "__abs__", "__and__", "__bool__", "__ceil__", "__divmod__", "__eq__", "__float__", "__floor__",
    "__floordiv__", "__format__", "__ge__", "__gt__", "__hash__", "__index__", "__int__", "__invert__",
    "__le__", "__lshift__", "__lt__", "__mod__", "__ne__", "__or__", "__pow__", "__rand__", "__rdivmod__",
    "__repr__", "__rfloordiv__", "__rlshift__", "__rmod__", "__ror__", "__round__", "__rpow__",
    "__rrshift__", "__rshift__", "__rtruediv__", "__rxor__", "__str__", "__truediv__", "__trunc__",
    "__xor__",
)  # fmt: skip
_COMPARING = frozenset({"__eq__", "__ne__", "__gt__", "__ge__", "__lt__", "__le__"})

Note = Callable[[], None]
RealOf = Callable[[Tensor, int], int | None]


class Count(int):
    """An integer that has its real value for Python and the trial's value for torch.

    Args:
        real: The real number.
        tried: The number in the trial.
        note: Called when Python code uses the value of the number.
        positive: Whether both are multiples of positive numbers, so that a comparison with 0 reveals nothing.
    """

    tried: int
    _note: Note
    _positive: bool

    def __new__(cls, real: int, tried: int, note: Note, positive: bool = True) -> "Count":
        """Returns the number."""
        self = super().__new__(cls, real)
        self.tried, self._note, self._positive = tried, note, positive
        return self


def _linear(name: str) -> Callable[..., Any]:
    of_int, multiplies = getattr(int, name), "mul" in name

    def method(self: Count, *others: Any) -> Any:
        for other in others:
            if type(other) not in (int, Count):
                self._note()
                return of_int(self, other)
        result = of_int(int(*_real([self])), *_real(others))
        tried = of_int(self.tried, *(getattr(each, "tried", each) for each in others))
        return Count(result, tried, self._note, multiplies and self._positive and _are_positive(others))

    return method


def _real(numbers: Any) -> list[int]:
    return [int.__int__(number) for number in numbers]


def _are_positive(others: tuple[Any, ...]) -> bool:
    return all(each._positive if type(each) is Count else each > 0 for each in others)


def _asking(name: str) -> Callable[..., Any]:
    of_int, compares = getattr(int, name), name in _COMPARING

    def method(self: Count, *others: Any) -> Any:
        if compares:
            (other,) = others
            if type(other) is int and other == 0 and self._positive:
                return of_int(self, 0)
            if type(other) is Count and other.tried == self.tried and int.__eq__(self, other):
                return of_int(self, other)
        elif name == "__bool__" and self._positive:
            return True
        self._note()
        return of_int(self, *others)

    return method


for _name in _LINEAR:
    setattr(Count, _name, _linear(_name))
for _name in _ASKING:
    setattr(Count, _name, _asking(_name))


class Shape(tuple[Any, ...]):
    """The sizes of a tensor, some of which are counts; it notes when a count is read.

    Args:
        sizes: The sizes.
        taken: Called when a count is read.
    """

    _taken: Note

    def __new__(cls, sizes: Any, taken: Note) -> "Shape":
        """Returns the sizes."""
        self = super().__new__(cls, sizes)
        self._taken = taken
        return self

    def __getitem__(self, key: Any) -> Any:
        """Returns one size, or several for a slice."""
        item = super().__getitem__(key)
        if type(item) is tuple:
            return Shape(item, self._taken)
        if type(item) is Count:
            self._taken()
        return item

    def __iter__(self) -> Any:
        """Returns an iterator over the sizes."""
        self._taken()
        return super().__iter__()

    def __add__(self, other: Any) -> Any:
        """Returns these sizes followed by others."""
        return Shape(super().__add__(tuple(other)), self._taken)

    def __radd__(self, other: Any) -> Any:
        """Returns other sizes followed by these."""
        return Shape((*tuple(other), *super().__iter__()), self._taken)

    def __eq__(self, other: Any) -> bool:
        """Compares the sizes."""
        return len(self) == len(other) and all(a == b for a, b in zip(super().__iter__(), other, strict=True))

    def __ne__(self, other: Any) -> bool:
        """Compares the sizes."""
        return not self == other

    def __hash__(self) -> int:
        """Returns the hash of the sizes."""
        self._taken()
        return super().__hash__()

    def numel(self) -> Any:
        """Return the number of entries."""
        product: Any = 1
        for size in super().__iter__():
            product = product * size
        return product


def tried(value: Any) -> Any:
    """Return an argument of a torch function, with the trial's numbers."""
    kind = type(value)
    if kind is Count:
        return value.tried
    if kind is Shape:
        return torch.Size(tried(each) for each in tuple.__iter__(value))
    if kind in (tuple, list):
        return kind(tried(each) for each in value)
    if kind is slice:
        return slice(tried(value.start), tried(value.stop), tried(value.step))
    if kind is dict:
        return {key: tried(each) for key, each in value.items()}
    return value


_SIZES = (Tensor.size, Tensor.shape.__get__)  # type: ignore[attr-defined]
_NUMBERS = (Tensor.numel, Tensor.nelement, torch.numel)


class Counts:
    """A record of which sizes Python code read in a trial.

    Attributes:
        of_edges: Whether Python code used the size of a tensor that depends on the number of edges.
        of_nodes: Whether it used the counts of nodes that the message gets.
        taken: Whether it read the size of a tensor.
    """

    def __init__(self) -> None:
        self.of_edges, self.of_nodes, self.taken = False, False, False

    def _ask_edges(self) -> None:
        self.of_edges = True

    def _ask_nodes(self) -> None:
        self.of_nodes = True

    def _take(self) -> None:
        self.taken = True

    def by_name(self, sizes: dict[str, tuple[int, int | None]]) -> dict[str, Count]:
        """Return counts by name from pairs of the real number and the trial's number or None.

        If the trial's number is None, torch also gets the real number, so it is unknown whether torch uses
        it.
        """
        self.of_nodes |= any(few is None for _, few in sizes.values())
        return {
            name: Count(real, real if few is None else few, self._ask_nodes)
            for name, (real, few) in sizes.items()
        }

    def of(self, real_of: RealOf, function: Any, args: Any, kwargs: dict[str, Any], result: Any) -> Any:
        """Return the result of a torch function as Python sees it.

        Args:
            real_of: Returns the real size of a tensor in a dimension; None if it is the same as in the trial.
            function: The function.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            result: Its result.
        """
        if type(result) is torch.Size and function in _SIZES:
            return self._shape(real_of, args[0])
        if type(result) is not int:
            return result
        if function is Tensor.size:
            return self._shape(real_of, args[0])[kwargs["dim"] if "dim" in kwargs else args[1]]
        if function in _NUMBERS:
            self.taken = True
            return self._shape(real_of, args[0]).numel()
        if function is Tensor.__len__:
            self.of_edges = True  # Python converts the result to a plain int
            return int.__int__(self._shape(real_of, args[0])[0])
        return result

    def _shape(self, real_of: RealOf, tensor: Tensor) -> Any:
        sizes: list[Any] = list(tensor.shape)
        for dim, size in enumerate(sizes):
            real = real_of(tensor, dim)
            if real is not None:
                sizes[dim] = Count(real, size, self._ask_edges)
        return Shape(sizes, self._take)
