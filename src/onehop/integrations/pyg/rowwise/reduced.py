"""Compiled messages, as their reductions over rows show them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.integrations.pyg.rowwise.aggregators import Rows
from onehop.integrations.pyg.rowwise.reader import Part, Read
from onehop.integrations.pyg.rowwise.terms import Drawn, Fixed, drawn, tensors_of
from onehop.messages import APART, EXTREMA, End, Operand, Step
from onehop.ops.message import reduce_messages


class CompiledRows(Rows):
    """Compiled messages; all simple reductions of them are made at once.

    Args:
        graph: Over which edges.
        message: The message.
        names: Reductions that will be asked for.
        operands: The tensors behind the message's arguments.
    """

    def __init__(self, graph: Graph, message: Read, names: Sequence[str], operands: list[Tensor]) -> None:
        super().__init__(graph, 1 + len(message.shape))
        self._message = message
        each = {id(term): term for part in message.parts for term in part.terms}
        terms = [term for term in each.values() if not isinstance(term, Drawn)]
        found = tensors_of(terms, operands, graph)
        self._tensors = {id(term): tensor for term, tensor in zip(terms, found, strict=True)}
        self._tensors |= {id(term): drawn(term, graph, found[0].dtype) for term in message.draws}
        self._reduced = dict(zip(names, self._run(message.parts, tuple(names)), strict=True)) if names else {}

    def reduced(self, reduce: str) -> Tensor:
        """Sum, mean, max or min over each row."""
        return self._reduced[reduce]

    def mean_of_squares(self, constant: bool) -> Tensor:
        """The mean of the squares over each row; no gradient passes through it if it is constant."""
        found = self._reduced["squares"]
        return found.detach() if constant else found

    def softmax(self, module: Any) -> Tensor:
        """Their sum over each row, weighted by a softmax of their own."""
        (out,) = self._run([weighted(part, module) for part in self._message.parts], ("sum",))
        return out

    def _run(self, parts: Sequence[Part], names: tuple[str, ...]) -> list[Tensor]:
        of_parts = []
        for part in parts:
            for term in part.terms:
                if id(term) not in self._tensors and isinstance(term, Fixed):
                    (self._tensors[id(term)],) = tensors_of([term], [], self.graph)
            tensors = [self._tensors[id(term)] for term in part.terms]
            of_parts.append(reduce_messages(self.graph, part.program, tensors, names))
        columns = zip(*of_parts, strict=True)
        return [self._shaped(name, pieces) for name, pieces in zip(names, columns, strict=True)]

    def _shaped(self, name: str, pieces: Sequence[Tensor]) -> Tensor:
        out = pieces[0] if len(pieces) == 1 else torch.cat(list(pieces), 1)
        if self.dims == 2:
            return out
        shape = (out.size(0), *self._message.shape)
        # No view, which autograd would treat otherwise. A backward pass that reads maxima gets its own.
        return out.view(shape).clone() if name in EXTREMA else torch.ops.aten._unsafe_view(out, shape)


def weighted(part: Part, module: Any) -> Part:
    """The part of a message times its softmax over each destination, as SoftmaxAggregation makes it."""
    count, width, x = len(part.program.operands), part.program.width, part.program.result
    operands, terms, steps = list(part.program.operands), list(part.terms), list(part.program.steps)
    learned = isinstance(module.t, Tensor)
    if learned:
        # One more operand, so that the results of steps move on by one.
        operands.append(Operand(End.FIXED, width))
        terms.append(Fixed(End.FIXED, module.t, (width,)))
        steps = [replace(s, inputs=tuple(v + (v >= count) for v in s.inputs)) for s in steps]
        x += x >= count

    def emit(operation: str, *inputs: int, p: float = 0.0) -> int:
        steps.append(Step(operation, inputs, width, (p, 0.0)))
        return len(operands) + len(steps) - 1

    scores = x
    if learned:
        scores = emit("multiply", x, count)
    elif module.t != 1:
        scores = emit("scale", x, p=module.t)
    raised = emit("exp", emit("subtract", scores, emit("row_max", scores)))
    alpha = emit("divide", raised, emit("shift", emit("row_sum", raised), p=1e-16))
    if module.semi_grad and not module.learn:
        alpha = emit(APART, alpha)
    result = emit("multiply", x, alpha)
    return Part(replace(part.program, operands=tuple(operands), steps=tuple(steps), result=result), terms)


def weights_reason(message: Read, module: Any, dtype: torch.dtype) -> str | None:
    """Return why a softmax of messages is not compiled; None if it is."""
    t = module.t
    if not isinstance(t, Tensor):
        return None if isinstance(t, int | float) else "its softmax has a factor of a type that is not known"
    if t.dtype is not dtype or t.dim() != 1 or not t.is_cpu:
        return "its softmax has a factor of another kind than its messages"
    if t.numel() != 1 and (len(message.parts) != 1 or message.shape != (t.numel(),)):
        return "its softmax has more factors than one"
    return None
