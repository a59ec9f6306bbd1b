"""Sweeps over the edges, and the division of steps into sweeps.

A step that needs a reduction over a whole row runs in a later sweep than the reduction. Each sweep recomputes
the earlier steps that it needs, so that nothing is stored for edges.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace

from onehop.messages.program import APART, OF_ROWS, End, Operand, Step


class Sink(enum.Enum):
    """The use of a value; the numbers are those of onehop::Sink in csrc/include/onehop/message.hpp."""

    ROW_SUM = 0
    """The value is added up over each row of the graph."""
    EDGE = 1
    """The value is written for each edge."""
    TOTAL = 2
    """The value is added up over all edges."""
    OUTER = 3
    """The outer products with another value are added up over all edges."""
    ROW_MAX = 4
    """The maximum over each row of the graph is taken; NaN wins."""
    ROW_MIN = 5
    """The minimum over each row of the graph is taken; NaN wins."""


_SINKS = {"row_sum": Sink.ROW_SUM, "row_max": Sink.ROW_MAX}


@dataclass(frozen=True, slots=True)
class Result:
    """A result of a sweep.

    Attributes:
        sink: How the value is used.
        value: The number of the value.
        other: The second value of an outer product; 0 otherwise.
        width: The number of entries of the result, for each row, for each edge, or in total.
        of: For a step over rows, the number that its tensor gets; for a gradient, the operand of the program;
            for a reduction of messages, -1.
    """

    sink: Sink
    value: int
    other: int
    width: int
    of: int


@dataclass(frozen=True, slots=True)
class Input:
    """The tensor that an operand of a sweep reads.

    Attributes:
        at: The tensor's number. The operands of the program come first; then the results of its steps over
            rows; in a backward pass, the gradients of its reductions, and the maximal and minimal messages;
            last, the results of the backward pass's own steps over rows.
        turned: Whether the operand is the transposed matrix.
        gradient: Whether the operand is the tensor's gradient, which an earlier sweep has written.
    """

    at: int
    turned: bool = False
    gradient: bool = False


@dataclass(frozen=True, slots=True)
class Sweep:
    """One pass over all edges.

    Attributes:
        operands: The operands that it reads.
        inputs: The tensors of the operands.
        steps: The steps, in order.
        results: The results.
        transposed: Whether rows are sources.
    """

    operands: tuple[Operand, ...]
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    results: tuple[Result, ...]
    transposed: bool


class Line:
    """A sequence of steps, including steps over rows, that can be divided into sweeps.

    Args:
        operands: The operands that the steps read.
        inputs: The tensors of the operands.
        steps: The steps.
        first: The number that the tensor of the first step over rows gets.
    """

    def __init__(
        self, operands: Iterable[Operand], inputs: Iterable[Input], steps: Iterable[Step], first: int
    ) -> None:
        self._operands = tuple(operands)
        self._inputs = tuple(inputs)
        self._steps = tuple(steps)
        own = len(self._operands)
        self._own = own
        # For steps over rows, the number of the tensor; for values, the first sweep that can compute them.
        self._tensors: dict[int, int] = {}
        self._level = [0] * own
        for number, step in enumerate(self._steps):
            of_rows = step.operation in OF_ROWS
            if of_rows:
                self._tensors[own + number] = first + len(self._tensors)
            self._level.append(max(self._level[value] for value in step.inputs) + of_rows)

    def cut(self, results: dict[bool, list[Result]]) -> tuple[Sweep, ...]:
        """Return the sweeps that compute these results, in order; the keys are whether rows are sources."""
        finals = [self._sweep(found, transposed) for transposed, found in results.items() if found]
        wanted = {value for found in results.values() for result in found for value in _values_of(result)}
        used = self._used(wanted, through_rows=True)
        levels: dict[int, list[Result]] = {}
        for value, tensor in self._tensors.items():
            if value in used:
                step = self._steps[value - self._own]
                result = Result(_SINKS[step.operation], step.inputs[0], 0, step.width, tensor)
                levels.setdefault(self._level[value], []).append(result)
        return (*(self._sweep(levels[level], False) for level in sorted(levels)), *finals)

    def _used(self, wanted: set[int], through_rows: bool) -> set[int]:
        used = set(wanted)
        for number in reversed(range(len(self._steps))):
            value = self._own + number
            if value in used and (through_rows or value not in self._tensors):
                used.update(self._steps[number].inputs)
        return used

    def _sweep(self, results: list[Result], transposed: bool) -> Sweep:
        """Return a sweep with only the needed steps; earlier reductions over rows become operands."""
        same = self._same()
        used = self._used({same[v] for result in results for v in _values_of(result)}, through_rows=False)
        kept = [v for v in sorted(used) if same[v] == v]
        reads = [v for v in kept if v < self._own]
        rows = [v for v in kept if v in self._tensors]
        computed = [v for v in kept if v >= self._own and v not in self._tensors]
        places = {value: place for place, value in enumerate([*reads, *rows, *computed])}
        steps = (self._steps[v - self._own] for v in computed)
        widths = [self._steps[v - self._own].width for v in rows]
        return Sweep(
            (*(self._operands[v] for v in reads), *(Operand(End.TARGET, width) for width in widths)),
            (*(self._inputs[v] for v in reads), *(Input(self._tensors[v]) for v in rows)),
            tuple(replace(s, inputs=tuple(places[same[v]] for v in s.inputs)) for s in steps),
            tuple(
                replace(
                    r,
                    value=places[same[r.value]],
                    other=places[same[r.other]] if r.sink is Sink.OUTER else 0,
                )
                for r in results
            ),
            transposed,
        )

    def _same(self) -> list[int]:
        """Return, for every value, the value of which it is a detached copy, or itself."""
        same = list(range(self._own))
        for number, step in enumerate(self._steps):
            same.append(same[step.inputs[0]] if step.operation == APART else self._own + number)
        return same


def _values_of(result: Result) -> tuple[int, ...]:
    return (result.value, result.other) if result.sink is Sink.OUTER else (result.value,)
