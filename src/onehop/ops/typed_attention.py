"""Attention over edges of several types, whose sources have rows of their own for each type.

Where these rows are many times as many as there are nodes, those of a group of types are made, used and
dropped, and made again in the backward pass; between the groups there are numbers of edges and heads, which
the softmax needs all together.
"""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.ops.aggregate import reduce_rows
from onehop.ops.attention import attention
from onehop.ops.edge_softmax import edge_softmax
from onehop.ops.recomputed import Needs, Whole, recomputed
from onehop.ops.sddmm import sddmm
from onehop.ops.typed import Product, consecutive, typed_product


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The edges of consecutive types.

    Attributes:
        types: The types.
        edges: Their edges among those of all types.
        graph: From the rows of these types to all destinations.
    """

    types: slice
    edges: slice
    graph: Graph


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Edges of several types, type after type; each type has a row for each of its sources.

    Attributes:
        graph: From the rows of all types to the destinations.
        each: The same edges in groups of types.
    """

    graph: Graph
    each: tuple[RowGroup, ...]


def row_groups(
    edges: Sequence[Tensor], rows: Sequence[int], starts: Sequence[int], num_dst: int, most: int
) -> RowGroups:
    """Puts the edges of several types together, in groups of types.

    Args:
        edges: [2, E] of each type, on the CPU: sources, from 0 in each type, above destinations.
        rows: Number of sources of each type.
        starts: For each type, what is added to its destinations.
        num_dst: Number of destinations.
        most: Most rows of a group, unless it has a single type.

    Raises:
        ArgumentError: A node is out of range, or there are too many rows.
    """

    def graph_of(types: slice) -> Graph:
        sources = list(itertools.accumulate(rows[types], initial=0))[:-1]
        firsts = torch.tensor([sources, starts[types]], device="cpu").t().unsqueeze(2)
        joint = torch.cat([each + first for each, first in zip(edges[types], firsts, strict=True)], 1)
        return Graph.from_edge_index(joint, size=(sum(rows[types]), num_dst))

    groups, begin = [], 0
    for types in consecutive(rows, most):
        graph = graph_of(types)
        groups.append(RowGroup(types, slice(begin, begin + graph.num_edges), graph))
        begin += graph.num_edges
    whole = graph if len(groups) == 1 else graph_of(slice(None))
    return RowGroups(whole, tuple(groups))


def typed_attention(
    groups: RowGroups,
    sources: Sequence[int],
    query: Tensor,
    keys: tuple[Sequence[Tensor], Tensor],
    values: tuple[Sequence[Tensor], Tensor],
    scale: float,
    fastest: bool = False,
) -> Tensor:
    """Attention whose keys and values are multiplied by the matrices of an edge's type.

    With several groups, scores and weights, [E, H], are all that is kept between them. Differentiable, any
    number of times.

    Args:
        groups: The edges.
        sources: For each type, the place of its sources among the keys and the values.
        query: [num_dst, H, D], float32 or float64, on the CPU.
        keys: [N, H * D] of each kind of sources, of the same dtype; and the matrices [types, h, K, K] of
            :func:`.typed_product`.
        values: The same for values.
        scale: By which scores are multiplied.
        fastest: Whether products may run in another library than torch's own.

    Returns:
        [num_dst, H, D].
    """
    out: Tensor
    if len(groups.each) == 1:
        key, value = (
            typed_product([ends[at] for at in sources], matrices, fastest=fastest).view(-1, *query.shape[1:])
            for ends, matrices in (keys, values)
        )
        out = attention(groups.graph, query, key, value, scale)
        return out
    through = functools.partial(_Through, groups.each, tuple(sources), fastest)
    scores = recomputed(through(scores=True), query, keys[1], *keys[0])
    weights = edge_softmax(groups.graph, scores * scale)
    out = recomputed(through(scores=False), weights, values[1], *values[0])
    return out


@dataclass(frozen=True, slots=True)
class _Through(Whole):
    """Scores [E, H] of queries, or the sums [num_dst, H, D] of weights, through rows that are made in groups.

    The gradient of either is the other. Operands are the queries [num_dst, H, D], or the weights [E, H]; the
    matrices; and the keys, or the values, of each kind of sources.
    """

    groups: tuple[RowGroup, ...]
    sources: tuple[int, ...]
    fastest: bool
    scores: bool

    def whole(self, *operands: Tensor) -> Tensor:
        operand, matrices, *ends = operands
        parts = (
            self._part(group, self.scores, operand, self._rows(group, operand.size(1), matrices, ends))
            for group in self.groups
        )
        return torch.cat(list(parts)) if self.scores else functools.reduce(torch.add, parts)

    def gradients(
        self, needs: Needs, operands: Sequence[Tensor], saved: Sequence[Any], *grads: Tensor | None
    ) -> tuple[Tensor, ...]:
        (grad,) = grads
        assert grad is not None
        gradients = [torch.zeros_like(each, memory_format=torch.contiguous_format) for each in operands]
        for group in self.groups:
            self._add(group, operands, grad, gradients)
        return tuple(each for each, needed in zip(gradients, needs, strict=True) if needed)

    def _add(self, group: RowGroup, operands: Sequence[Tensor], grad: Tensor, totals: list[Tensor]) -> None:
        """Adds a group's part of all gradients; what is made for it is freed before the next group."""
        (operand, matrices, *ends), (of_operand, of_matrices, *of_ends) = operands, totals
        rows = self._rows(group, operand.size(1), matrices, ends)
        if self.scores:
            of_operand += self._part(group, False, grad, rows)
        else:
            of_operand[group.edges] = self._part(group, True, grad, rows)
        del rows
        query, weight = (operand, grad) if self.scores else (grad, operand)
        pulled = reduce_rows(group.graph.transpose(), query, weight=weight[group.edges], reduce="sum")
        numbers = self.sources[group.types]
        factors = matrices[group.types], *(ends[number] for number in numbers)
        needs = (True,) * len(factors)
        of_types, *parts = Product(None, self.fastest).gradients(needs, factors, (), pulled.flatten(1))
        of_matrices[group.types] = of_types
        for number, part in zip(numbers, parts, strict=True):
            of_ends[number] += part

    def _rows(self, group: RowGroup, heads: int, matrices: Tensor, ends: Sequence[Tensor]) -> Tensor:
        """[rows, H, D]: the rows of a group."""
        parts = [ends[number] for number in self.sources[group.types]]
        rows = typed_product(parts, matrices[group.types], fastest=self.fastest)
        return rows.view(len(rows), heads, rows.size(1) // heads)

    @staticmethod
    def _part(group: RowGroup, scores: bool, operand: Tensor, rows: Tensor) -> Tensor:
        """The scores of a group's edges, or the sums of its rows."""
        if scores:
            return sddmm(group.graph, operand, rows)
        return reduce_rows(group.graph, rows, weight=operand[group.edges], reduce="sum")
