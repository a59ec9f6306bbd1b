"""Sweeps over the edges: a program forward, and its reverse.

Backward recomputes the message and runs its steps the other way. One sweep over the graph adds up what
belongs to destinations and to all edges, and writes what belongs to each edge; one over the transposed graph
adds up what belongs to sources. Both are programs again, with the gradient of the destination's row as one
more operand.
"""

import enum
import functools
from dataclasses import dataclass, replace

from onehop.messages.program import End, Operand, Program, Step


class Sink(enum.Enum):
    """Destination of a value; the numbers are those of onehop::Sink in csrc/include/onehop/message.hpp."""

    ROW_SUM = 0
    """It is added up over each row of the graph."""
    EDGE = 1
    """It is written for each edge."""
    TOTAL = 2
    """It is added up over all edges."""
    OUTER = 3
    """Its products with each number of another value are added up over all edges."""
    ROW_MAX = 4
    """The largest over each row of the graph is taken; NaN wins."""
    ROW_MIN = 5
    """Likewise, the smallest."""


@dataclass(frozen=True, slots=True)
class Result:
    """A result of a sweep.

    Attributes:
        sink: What becomes of the value.
        value: The value.
        other: The second value of an outer product; 0 otherwise.
        width: Numbers of the result for a row, an edge, or for all.
        of: The operand of the program that it is a gradient of; -1 for the message itself.
    """

    sink: Sink
    value: int
    other: int
    width: int
    of: int


@dataclass(frozen=True, slots=True)
class Input:
    """The tensor behind an operand of a sweep.

    Attributes:
        at: Which operand of the program; the gradient counts as the one after the last, and the largest or
            smallest messages as the one after that.
        turned: Whether it is the transposed matrix.
    """

    at: int
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Sweep:
    """A run over all edges.

    Attributes:
        operands: What it reads.
        inputs: The tensors behind these.
        steps: What it does.
        results: What comes out.
        transposed: Whether rows are sources.
    """

    operands: tuple[Operand, ...]
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    results: tuple[Result, ...]
    transposed: bool


_SINKS = {"sum": Sink.ROW_SUM, "mean": Sink.ROW_SUM, "max": Sink.ROW_MAX, "min": Sink.ROW_MIN}


@functools.lru_cache(maxsize=256)
def forward_sweep(program: Program, reduce: str) -> Sweep:
    """The sweep that reduces the messages of each row; for "mean", it adds them up."""
    inputs = tuple(Input(at) for at in range(len(program.operands)))
    result = Result(_SINKS[reduce], program.result, 0, program.width, -1)
    return _needed(Sweep(program.operands, inputs, program.steps, (result,), False))


@functools.lru_cache(maxsize=256)
def ties_sweep(program: Program) -> Sweep:
    """The sweep that counts, for each row, the messages that reach its largest or smallest."""
    reverse = _Reverse(program, (), extremal=True)
    operands, inputs = _operands_of(program)
    result = Result(Sink.ROW_SUM, reverse.reaches, 0, program.width, -1)
    return _needed(Sweep(operands, inputs, tuple(reverse.steps), (result,), False))


def _operands_of(program: Program) -> tuple[tuple[Operand, ...], tuple[Input, ...]]:
    """Operands that sweeps of a backward pass may read, and the tensors behind these."""
    count = len(program.operands)
    matrices = [at for at, operand in enumerate(program.operands) if operand.end is End.MATRIX]
    of_rows = Operand(End.TARGET, program.width)
    operands = (*program.operands, of_rows, of_rows, *(program.operands[at] for at in matrices))
    return operands, (*(Input(at) for at in range(count + 2)), *(Input(at, turned=True) for at in matrices))


@functools.lru_cache(maxsize=256)
def backward_sweeps(program: Program, wanted: tuple[bool, ...], reduce: str) -> tuple[Sweep, ...]:
    """The sweeps that give the gradients of the operands that are wanted; one, two or none.

    A matrix that several steps multiply by has several results, to be added up. The gradient that they read
    is, for "mean", divided by the number of edges of each row; for "max" and "min", by the number of ties.
    """
    reverse = _Reverse(program, wanted, extremal=reduce in ("max", "min"))
    operands, inputs = _operands_of(program)
    found: dict[bool, list[Result]] = {False: [], True: []}
    for at, operand in enumerate(program.operands):
        if not wanted[at]:
            continue
        if operand.end is End.MATRIX:
            found[False] += [
                Result(Sink.OUTER, a, g, operand.width, at) for a, g in reverse.outer.get(at, [])
            ]
        elif at in reverse.gradient:
            sink = {End.EDGE: Sink.EDGE, End.FIXED: Sink.TOTAL}.get(operand.end, Sink.ROW_SUM)
            result = Result(sink, reverse.gradient[at], 0, operand.width, at)
            found[operand.end is End.SOURCE].append(result)
    return tuple(
        _needed(Sweep(operands, inputs, tuple(reverse.steps), tuple(results), transposed))
        for transposed, results in found.items()
        if results
    )


class _Reverse:
    """The steps of a program and those of its reverse.

    Attributes:
        steps: All of them; the operands of the program come before, then the gradient, the extremum, and the
            transposed matrices.
        gradient: For values, the value that is their gradient.
        outer: For matrices, pairs of values whose outer product is their gradient.
        reaches: 1 where a message is the extremum of its row, 0 elsewhere; -1 without extrema.
    """

    def __init__(self, program: Program, wanted: tuple[bool, ...], extremal: bool) -> None:
        own = len(program.operands)
        operands, _ = _operands_of(program)
        matrices = [at for at, operand in enumerate(program.operands) if operand.end is End.MATRIX]
        self._turned = {at: own + 2 + number for number, at in enumerate(matrices)}
        self._shift = len(operands) - own
        self._own = own
        self._widths = [operand.width for operand in operands]
        self.steps: list[Step] = []
        self._known: dict[Step, int] = {}
        self.gradient: dict[int, int] = {}
        self.outer: dict[int, list[tuple[int, int]]] = {}
        needs = list(wanted) + [False] * (len(operands) - len(wanted))
        for step in program.steps:
            inputs = tuple(self._moved(value) for value in step.inputs)
            self._append(replace(step, inputs=inputs))
            needs.append(any(needs[value] for value in inputs))
        result, pulled = self._moved(program.result), own
        self.reaches = -1
        if extremal:
            self.reaches = self._emit("equal", result, own + 1)
            pulled = self._emit("multiply", self.reaches, own)
        self.gradient[result] = pulled
        for number in reversed(range(len(program.steps))):
            value = own + self._shift + number
            if needs[value] and value in self.gradient:
                self._go_back(self.steps[number], value, self.gradient[value], needs)

    def _moved(self, value: int) -> int:
        return value if value < self._own else value + self._shift

    def _append(self, step: Step) -> int:
        # A step of the program stays, even if it is there already: they are numbered alike.
        self.steps.append(step)
        self._widths.append(step.width)
        self._known.setdefault(step, len(self._widths) - 1)
        return len(self._widths) - 1

    def _emit(self, operation: str, *inputs: int, width: int = 0, p: float = 0.0, q: float = 0.0) -> int:
        step = Step(operation, inputs, width or self._widths[inputs[0]], (p, q))
        found = self._known.get(step)
        return self._append(step) if found is None else found

    def _add(self, value: int, gradient: int, needs: list[bool]) -> None:
        if not needs[value]:
            return
        before = self.gradient.get(value)
        self.gradient[value] = gradient if before is None else self._emit("add", before, gradient)

    def _go_back(self, step: Step, y: int, g: int, needs: list[bool]) -> None:
        """Adds what the gradient ``g`` of a step's result ``y`` makes of those of its inputs."""
        a, *others = step.inputs
        b = others[0] if others else a
        p, q = step.numbers
        emit = self._emit
        name = step.operation
        if name == "product":
            if needs[b]:
                self.outer.setdefault(b, []).append((a, g))
            if needs[a]:
                self._add(a, emit("product", g, self._turned[b], width=self._widths[a]), needs)
        elif name in ("add", "subtract"):
            self._add(a, g, needs)
            if needs[b]:
                self._add(b, g if name == "add" else emit("negate", g), needs)
        elif name == "multiply":
            if needs[a]:
                self._add(a, emit("multiply", g, b), needs)
            if needs[b]:
                self._add(b, emit("multiply", g, a), needs)
        elif name == "divide":
            over = emit("divide", g, b)
            self._add(a, over, needs)
            if needs[b]:
                self._add(b, emit("negate", emit("multiply", over, y)), needs)
        elif name in ("spread", "collect"):
            other = "collect" if name == "spread" else "spread"
            self._add(a, emit(other, g, width=self._widths[a]), needs)
        elif name == "shift":
            self._add(a, g, needs)
        elif name == "scale":
            self._add(a, emit("scale", g, p=p), needs)
        elif name == "invert":
            self._add(a, emit("negate", emit("divide", emit("multiply", g, y), a)), needs)
        elif name == "negate":
            self._add(a, emit("negate", g), needs)
        elif name == "exp":
            self._add(a, emit("multiply", g, y), needs)
        elif name == "log":
            self._add(a, emit("divide", g, a), needs)
        elif name == "sqrt":
            self._add(a, emit("divide", emit("scale", g, p=0.5), y), needs)
        else:
            of = y if name in ("relu", "sigmoid", "tanh") else a
            self._add(a, emit(f"{name}_grad", g, of, p=p, q=q), needs)


def _needed(sweep: Sweep) -> Sweep:
    """The sweep without the operands and steps that no result needs."""
    own = len(sweep.operands)
    used = {value for result in sweep.results for value in _values_of(result)}
    for number in reversed(range(len(sweep.steps))):
        if own + number in used:
            used.update(sweep.steps[number].inputs)
    places = {value: place for place, value in enumerate(sorted(used))}
    kept = [value for value in places if value < own]
    steps = (sweep.steps[value - own] for value in places if value >= own)
    return replace(
        sweep,
        operands=tuple(sweep.operands[value] for value in kept),
        inputs=tuple(sweep.inputs[value] for value in kept),
        steps=tuple(replace(s, inputs=tuple(places[value] for value in s.inputs)) for s in steps),
        results=tuple(
            replace(r, value=places[r.value], other=places[r.other] if r.sink is Sink.OUTER else 0)
            for r in sweep.results
        ),
    )


def _values_of(result: Result) -> tuple[int, ...]:
    return (result.value, result.other) if result.sink is Sink.OUTER else (result.value,)
