"""The values of a message while it is compiled: rows of its tensors, steps, and the compiled message."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from onehop.compiler.terms import Columns, Drawn, EarlyProduct, Fixed, Term
from onehop.messages import APART, End, Operand, Program, Step

# The maximal number of summands into which a sum is split for a product.
_MOST_SUMMANDS = 4

Products = list[tuple[Columns | EarlyProduct, int]]
"""Rows of nodes or edges, each with a sign or with the number of its matrix."""


class NotCompiled(Exception):
    """The message cannot be compiled. The text says why."""


@dataclass(frozen=True, slots=True)
class Row:
    """A tensor with a row for every edge.

    Attributes:
        shape: The shape of an edge's row.
        value: The value's number: for steps from 0 upwards, for operands from -1 downwards.
    """

    shape: tuple[int, ...]
    value: int

    @property
    def width(self) -> int:
        """The number of entries of a row."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Joined:
    """Concatenated rows; only a product with a matrix can use them."""

    rows: tuple[Row, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an edge's row."""
        return (sum(row.width for row in self.rows),)


@dataclass(frozen=True, slots=True)
class Stacked:
    """Stacked rows of the same shape; operations apply to each row separately."""

    rows: tuple[Row | Joined, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an edge's row."""
        return (len(self.rows), *self.rows[0].shape)


@dataclass(frozen=True, slots=True)
class Unread:
    """A tensor without a known meaning; this is an error only if the message is computed from it.

    Such tensors also occur because hooks on saved tensors, such as activation checkpointing's, call
    operations.

    Attributes:
        why: The reason for the refusal if the message uses the tensor.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Zeros(Unread):
    """A tensor of zeros, into which values may be added."""


@dataclass(frozen=True, slots=True)
class Part:
    """Columns of a message.

    Attributes:
        program: The program that computes them.
        terms: The operands of the program.
    """

    program: Program
    terms: list[Term]


@dataclass(frozen=True, slots=True)
class Behind:
    """A linear step that is applied to sums and means of messages, instead of each message.

    Attributes:
        matrix: [columns, width], the matrix.
        bias: [width], the bias of every message; None adds nothing.
    """

    matrix: Fixed
    bias: Fixed | None


@dataclass(frozen=True, slots=True)
class Read:
    """A compiled message. It holds no tensors; its terms refer to them by number.

    Attributes:
        parts: The parts of the message, which are concatenated.
        shape: The shape of one message.
        dtype: The dtype of a message.
        draws: The random numbers that are drawn, in order, even if the message does not use them.
        stays: Whether it reduces over destinations or draws random numbers, which blocks cannot do.
        behind: The linear step to apply to sums and means; None without one.
        returned: The results if the layer itself reduces the messages; None if it does not.
    """

    parts: tuple[Part, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    draws: tuple[Drawn, ...]
    stays: bool
    behind: Behind | None = None
    returned: "Results | None" = None


@dataclass(frozen=True, slots=True)
class Results:
    """Results that a layer itself makes of its messages, in order.

    Attributes:
        names: Names of :data:`onehop.messages.REDUCTIONS`.
        container: The type of the returned container, tuple or list; None for a single tensor.
    """

    names: tuple[str, ...]
    container: type | None

    def of(self, result_of: Callable[[str], Tensor]) -> Any:
        """Return the results as the layer returns them; equal names give the same tensor."""
        results = {name: result_of(name) for name in dict.fromkeys(self.names)}
        if self.container is None:
            return results[self.names[0]]
        return self.container(results[name] for name in self.names)


class Draft:
    """The terms and steps of a message while it is compiled; values are numbered as in :class:`Row`."""

    def __init__(self) -> None:
        self._terms: list[Term] = []
        self._values: dict[tuple[object, ...], int] = {}
        self._steps: list[Step] = []

    @property
    def draws(self) -> tuple[Drawn, ...]:
        """The random terms, in drawing order."""
        return tuple(term for term in self._terms if isinstance(term, Drawn))

    def term_of(self, value: int) -> Term | None:
        """Return the term of a value; None if a step computes the value."""
        return self._terms[-1 - value] if value < 0 else None

    def step_of(self, value: int) -> Step | None:
        """Return the step that computes a value; None if the value is a term."""
        return self._steps[value] if value >= 0 else None

    def part(self, result: int) -> Part:
        """Return the program of a value, with the operands and steps that it needs."""
        needed = {result}
        for number in reversed(range(len(self._steps))):
            if number in needed:
                needed.update(self._steps[number].inputs)
        operands = sorted((value for value in needed if value < 0), reverse=True)
        results = sorted(value for value in needed if value >= 0)
        numbers = {value: number for number, value in enumerate([*operands, *results])}
        steps = (self._steps[value] for value in results)
        terms = [self._terms[-1 - value] for value in operands]
        program = Program(
            tuple(Operand(term.end, term.width) for term in terms),
            tuple(replace(step, inputs=tuple(numbers[v] for v in step.inputs)) for step in steps),
            numbers[result],
        )
        if not any(t.end not in (End.FIXED, End.MATRIX) and not isinstance(t, Drawn) for t in terms):
            raise NotCompiled("reads no rows of nodes or edges")
        return Part(program, terms)

    def operand(self, term: Term) -> int:
        """Return the value of a term; equal columns have the same value."""
        key = term.key() if isinstance(term, Columns) else (id(term),)
        if key not in self._values:
            self._terms.append(term)
            self._values[key] = -len(self._terms)
        return self._values[key]

    def is_apart(self, row: Row) -> bool:
        """Return whether no gradient passes through the last step to a row."""
        return row.value >= 0 and self._steps[row.value].operation == APART

    def drawn(self, shape: tuple[int, ...], probability: float) -> Row:
        """Return random numbers for every edge: 1 with probability ``probability``, else 0."""
        self._terms.append(Drawn(math.prod(shape), probability, divided=False))
        return Row(shape, -len(self._terms))

    def divided(self, row: Row, by: float) -> Row | None:
        """Return drawn numbers divided as in dropout; None if the division is another one."""
        term = self.term_of(row.value)
        if not isinstance(term, Drawn) or term.divided or by != term.probability:
            return None
        self._terms[-1 - row.value] = replace(term, divided=True)
        return row

    def emit(self, operation: str, *inputs: Row, p: float = 0.0, q: float = 0.0) -> Row:
        """Add a step whose result has the shape of the first input."""
        shape = inputs[0].shape
        step = Step(operation, tuple(row.value for row in inputs), math.prod(shape), (float(p), float(q)))
        self._steps.append(step)
        return Row(shape, len(self._steps) - 1)

    def spread(self, row: Row, shape: tuple[int, ...]) -> Row:
        """Return a row with dimensions of size 1 expanded to ``shape``, which has as many dimensions."""
        result = row
        for at, size in enumerate(shape):
            if result.shape[at] == size:
                continue
            # A run of consecutive dimensions is expanded at once; the later dimensions are repeated as a
            # block.
            end = next((d for d in range(at, len(shape)) if result.shape[d] != 1), len(shape))
            wider = (*result.shape[:at], *shape[at:end], *result.shape[end:])
            result = self._moved(result, "spread", wider, math.prod(result.shape[end:]))
        return result

    def collected(self, row: Row, dims: set[int], operation: str = "collect") -> Row:
        """Return a row's sums, or maxima, over dimensions, which keep the size 1."""
        result, end = row, len(row.shape)
        while dims:
            # This handles the last run of consecutive dimensions.
            end = max(d for d in dims if d < end) + 1
            start = next(d + 1 for d in range(end - 1, -2, -1) if d not in dims)
            narrower = (*result.shape[:start], *(1,) * (end - start), *result.shape[end:])
            result = self._moved(result, operation, narrower, math.prod(result.shape[end:]))
            dims = dims - set(range(start, end))
        return result

    def _moved(self, row: Row, operation: str, shape: tuple[int, ...], block: int) -> Row:
        if math.prod(shape) == row.width:
            return Row(shape, row.value)
        numbers = (float(block) if block > 1 else 0.0, 0.0)
        self._steps.append(Step(operation, (row.value,), math.prod(shape), numbers))
        return Row(shape, len(self._steps) - 1)

    def summands(self, value: int, sign: int) -> Products | None:
        """Return the signed rows of nodes or edges whose sum a value is; None if it is not such a sum."""
        term, step = self.term_of(value), self.step_of(value)
        if isinstance(term, Columns | EarlyProduct):
            return [(term, sign)]
        if step is None or step.operation not in ("add", "subtract"):
            return None
        left = self.summands(step.inputs[0], sign)
        right = self.summands(step.inputs[1], sign if step.operation == "add" else -sign)
        both = None if left is None or right is None else [*left, *right]
        return both if both is None or len(both) <= _MOST_SUMMANDS else None

    def columns(self, row: Row, start: int, shape: tuple[int, ...]) -> Row:
        """Return columns of an operand, beginning at ``start``, as a row with this shape."""
        term = self.term_of(row.value)
        width = math.prod(shape)
        if not isinstance(term, Columns):
            raise NotCompiled("takes columns of what is no operand")
        if not width:
            raise NotCompiled("has rows without columns")
        return Row(shape, self.operand(Columns(term.end, term.at, term.start + start, width)))
