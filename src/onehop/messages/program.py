"""A message as a program over the rows of an edge.

Values are numbered: first the operands, then the results of the steps. A value has a row of fixed width for
every edge. A program does not depend on a graph, a dtype or the number of edges.
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
"""The operations of steps, in the order of onehop::MessageOp in csrc/include/onehop/message.hpp."""

OF_ROWS = ("row_sum", "row_max")
"""Steps that reduce a value over the edges of each destination; every edge gets its destination's result."""

APART = "detach"
"""The step that returns its input unchanged, but passes on no gradient."""

WITHOUT_GRADIENT = (APART, "row_max", "largest")
"""Steps that pass on no gradient; a maximum only shifts the scores of a softmax, which changes nothing."""

EDGES = "edges"
"""The name, among the reductions, for the messages themselves, one for each edge."""

REDUCTIONS = ("sum", "mean", "squares", "max", "min", EDGES)
"""The reductions of messages; "squares" is the mean of their squares, "edges" does not reduce them."""


class End(enum.Enum):
    """The origin of the row that an operand has for an edge."""

    SOURCE = "j"
    """The row comes from the sending node."""
    TARGET = "i"
    """The row comes from the receiving node."""
    EDGE = "e"
    """The row comes from the edge itself."""
    FIXED = "fixed"
    """The row is the same for all edges."""
    MATRIX = "matrix"
    """The operand is not a row but a matrix, which multiplies rows."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand.

    Attributes:
        end: The origin of its rows.
        width: The number of entries of a row, or of the whole matrix.
    """

    end: End
    width: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        operation: One of :data:`OPERATIONS` or :data:`OF_ROWS`, or :data:`APART`.
        inputs: The numbers of its input values; a matrix comes second.
        width: The number of entries of a row of its result.
        numbers: The constants p and q of the operation; 0 if it has none.
    """

    operation: str
    inputs: tuple[int, ...]
    width: int
    numbers: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Program:
    """The program of a message.

    Attributes:
        operands: The operands that it reads.
        steps: The steps, in order.
        result: The number of the value that is the message.
    """

    operands: tuple[Operand, ...]
    steps: tuple[Step, ...]
    result: int

    def width_of(self, value: int) -> int:
        """Return the number of entries of a row of a value."""
        count = len(self.operands)
        return self.operands[value].width if value < count else self.steps[value - count].width

    @property
    def width(self) -> int:
        """The number of entries of a message."""
        return self.width_of(self.result)

    @property
    def of_rows(self) -> tuple[int, ...]:
        """The numbers of the values that are reductions over the edges of a destination."""
        count = len(self.operands)
        return tuple(count + number for number, s in enumerate(self.steps) if s.operation in OF_ROWS)

    def text(self, names: Sequence[str]) -> str:
        """Return the program as text, with one value per line and these names of the operands."""
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
