"""Recognition of programs that equal one operator: copies, weighted copies and attention.

A program is matched step by step, so the result depends on what it computes and not on how it was written.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.messages import APART, EDGES, End, Program, Step
from onehop.ops.aggregate import aggregate
from onehop.ops.attention import attention, gat, gatv2

# The number that PyG's softmax adds to the sums in its denominators.
_EPSILON = 1e-16
# If heads have at least this many columns, a weighted sum by heads is at least as fast as the program. For
# 20,000 nodes and 200,000 edges of 128 columns, forward and backward, the sum and the program took 22 and 37
# ms with 1 head, 120 and 72 ms with 16 heads, and 969 and 88 ms with 128 heads.
_LEAST_COLUMNS = 16

Run = Callable[[Graph, Sequence[Tensor]], Tensor]


class Rule(NamedTuple):
    """The operator that computes a program's reduced messages.

    Attributes:
        name: The name that ``explain`` shows.
        run: Computes the reduced messages, [num_dst, width], from the operands that
            :func:`onehop.ops.message.reduce_messages` takes.
        constant: The operand through which the operator passes no gradient; None if there is none.
        is_complex: Whether the operator also takes complex numbers.
    """

    name: str
    run: Run
    constant: int | None = None
    is_complex: bool = False


@lru_cache(maxsize=256)
def rule_of(program: Program, reduce: str) -> Rule | None:
    """Return the operator that computes a program's reduced messages; None if there is no such operator.

    Args:
        program: The message.
        reduce: The reduction.
    """
    matcher = _Matcher(program)
    values, scale = matcher.factors(program.result)
    if scale != 1 or reduce in ("squares", EDGES):
        return None
    return matcher.copies(values, reduce) or (matcher.attention(values) if reduce == "sum" else None)


def _aggregated(graph: Graph, x: Tensor, weight: Tensor | None, reduce: Any) -> Tensor:
    """Reduces the sources' rows; complex rows become real rows, [real parts, imaginary parts]."""
    if not x.is_complex():
        return aggregate(graph, x, weight, reduce)
    both = torch.cat([x.real, x.imag], -1)
    if weight is None:
        return torch.complex(*aggregate(graph, both, None, reduce).chunk(2, -1))
    of_real, of_imaginary = (aggregate(graph, both, part, reduce) for part in (weight.real, weight.imag))
    (real, imaginary), (turned, other) = of_real.chunk(2, -1), of_imaginary.chunk(2, -1)
    return torch.complex(real - other, imaginary + turned)


class _Matcher:
    def __init__(self, program: Program) -> None:
        self._program, self._operands = program, program.operands
        self._width = program.width_of

    def copies(self, values: list[int], reduce: str) -> Rule | None:
        """Match a sum, mean, maximum or minimum of sources' rows, or a sum or mean of weighted rows."""
        x, *weights = sorted(values, key=lambda v: (self._width(v), self._is(v, End.SOURCE)), reverse=True)
        if not self._is(x, End.SOURCE) or self._width(x) != self._program.width:
            return None
        if not weights:
            return Rule(
                f"the {reduce} of sources",
                lambda graph, tensors: _aggregated(graph, tensors[x], None, reduce),
                is_complex=reduce in ("sum", "mean"),
            )
        heads = self._width(weights[0])
        fits = all(self._is(each, End.EDGE) and self._width(each) in (1, heads) for each in weights)
        if not fits or reduce not in ("sum", "mean"):
            return None
        if heads > 1 and self._width(x) < heads * _LEAST_COLUMNS:
            return None

        def run(graph: Graph, tensors: Sequence[Tensor]) -> Tensor:
            first, *others = (tensors[each].reshape(graph.num_edges, -1) for each in weights)
            weight: Tensor = math.prod(others, start=first)
            if heads == 1:
                return _aggregated(graph, tensors[x], weight.reshape(-1), reduce)
            return _flat(_aggregated(graph, _by_head(tensors[x], heads), weight, reduce))

        return Rule(f"the weighted {reduce} of sources", run, is_complex=True)

    def attention(self, values: list[int]) -> Rule | None:
        """Match a sum of rows weighted by a softmax and, as in dropout, by one number per edge and head."""
        scores = {value: argument for value in values if (argument := self._softmax(value)) is not None}
        if len(scores) != 1:
            return None
        ((weights, score),) = scores.items()
        heads = self._width(weights)
        others = [value for value in values if value != weights]
        masks = [each for each in others if self._is(each, End.EDGE) and self._width(each) == heads]
        rows = [each for each in others if each not in masks]
        if len(rows) != 1 or len(masks) > 1 or self._width(rows[0]) != self._program.width:
            return None
        mask = masks[0] if masks else None
        return self._sums(score, heads, rows[0], mask) or self._products(score, heads, rows[0], mask)

    def _sums(self, score: int, heads: int, rows: int, mask: int | None) -> Rule | None:
        """Match GAT: scores are sums of numbers of both ends and, optionally, of the edge."""
        summed, slope = self._activated(score)
        ends = self._ends(summed)
        if ends is None or not self._is(rows, End.SOURCE):
            return None
        source, target, edge = ends

        def run(graph: Graph, tensors: Sequence[Tensor]) -> Tensor:
            x, of_edge, masked = _by_head(tensors[rows], heads), _at(tensors, edge), _at(tensors, mask)
            out = gat(graph, x, tensors[source], tensors[target], slope, edge_score=of_edge, edge_mask=masked)
            return _flat(out)

        return Rule("GAT's attention", run, mask)

    def _products(self, score: int, heads: int, rows: int, mask: int | None) -> Rule | None:
        """Match GATv2 or dot products: scores are products, summed over each head's columns."""
        (values, scale), width = self.factors(score), heads
        collected = self._step(values[0], "collect") if len(values) == 1 else None
        if collected is not None:
            (values, inside), width = self.factors(collected.inputs[0]), self._width(collected.inputs[0])
            scale *= inside
        if len(values) != 2 or any(self._width(value) != width for value in values):
            return None
        # The query is the destinations' operand, or GATv2's vector.
        query, key = sorted(values, key=lambda value: not self._is(value, End.FIXED, End.TARGET))
        if self._is(query, End.FIXED) and scale == 1:
            return self._of_pairs(key, heads, rows, mask, att=query)
        return self._of_dots(query, key, heads, rows, mask, scale) if self._is(query, End.TARGET) else None

    def _of_pairs(self, key: int, heads: int, rows: int, mask: int | None, att: int) -> Rule | None:
        summed, slope = self._activated(key)
        ends = self._ends(summed)
        if ends is None or ends[0] != rows:
            return None
        source, target, edge = ends

        def run(graph: Graph, tensors: Sequence[Tensor]) -> Tensor:
            both = _by_head(tensors[source], heads), _by_head(tensors[target], heads)
            vector, masked = tensors[att].reshape(heads, -1), _at(tensors, mask)
            features = None if edge is None else _by_head(tensors[edge], heads)
            return _flat(gatv2(graph, *both, vector, slope, edge=features, edge_mask=masked))

        return Rule("GATv2's attention", run, mask)

    def _of_dots(
        self, query: int, key: int, heads: int, rows: int, mask: int | None, scale: float
    ) -> Rule | None:
        of_key, of_rows = self._by_end(key), self._by_end(rows)
        if of_key is None or of_rows is None or not of_key.keys() == of_rows.keys() <= {End.SOURCE, End.EDGE}:
            return None
        edge = of_key.get(End.EDGE)
        if of_rows.get(End.EDGE) != edge or End.SOURCE not in of_key:
            return None
        keys, values = of_key[End.SOURCE], of_rows[End.SOURCE]

        def run(graph: Graph, tensors: Sequence[Tensor]) -> Tensor:
            q, k, v = (_by_head(tensors[each], heads) for each in (query, keys, values))
            features, masked = None if edge is None else _by_head(tensors[edge], heads), _at(tensors, mask)
            return _flat(attention(graph, q, k, v, scale, edge=features, edge_mask=masked))

        return Rule("dot-product attention", run, mask)

    def factors(self, value: int) -> tuple[list[int], float]:
        """Return the factors of a product: values (before spreading, if they are spread), and a number."""
        step = self._step(value, "multiply", "spread", "scale")
        if step is None:
            return [value], 1.0
        values: list[int] = []
        scale = step.numbers[0] if step.operation == "scale" else 1.0
        for part in step.inputs:
            part_values, number = self.factors(part)
            values, scale = values + part_values, scale * number
        return values, scale

    def _softmax(self, value: int) -> int | None:
        """Return the scores if a value is PyG's softmax of them over each destination's edges; else None."""
        divided = self._step(value, "divide")
        if divided is None:
            return None
        raised, below = divided.inputs
        shifted, apart = self._step(below, "shift"), self._inputs(raised, "exp", "subtract")
        if shifted is None or shifted.numbers[0] != _EPSILON or apart is None:
            return None
        total, (scores, largest) = self._step(shifted.inputs[0], "row_sum"), apart
        highest = self._inputs(largest, "row_max", APART) or self._inputs(largest, "row_max")
        return scores if total is not None and total.inputs == (raised,) and highest == (scores,) else None

    def _activated(self, value: int) -> tuple[int, float]:
        """Return the input of a leaky relu and its negative slope; for another value, itself and 1."""
        step = self._step(value, "leaky_relu", "relu")
        if step is None:
            return value, 1.0
        return step.inputs[0], step.numbers[0] if step.operation == "leaky_relu" else 0.0

    def _ends(self, value: int) -> tuple[int, int, int | None] | None:
        """Return the operands of sources, destinations and edges (or None) whose sum a value is, or None."""
        by_end = self._by_end(value) or {}
        if not {End.SOURCE, End.TARGET} <= by_end.keys() <= {End.SOURCE, End.TARGET, End.EDGE}:
            return None
        return by_end[End.SOURCE], by_end[End.TARGET], by_end.get(End.EDGE)

    def _by_end(self, value: int) -> dict[End, int] | None:
        """Return the operands whose sum a value is, with one for each end; None if it is another sum."""
        if value < len(self._operands):
            return {self._operands[value].end: value}
        step = self._step(value, "add")
        left, right = (self._by_end(part) for part in step.inputs) if step is not None else (None, None)
        if left is None or right is None or left.keys() & right.keys():
            return None
        return {**left, **right}

    def _is(self, value: int, *ends: End) -> bool:
        return value < len(self._operands) and self._operands[value].end in ends

    def _step(self, value: int, *operations: str) -> Step | None:
        """Return the step that makes a value, if it is one of these operations on consecutive columns."""
        number = value - len(self._operands)
        step = self._program.steps[number] if number >= 0 else None
        if step is None or step.operation not in operations:
            return None
        return None if step.operation in ("spread", "collect") and step.numbers[0] else step

    def _inputs(self, value: int, *operations: str) -> tuple[int, ...] | None:
        """Return the inputs of a chain of such steps, the last step first."""
        inputs: tuple[int, ...] = (value,)
        for operation in operations:
            step = self._step(inputs[0], operation)
            if step is None:
                return None
            inputs = step.inputs
        return inputs


def _by_head(rows: Tensor, heads: int) -> Tensor:
    return rows.reshape(rows.size(0), heads, -1)


def _flat(out: Tensor) -> Tensor:
    """Return the result as [rows, heads * width]; it is not a view for autograd.

    It is a copy if autograd records it: our backward passes read the result, PyG's do not, so a program may
    write to it.
    """
    out = out.clone() if out.requires_grad else out
    flat: Tensor = torch.ops.aten._unsafe_view(out, (out.size(0), out.size(1) * out.size(2)))
    return flat


def _at(tensors: Sequence[Tensor], operand: int | None) -> Tensor | None:
    return None if operand is None else tensors[operand]
