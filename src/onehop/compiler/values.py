"""Values of a message that is read: the rows of its tensors, the steps to them, and what reading comes to."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from onehop.compiler.terms import Columns, Drawn, EarlyProduct, Fixed, Term
from onehop.messages import APART, End, Operand, Program, Step

# Rows that a sum may have to be taken apart for a product.
_MOST_SUMMANDS = 4

Products = list[tuple[Columns | EarlyProduct, int]]
"""Rows of nodes or edges, each with a sign, or with the number of its matrix."""


class NotCompiled(Exception):
    """The message is no program of ours. The text says why."""


@dataclass(frozen=True, slots=True)
class Row:
    """A tensor with a row for every edge.

    Attributes:
        shape: Of the row.
        value: Its number: of a step from 0 on, of an operand from -1 downwards.
    """

    shape: tuple[int, ...]
    value: int

    @property
    def width(self) -> int:
        """Numbers of the row."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Joined:
    """Rows side by side, which only a product with a matrix takes apart again."""

    rows: tuple[Row, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the row."""
        return (sum(row.width for row in self.rows),)


@dataclass(frozen=True, slots=True)
class Stacked:
    """Rows one above another, all of one shape: what is done to each is done apart from the others."""

    rows: tuple[Row | Joined, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the row."""
        return (len(self.rows), *self.rows[0].shape)


@dataclass(frozen=True, slots=True)
class Unread:
    """A tensor of no known reading; nothing is lost while nothing of the message is made from it.

    Hooks on saved tensors, such as activation checkpointing's, call operations too.

    Attributes:
        why: What to say if something is.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Zeros(Unread):
    """A tensor of zeros, for something to be added up in."""


@dataclass(frozen=True, slots=True)
class Part:
    """Columns of a message.

    Attributes:
        program: What they are.
        terms: What its operands are.
    """

    program: Program
    terms: list[Term]


@dataclass(frozen=True, slots=True)
class Behind:
    """A linear step that sums and means of messages are given, in place of each message.

    Attributes:
        matrix: [columns, width], by which they are multiplied.
        bias: [width], of every message; None adds nothing.
    """

    matrix: Fixed
    bias: Fixed | None


@dataclass(frozen=True, slots=True)
class Read:
    """A message that was read. It holds no tensors: its terms number them.

    Attributes:
        parts: Side by side, the message.
        shape: Of a message.
        dtype: Of a message.
        draws: What is drawn for it, in order, whether the message needs it or not.
        stays: Whether it reduces something over destinations, or draws something, which blocks cannot.
        behind: What is left to be done with its sums and means; None: nothing.
        returned: What the layer itself makes of it; None where its reductions are not part of what was read.
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
        names: Of :data:`onehop.messages.REDUCTIONS`.
        container: They are in one of these: a tuple or a list; None where there is one that is in none.
    """

    names: tuple[str, ...]
    container: type | None

    def of(self, result_of: Callable[[str], Tensor]) -> Any:
        """The results as the layer returns them; the same tensor for the same name."""
        results = {name: result_of(name) for name in dict.fromkeys(self.names)}
        if self.container is None:
            return results[self.names[0]]
        return self.container(results[name] for name in self.names)


class Draft:
    """The terms and steps of a message while it is read; values are numbered as in :class:`Row`."""

    def __init__(self) -> None:
        self._terms: list[Term] = []
        self._values: dict[tuple[object, ...], int] = {}
        self._steps: list[Step] = []

    @property
    def draws(self) -> tuple[Drawn, ...]:
        """The terms that are drawn, in order."""
        return tuple(term for term in self._terms if isinstance(term, Drawn))

    def term_of(self, value: int) -> Term | None:
        """The term that a value is; None where a step makes it."""
        return self._terms[-1 - value] if value < 0 else None

    def step_of(self, value: int) -> Step | None:
        """The step that makes a value; None where it is a term."""
        return self._steps[value] if value >= 0 else None

    def part(self, result: int) -> Part:
        """The program of a value, with the operands and steps that it needs."""
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
        """The value of a term, the same for equal columns."""
        key = term.key() if isinstance(term, Columns) else (id(term),)
        if key not in self._values:
            self._terms.append(term)
            self._values[key] = -len(self._terms)
        return self._values[key]

    def is_apart(self, row: Row) -> bool:
        """Return whether no gradient passes through the last step to a row."""
        return row.value >= 0 and self._steps[row.value].operation == APART

    def drawn(self, shape: tuple[int, ...], probability: float) -> Row:
        """Numbers that are drawn for every edge: 1 with the probability ``probability``, else 0."""
        self._terms.append(Drawn(math.prod(shape), probability, divided=False))
        return Row(shape, -len(self._terms))

    def divided(self, row: Row, by: float) -> Row | None:
        """Drawn numbers, divided as dropout divides them; None if that is not what is done."""
        term = self.term_of(row.value)
        if not isinstance(term, Drawn) or term.divided or by != term.probability:
            return None
        self._terms[-1 - row.value] = replace(term, divided=True)
        return row

    def emit(self, operation: str, *inputs: Row, p: float = 0.0, q: float = 0.0) -> Row:
        """A step whose result has the shape of the first input."""
        shape = inputs[0].shape
        step = Step(operation, tuple(row.value for row in inputs), math.prod(shape), (float(p), float(q)))
        self._steps.append(step)
        return Row(shape, len(self._steps) - 1)

    def spread(self, row: Row, shape: tuple[int, ...]) -> Row:
        """A row whose dimensions of size 1 are spread to ``shape``, which has as many dimensions."""
        result = row
        for at, size in enumerate(shape):
            if result.shape[at] == size:
                continue
            # All of one run of dimensions at once; the numbers behind them are repeated as a block.
            end = next((d for d in range(at, len(shape)) if result.shape[d] != 1), len(shape))
            wider = (*result.shape[:at], *shape[at:end], *result.shape[end:])
            result = self._moved(result, "spread", wider, math.prod(result.shape[end:]))
        return result

    def collected(self, row: Row, dims: set[int], operation: str = "collect") -> Row:
        """The sums of a row over dimensions, or its largest numbers, each of which has size 1 then."""
        result, end = row, len(row.shape)
        while dims:
            # The last run of dimensions.
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
        """The rows of nodes or edges, with signs, that a value is the sum of; None if it is no such sum."""
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
        """Columns of an operand, from one on, as a row of this shape."""
        term = self.term_of(row.value)
        width = math.prod(shape)
        if not isinstance(term, Columns):
            raise NotCompiled("takes columns of what is no operand")
        if not width:
            raise NotCompiled("has rows without columns")
        return Row(shape, self.operand(Columns(term.end, term.at, term.start + start, width)))
