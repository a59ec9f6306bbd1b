"""Reductions of messages over the rows of a graph: of a block, or of a compiled message."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from onehop.compiler.matched import Rule, rule_of
from onehop.compiler.terms import Draw, Drawn, Fixed, drawn, tensors_of
from onehop.compiler.values import Behind, Part, Read
from onehop.graph import Graph
from onehop.messages import APART, EXTREMA, End, Operand, Step
from onehop.ops.aggregate import aggregate
from onehop.ops.message import reduce_messages
from onehop.ops.moments import deviation, variance

PARTS = {
    **{reduce: (reduce,) for reduce in ("sum", "mean", "max", "min")},
    "var": ("mean", "squares"),
    "std": ("mean", "squares"),
}
"""The parts of each reduction, as names of :data:`onehop.messages.REDUCTIONS`."""


class Rows:
    """Messages that can be reduced over the rows of a graph.

    Args:
        graph: The graph.
        dims: Number of dimensions of the messages, including the dimension of the edges.
    """

    def __init__(self, graph: Graph, dims: int) -> None:
        self.graph = graph
        self.dims = dims

    def reduced(self, reduce: str) -> Tensor:
        """Return the sum, mean, max or min over each row."""
        raise NotImplementedError

    def mean_of_squares(self, constant: bool) -> Tensor:
        """Return the mean of the squares over each row; no gradient passes through it if ``constant``."""
        raise NotImplementedError

    def softmax(self, factor: Tensor | float, constant: bool) -> Tensor:
        """Sums each row's messages, weighted by the softmax of the same messages.

        Args:
            factor: The factor that turns messages into scores: a number, or [1] or [width].
            constant: Whether no gradient passes through the weights.
        """
        raise NotImplementedError

    def per_row(self, numbers: Tensor) -> Tensor:
        """Return one number for each row, shaped so that it can multiply a result."""
        return numbers.view(-1, *[1] * (self.dims - 1))


def statistic(rows: Rows, reduce: str, constant: bool = False) -> Tensor:
    """Return one of :data:`PARTS` over each row, [rows, ...], with PyG's formulas for "var" and "std".

    Args:
        rows: The messages.
        reduce: The name of the statistic.
        constant: Whether no gradient passes through the mean of squares.
    """
    if reduce == "var":
        return variance(rows.reduced("mean"), rows.mean_of_squares(constant))
    if reduce == "std":
        return deviation(rows.reduced("mean"), rows.mean_of_squares(constant))
    return rows.reduced(reduce)


class BlockRows(Rows):
    """The messages of a block; it caches results that several reductions share.

    Args:
        graph: The graph of the block, whose sources are the block's edges.
        messages: [edges, ...].
    """

    def __init__(self, graph: Graph, messages: Tensor) -> None:
        super().__init__(graph, messages.dim())
        self.messages = messages
        self._mean: Tensor | None = None
        self._turned: Graph | None = None

    def reduced(self, reduce: str) -> Tensor:
        """Return the sum, mean, max or min over each row."""
        if reduce != "mean":
            return self.of(self.messages, reduce)
        if self._mean is None:
            self._mean = self.of(self.messages, "mean")
        return self._mean

    def mean_of_squares(self, constant: bool) -> Tensor:
        """Return the mean of the squares over each row; no gradient passes through it if ``constant``."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not constant):
            return self.of(self.messages * self.messages, "mean")

    def softmax(self, factor: Tensor | float, constant: bool) -> Tensor:
        """Sums each row's messages, weighted by the softmax of the same messages."""
        x = self.messages
        scores = x if isinstance(factor, int | float) and factor == 1 else x * factor
        with torch.set_grad_enabled(torch.is_grad_enabled() and not constant):
            largest = self.of(scores.detach(), "max")
            raised = (scores - self.spread(largest)).exp()
            alpha = raised / self.spread(self.of(raised, "sum") + 1e-16)
        return self.of(x * alpha, "sum")

    def of(self, numbers: Tensor, reduce: str) -> Tensor:
        """Return the sum, mean, max or min over each row of a tensor with the messages' shape."""
        return _over(self.graph, numbers, reduce)

    def spread(self, rows: Tensor) -> Tensor:
        """Return the destination's row for every edge."""
        if self._turned is None:
            self._turned = self.graph.transpose()
        return _over(self._turned, rows, "sum")


def _over(graph: Graph, rows: Tensor, reduce: Any) -> Tensor:
    """Aggregates rows, or single numbers, to [n, ...]."""
    if rows.dim() > 1:
        return aggregate(graph, rows, reduce=reduce)
    return aggregate(graph, rows.unsqueeze(1), reduce=reduce).squeeze(1)


class CompiledRows(Rows):
    """Compiled messages; all simple reductions of them are computed at once.

    Args:
        graph: The graph.
        message: The message.
        names: The reductions that will be needed.
        given: The tensors that the message's terms refer to by number.
        draw: The function that draws dropout.
        guarded: Tensors; autograd reports writes to them before the backward pass.
    """

    def __init__(
        self,
        graph: Graph,
        message: Read,
        names: Sequence[str],
        numbered: list[Tensor],
        draw: Draw,
        guarded: Sequence[Tensor] = (),
    ) -> None:
        super().__init__(graph, 1 + len(message.shape))
        self._message, self._numbered, self._guarded = message, numbered, guarded
        each = {id(term): term for part in message.parts for term in part.terms}
        terms = [term for term in each.values() if not isinstance(term, Drawn)]
        tensors = tensors_of(terms, numbered, graph)
        self._tensors = {id(term): tensor for term, tensor in zip(terms, tensors, strict=True)}
        self._tensors |= {id(term): drawn(term, graph, tensors[0].dtype, draw) for term in message.draws}
        pieces = self._run(message.parts, tuple(names)) if names else []
        self._pieces = dict(zip(names, pieces, strict=True))
        if message.behind is not None:
            self._pieces = {
                name: (self._with_last(name, piece, message.behind),)
                for name, (piece,) in self._pieces.items()
            }
        self._reduced: dict[str, Tensor] = {}

    def pieces(self, reduce: str) -> Sequence[Tensor]:
        """Return a sum, mean, max, min or mean of squares over rows, [rows, width] for each message part."""
        return self._pieces[reduce]

    def reduced(self, reduce: str) -> Tensor:
        """Return the sum, mean, max or min over each row."""
        if reduce not in self._reduced:
            self._reduced[reduce] = self._shaped(reduce, self._pieces[reduce])
        return self._reduced[reduce]

    def mean_of_squares(self, constant: bool) -> Tensor:
        """Return the mean of the squares over each row; no gradient passes through it if ``constant``."""
        mean = self.reduced("squares")
        return mean.detach() if constant else mean

    def softmax(self, factor: Tensor | float, constant: bool) -> Tensor:
        """Sums each row's messages, weighted by the softmax of the same messages."""
        at = len(self._numbered)
        parts = [weighted(part, factor, constant, at) for part in self._message.parts]
        if isinstance(factor, Tensor):
            self._numbered = [*self._numbered, factor]
        (pieces,) = self._run(parts, ("sum",))
        return self._shaped("sum", pieces)

    def _run(self, parts: Sequence[Part], names: tuple[str, ...]) -> list[tuple[Tensor, ...]]:
        of_parts: list[tuple[Tensor, ...]] = []
        for part in parts:
            for term in part.terms:
                if id(term) not in self._tensors and isinstance(term, Fixed):
                    (self._tensors[id(term)],) = tensors_of([term], self._numbered, self.graph)
            tensors = [self._tensors[id(term)] for term in part.terms]
            rule = rule_for(part, names)
            if rule is None:
                pieces = reduce_messages(self.graph, part.program, tensors, names, self._guarded)
                of_parts.append(pieces)
            else:
                of_parts.append((rule.run(self.graph, tensors),))
        return list(zip(*of_parts, strict=True))

    def _with_last(self, name: str, rows: Tensor, behind: Behind) -> Tensor:
        """Apply the messages' last linear step to their sums or means."""
        if behind.bias is None:
            (matrix,) = tensors_of([behind.matrix], self._numbered, self.graph)
            return rows @ matrix
        matrix, bias = tensors_of([behind.matrix, behind.bias], self._numbered, self.graph)
        degrees = self.graph.in_degrees
        times = degrees if name == "sum" else degrees > 0
        return torch.addmm(times.to(bias.dtype).unsqueeze(1) * bias, rows, matrix)

    def _shaped(self, name: str, pieces: Sequence[Tensor]) -> Tensor:
        out = pieces[0] if len(pieces) == 1 else torch.cat(list(pieces), 1)
        if self.dims == 2:
            return out
        shape = (out.size(0), *self._message.shape)
        # The result must not be a view for autograd. Extrema are copied, because the backward pass reads
        # them.
        return out.view(shape).clone() if name in EXTREMA else torch.ops.aten._unsafe_view(out, shape)


def rule_for(part: Part, reductions: Sequence[str]) -> Rule | None:
    """Return the operator for a reduced part; None if there is none, or if there are several reductions."""
    rule = rule_of(part.program, reductions[0]) if len(reductions) == 1 else None
    if rule is None or rule.constant is None:
        return rule
    # The operator passes no gradient through this operand, which is fine only for drawn numbers.
    return rule if isinstance(part.terms[rule.constant], Drawn) else None


def weighted(part: Part, factor: Tensor | float, constant: bool, at: int = 0) -> Part:
    """Return a part of a message, multiplied by its softmax over each destination.

    Args:
        part: The part.
        factor: See :meth:`Rows.softmax`.
        constant: See :meth:`Rows.softmax`.
        at: The number of the factor if it is a tensor.
    """
    count, width, x = len(part.program.operands), part.program.width, part.program.result
    operands, terms, steps = list(part.program.operands), list(part.terms), list(part.program.steps)
    if isinstance(factor, Tensor):
        # There is one more operand, so the numbers of steps' results increase by one.
        operands.append(Operand(End.FIXED, width))
        terms.append(Fixed(End.FIXED, at, (width,)))
        steps = [replace(s, inputs=tuple(v + (v >= count) for v in s.inputs)) for s in steps]
        x += x >= count

    def emit(operation: str, *inputs: int, p: float = 0.0) -> int:
        steps.append(Step(operation, inputs, width, (p, 0.0)))
        return len(operands) + len(steps) - 1

    scores = x
    if isinstance(factor, Tensor):
        scores = emit("multiply", x, count)
    elif factor != 1:
        scores = emit("scale", x, p=factor)
    raised = emit("exp", emit("subtract", scores, emit("row_max", scores)))
    alpha = emit("divide", raised, emit("shift", emit("row_sum", raised), p=1e-16))
    if constant:
        alpha = emit(APART, alpha)
    result = emit("multiply", x, alpha)
    return Part(replace(part.program, operands=tuple(operands), steps=tuple(steps), result=result), terms)
