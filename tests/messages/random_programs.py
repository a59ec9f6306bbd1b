"""Random programs of messages, and operands for them."""

import random

import torch
from torch import Tensor

from onehop.messages import End, Operand, Program, Step

_ANY = ("negate", "relu", "sigmoid", "tanh", "erf", "absolute")
_POSITIVE = ("log", "sqrt")
_WITH_NUMBERS = {
    "shift": (0.3, 0.0),
    "scale": (-1.7, 0.0),
    "leaky_relu": (0.2, 0.0),
    "softplus": (1.5, 2.0),
    "elu": (0.7, 0.0),
    "clamp": (-0.5, 0.8),
}


class _Making:
    def __init__(self, choice: random.Random, width: int) -> None:
        self.choice = choice
        self.width = width
        ends = [
            End.SOURCE,
            *choice.choices([End.SOURCE, End.TARGET, End.EDGE, End.FIXED], k=choice.randint(0, 3)),
        ]
        # What a product turns into a row of the width.
        self.inner = choice.choice([1, 3, 16])
        self.heads = choice.choice([d for d in range(1, width + 1) if width % d == 0])
        self.operands = [Operand(end, choice.choice([width, width, self.heads])) for end in ends]
        if choice.random() < 0.4:
            self.operands.append(Operand(End.EDGE, self.inner))
            self.operands.append(Operand(End.MATRIX, self.inner * width))
        self.steps: list[Step] = []

    def emit(self, operation: str, *inputs: int, width: int = 0, p: float = 0.0, q: float = 0.0) -> int:
        self.steps.append(Step(operation, inputs, width or self.width, (p, q)))
        return len(self.operands) + len(self.steps) - 1

    def block(self, width: int) -> float:
        """How many numbers of so many go together; 0 means one."""
        return float(self.choice.choice([0, *(d for d in range(1, width + 1) if width % d == 0)]))

    def narrow(self, value: int) -> int:
        """Numbers between 0 and 1, or so: results stay of moderate size."""
        return self.emit("sigmoid", value)

    def softmax(self, value: int) -> int:
        """Over the edges of each destination."""
        largest = self.emit("row_max", value)
        raised = self.emit("exp", self.emit("subtract", value, largest))
        return self.emit("divide", raised, self.emit("shift", self.emit("row_sum", raised), p=1e-16))

    def program(self) -> Program:
        rows = []
        for at, operand in enumerate(self.operands):
            if operand.end is End.MATRIX:
                rows[-1:] = [self.emit("product", at - 1, at)]
            elif operand.width == self.width or (operand.end is End.EDGE and at + 1 < len(self.operands)
                                                 and self.operands[at + 1].end is End.MATRIX):  # fmt: skip
                rows.append(at)
            else:
                rows.append(self.emit("spread", at, p=self.block(operand.width)))
        read = len(rows)
        for _ in range(self.choice.randint(0, 7)):
            rows.append(self._step(rows))
        result = rows[-1]
        for number, value in enumerate(rows[:-1]):
            # Every operand counts.
            if number < read or self.choice.random() < 0.7:
                result = self.emit(self.choice.choice(["add", "subtract", "multiply"]), result, value)
        if self.choice.random() < 0.2:
            result = self.emit("collect", result, width=self.heads, p=self.block(self.heads))
        return Program(tuple(self.operands), tuple(self.steps), result)

    def _step(self, rows: list[int]) -> int:
        a, b = self.choice.choice(rows), self.choice.choice(rows)
        kind = self.choice.randrange(8)
        if kind == 0:
            return self.emit(self.choice.choice(["add", "subtract", "multiply"]), a, b)
        if kind == 1:
            return self.emit("divide", a, self.emit("shift", self.narrow(b), p=0.5))
        if kind == 2:
            return self.emit(self.choice.choice(_POSITIVE), self.emit("shift", self.narrow(a), p=0.1))
        if kind == 3:
            safe = self.emit("shift", self.narrow(a), p=0.5)
            return self.emit("invert", safe, p=1.5) if b % 2 else self.emit("exp", self.emit("negate", safe))
        if kind == 4:
            name = self.choice.choice(list(_WITH_NUMBERS))
            return self.emit(name, a, p=_WITH_NUMBERS[name][0], q=_WITH_NUMBERS[name][1])
        if kind == 6:
            return self.softmax(a)
        if kind == 7:
            return self.emit(self.choice.choice(["row_sum", "row_max", "detach"]), self.narrow(a))
        if self.heads > 1 and b % 2:
            fold = self.choice.choice(["collect", "largest"])
            collected = self.emit(fold, a, width=self.heads, p=self.block(self.heads))
            return self.emit("spread", collected, p=self.block(self.heads))
        return self.emit(self.choice.choice(_ANY), a)


def random_program(seed: int, width: int) -> Program:
    """A program whose message has rows of ``width`` numbers, or of a divisor of it."""
    return _Making(random.Random(seed), width).program()


def operands_for(
    program: Program,
    num_src: int,
    num_dst: int,
    edges: int,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> list[Tensor]:
    """Random tensors for a program's operands."""
    generator = torch.Generator().manual_seed(seed)
    heights = {End.SOURCE: num_src, End.TARGET: num_dst, End.EDGE: edges}
    found = []
    for at, operand in enumerate(program.operands):
        shape: tuple[int, ...] = (operand.width,)
        if operand.end is End.MATRIX:
            taker = next(s for s in program.steps if s.inputs[1:] == (at,) and s.operation == "product")
            shape = (program.width_of(taker.inputs[0]), taker.width)
        elif operand.end is not End.FIXED:
            shape = (heights[operand.end], operand.width)
        found.append(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype))
    return found
