"""The sweeps that run a program forward and backward.

The backward pass recomputes the message and runs the derivatives of its steps in reverse order. A sweep over
the graph adds up gradients of destinations and of tensors shared by all edges, and writes gradients of edges.
A sweep over the transposed graph adds up gradients of sources, either from gradients that the first sweep has
written for each edge, or by computing them again. All of these are programs too; the gradients of the
destination's row, or of the edge's message, are further operands. The derivative of a sum over a row is a sum
over a row, which needs another sweep before these.
"""

import functools
import math
from dataclasses import replace

from onehop.messages.program import EDGES, OF_ROWS, WITHOUT_GRADIENT, End, Operand, Program, Step
from onehop.messages.sweeps import Input, Line, Result, Sink, Sweep

_SINKS = {
    "sum": Sink.ROW_SUM,
    "mean": Sink.ROW_SUM,
    "squares": Sink.ROW_SUM,
    "max": Sink.ROW_MAX,
    "min": Sink.ROW_MIN,
    EDGES: Sink.EDGE,
}

EXTREMA = ("max", "min")
"""Reductions whose gradient goes only to the messages that equal the result."""


@functools.lru_cache(maxsize=256)
def forward_sweeps(program: Program, reductions: tuple[str, ...]) -> tuple[Sweep, ...]:
    """Return the sweeps that reduce the messages of each row; the last sweep does all reductions at once.

    For "mean", the sweep adds up messages; for "squares", it adds up their squares.
    """
    count, message = len(program.operands), program.result
    steps = list(program.steps)
    values = []
    for reduce in reductions:
        values.append(message)
        if reduce == "squares":
            steps.append(Step("multiply", (message, message), program.width))
            values[-1] = count + len(steps) - 1
    results = [
        Result(_SINKS[reduce], value, 0, program.width, -1)
        for reduce, value in zip(reductions, values, strict=True)
    ]
    line = Line(program.operands, (Input(at) for at in range(count)), steps, count)
    return line.cut({False: results})


@functools.lru_cache(maxsize=256)
def ties_sweep(program: Program, reductions: tuple[str, ...]) -> Sweep:
    """Return the sweep that counts, for each row, the messages that equal each of its extrema."""
    reverse = _Reverse(program, (), reductions)
    results = [Result(Sink.ROW_SUM, value, 0, program.width, -1) for value in reverse.reaches]
    (sweep,) = reverse.line().cut({False: results})
    return sweep


@functools.lru_cache(maxsize=256)
def backward_sweeps(
    program: Program, wanted: tuple[bool, ...], reductions: tuple[str, ...]
) -> tuple[Sweep, ...]:
    """Return the sweeps that compute the gradients of the operands that ``wanted`` selects, in order.

    If messages are kept, a gradient of sources that no operand of edges has is also written for each edge:
    this takes no more memory than the messages, and nothing is computed again.

    If several steps multiply by the same matrix, the matrix has several results, which have to be added up.
    The incoming gradients must be scaled before: for "mean" and "squares" divided by the number of edges of
    each row, for "squares" also doubled; for "max" and "min" divided by the number of ties.
    """
    reverse = _Reverse(program, wanted, reductions)
    found: dict[bool, list[Result]] = {False: [], True: []}
    written = {
        reverse.gradient[at]: at
        for at, operand in enumerate(program.operands)
        if operand.end is End.EDGE and wanted[at] and at in reverse.gradient
    }
    collected: list[Sweep] = []
    tensor = reverse.tensors
    for at, operand in enumerate(program.operands):
        if not wanted[at]:
            continue
        if operand.end is End.MATRIX:
            found[False] += [
                Result(Sink.OUTER, a, g, operand.width, at) for a, g in reverse.outer.get(at, [])
            ]
        elif operand.end is End.SOURCE and reverse.gradient.get(at) in written:
            collected.append(_collected(operand, at, Input(written[reverse.gradient[at]], gradient=True)))
        elif operand.end is End.SOURCE and at in reverse.gradient and EDGES in reductions:
            found[False].append(Result(Sink.EDGE, reverse.gradient[at], 0, operand.width, tensor))
            collected.append(_collected(operand, at, Input(tensor)))
            tensor += 1
        elif at in reverse.gradient:
            sink = {End.EDGE: Sink.EDGE, End.FIXED: Sink.TOTAL}.get(operand.end, Sink.ROW_SUM)
            result = Result(sink, reverse.gradient[at], 0, operand.width, at)
            found[operand.end is End.SOURCE].append(result)
    return (*reverse.line().cut(found), *collected)


def _collected(operand: Operand, at: int, written: Input) -> Sweep:
    """Return the sweep that adds up, for each source, the gradients that were written for its edges."""
    return Sweep(
        (Operand(End.EDGE, operand.width),),
        (written,),
        (),
        (Result(Sink.ROW_SUM, 0, 0, operand.width, at),),
        transposed=True,
    )


class _Reverse:
    """The steps of a program and of its derivative.

    The operands are the program's operands, then the tensors that :class:`.Input` numbers, then transposed
    matrices.

    Attributes:
        steps: All steps except the program's own steps over rows, whose results are operands here.
        gradient: For each value, the value that is its gradient.
        outer: For each matrix, pairs of values whose outer products add up to its gradient.
        tensors: The first tensor number that is not used by an operand or a step over rows.
        reaches: For every extremum among the reductions, the value that is 1 if a message equals it, else 0.
    """

    def __init__(self, program: Program, wanted: tuple[bool, ...], reductions: tuple[str, ...]) -> None:
        own = len(program.operands)
        extrema = [reduce for reduce in reductions if reduce in EXTREMA]
        given = [Operand(End.TARGET, program.width_of(value)) for value in program.of_rows]
        ends = [
            *(End.EDGE if reduce == EDGES else End.TARGET for reduce in reductions),
            *(End.TARGET for _ in extrema),
        ]
        given += [Operand(end, program.width) for end in ends]
        matrices = [at for at, operand in enumerate(program.operands) if operand.end is End.MATRIX]
        operands = [*program.operands, *given]
        self._first = len(operands)
        self._inputs = [*(Input(at) for at in range(self._first)), *(Input(at, True) for at in matrices)]
        self._turned = {at: self._first + number for number, at in enumerate(matrices)}
        self._operands = [*operands, *(program.operands[at] for at in matrices)]
        self._widths = [operand.width for operand in self._operands]
        self.steps: list[Step] = []
        self._known: dict[Step, int] = {}
        self.gradient: dict[int, int] = {}
        self.outer: dict[int, list[tuple[int, int]]] = {}
        needs = [*wanted, *[False] * (len(self._operands) - len(wanted))]
        moved = list(range(own))
        # The numbers of the program's values here, each with its step in these numbers.
        steps: list[tuple[int, Step]] = []
        for step in program.steps:
            step = replace(step, inputs=tuple(moved[value] for value in step.inputs))
            if step.operation in OF_ROWS:
                moved.append(own + sum(s.operation in OF_ROWS for _, s in steps))
            else:
                moved.append(self._append(step))
            if moved[-1] == len(needs):
                needs.append(False)
            through = step.operation not in WITHOUT_GRADIENT
            needs[moved[-1]] = through and any(needs[value] for value in step.inputs)
            steps.append((moved[-1], step))
        self._needs = needs
        self.reaches: list[int] = []
        self._begin(moved[program.result], reductions, own + len(program.of_rows))
        for value, step in reversed(steps):
            if needs[value] and value in self.gradient:
                self._go_back(step, value, self.gradient[value])
        self.tensors = self._first + sum(step.operation in OF_ROWS for step in self.steps)

    def line(self) -> Line:
        """Return all steps, to be divided into sweeps."""
        return Line(self._operands, self._inputs, self.steps, self._first)

    def _begin(self, message: int, reductions: tuple[str, ...], first: int) -> None:
        """Sets the gradient of the message; the operands from ``first`` on are the reductions' gradients."""
        total = -1
        for number, reduce in enumerate(reductions):
            pulled = first + number
            if reduce == "squares":
                pulled = self._emit("multiply", message, pulled)
            elif reduce in EXTREMA:
                extremum = first + len(reductions) + len(self.reaches)
                self.reaches.append(self._emit("equal", message, extremum))
                pulled = self._emit("multiply", self.reaches[-1], pulled)
            total = pulled if total < 0 else self._emit("add", total, pulled)
        self.gradient[message] = total

    def _append(self, step: Step) -> int:
        # A step of the program is added even if an equal one exists, so that the numbers agree with the
        # program's.
        self.steps.append(step)
        self._widths.append(step.width)
        self._known.setdefault(step, len(self._widths) - 1)
        return len(self._widths) - 1

    def _emit(self, operation: str, *inputs: int, width: int = 0, p: float = 0.0, q: float = 0.0) -> int:
        step = Step(operation, inputs, width or self._widths[inputs[0]], (p, q))
        found = self._known.get(step)
        return self._append(step) if found is None else found

    def _add(self, value: int, gradient: int) -> None:
        if not self._needs[value]:
            return
        before = self.gradient.get(value)
        self.gradient[value] = gradient if before is None else self._emit("add", before, gradient)

    def _go_back(self, step: Step, y: int, g: int) -> None:
        """Adds what the gradient ``g`` of a step's result ``y`` contributes to its inputs' gradients."""
        a, *others = step.inputs
        b = others[0] if others else a
        p, q = step.numbers
        emit, needs = self._emit, self._needs
        name = step.operation
        if name == "product":
            if needs[b]:
                self.outer.setdefault(b, []).append((a, g))
            if needs[a]:
                self._add(a, emit("product", g, self._turned[b], width=self._widths[a]))
        elif name == "row_sum":
            self._add(a, emit("row_sum", g))
        elif name in ("add", "subtract"):
            self._add(a, g)
            if needs[b]:
                self._add(b, g if name == "add" else emit("negate", g))
        elif name == "multiply":
            if needs[a]:
                self._add(a, emit("multiply", g, b))
            if needs[b]:
                self._add(b, emit("multiply", g, a))
        elif name == "divide":
            self._add(a, emit("divide", g, b))
            if needs[b]:
                # The order is torch's, so that the gradient of 0 divided by a tiny number is 0.
                self._add(b, emit("negate", emit("multiply", g, emit("divide", y, b))))
        elif name in ("spread", "collect"):
            other = "collect" if name == "spread" else "spread"
            self._add(a, emit(other, g, width=self._widths[a], p=p))
        elif name == "shift":
            self._add(a, g)
        elif name == "scale":
            self._add(a, emit("scale", g, p=p))
        elif name == "invert":
            self._add(a, emit("negate", emit("divide", emit("multiply", g, y), a)))
        elif name == "negate":
            self._add(a, emit("negate", g))
        elif name == "exp":
            self._add(a, emit("multiply", g, y))
        elif name == "erf":
            bell = emit("exp", emit("negate", emit("multiply", a, a)))
            self._add(a, emit("multiply", g, emit("scale", bell, p=2 / math.sqrt(math.pi))))
        elif name == "log":
            self._add(a, emit("divide", g, a))
        elif name == "sqrt":
            self._add(a, emit("divide", emit("scale", g, p=0.5), y))
        else:
            of = y if name in ("relu", "sigmoid", "tanh") else a
            self._add(a, emit(f"{name}_grad", g, of, p=p, q=q))
