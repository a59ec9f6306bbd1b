"""A message as a program over the rows of an edge.

Values are numbered: the operands first, then the results of the steps. A value has, for every edge, a row of
so many numbers. A program says nothing about a graph, a dtype or the number of edges.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

OPERATIONS = (
    "spread", "collect", "largest", "product", "add", "subtract", "multiply", "divide", "shift", "scale",
    "invert", "negate", "absolute", "relu", "leaky_relu", "sigmoid", "tanh", "erf", "softplus", "elu", "exp",
    "log", "sqrt", "clamp", "absolute_grad", "relu_grad", "leaky_relu_grad", "sigmoid_grad", "tanh_grad",
    "softplus_grad", "elu_grad", "clamp_grad", "equal",
)  # fmt: skip
"""What a step may do, as onehop::MessageOp in csrc/include/onehop/message.hpp says, and in its order."""

OF_ROWS = ("row_sum", "row_max")
"""Steps that reduce a value over the edges of each destination; every edge gets what its destination has."""

APART = "detach"
"""The step that gives the same numbers, through which no gradient passes."""

WITHOUT_GRADIENT = (APART, "row_max", "largest")
"""Steps through which no gradient passes: the largest is what softmax subtracts, which changes nothing."""

EDGES = "edges"
"""The name, among those of reductions, of the messages themselves, one for each edge."""

REDUCTIONS = ("sum", "mean", "squares", "max", "min", EDGES)
"""What messages are reduced by; "squares" is the mean of their squares, "edges" leaves them as they are."""


class End(enum.Enum):
    """The origin of an edge's row of an operand."""

    SOURCE = "j"
    """From the node that sends."""
    TARGET = "i"
    """From the node that receives."""
    EDGE = "e"
    """From the edge itself."""
    FIXED = "fixed"
    """The same row for all edges."""
    MATRIX = "matrix"
    """No row: a matrix that rows are multiplied by."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand.

    Attributes:
        end: Where its rows come from.
        width: Numbers of a row; of a matrix, all its numbers.
    """

    end: End
    width: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        operation: One of :data:`OPERATIONS` or :data:`OF_ROWS`, or :data:`APART`.
        inputs: The values that it takes; a matrix comes second.
        width: Numbers of a row of its result.
        numbers: p and q of the operation; 0 where it has none.
    """

    operation: str
    inputs: tuple[int, ...]
    width: int
    numbers: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Program:
    """A message.

    Attributes:
        operands: What it reads.
        steps: What it does.
        result: The value that is the message.
    """

    operands: tuple[Operand, ...]
    steps: tuple[Step, ...]
    result: int

    def width_of(self, value: int) -> int:
        """Numbers of a row of a value."""
        count = len(self.operands)
        return self.operands[value].width if value < count else self.steps[value - count].width

    @property
    def width(self) -> int:
        """Numbers of a message."""
        return self.width_of(self.result)

    @property
    def of_rows(self) -> tuple[int, ...]:
        """The values that are reductions over the edges of a destination."""
        count = len(self.operands)
        return tuple(count + number for number, s in enumerate(self.steps) if s.operation in OF_ROWS)

    def text(self, names: Sequence[str]) -> str:
        """The program, one value a line, the operands by these names."""
        names = list(names)
        lines = []
        for name, operand in zip(names, self.operands, strict=True):
            what = "a matrix of" if operand.end is End.MATRIX else "rows of"
            lines.append(f"{name}: {what} {operand.width}")
        for number, step in enumerate(self.steps):
            names.append(f"v{number}")
            numbers = [f"{p:g}" for p in step.numbers if p]
            arguments = ", ".join([*(names[value] for value in step.inputs), *numbers])
            lines.append(f"v{number} = {step.operation}({arguments}): rows of {step.width}")
        return "\n".join([*lines, f"message: {names[self.result]}"])
