"""Attention over edges of several types, where sources have separate rows for each type.

If there are many times as many rows as nodes, the rows of one group of types are made, used and dropped at a
time, and made again in the backward pass. Only scores and weights, [E, H], exist for all groups together,
because the softmax needs them all.
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
        edges: The edges of these types, as a slice of the edges of all types.
        graph: The graph from the rows of these types to all destinations.
    """

    types: slice
    edges: slice
    graph: Graph


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Edges of several types, type after type; each type has a row for each of its sources.

    Attributes:
        graph: The graph from the rows of all types to the destinations.
        each: The same edges in groups of types.
    """

    graph: Graph
    each: tuple[RowGroup, ...]


def row_groups(
    edges: Sequence[Tensor], rows: Sequence[int], starts: Sequence[int], num_dst: int, most: int
) -> RowGroups:
    """Join the edges of several types, in groups of types.

    Args:
        edges: [2, E] of each type, on the CPU: sources, counted from 0 in each type, then destinations.
        rows: Number of sources of each type.
        starts: For each type, the number that is added to its destinations.
        num_dst: Number of destinations.
        most: The maximal number of rows of a group, unless it has a single type.

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
    """Compute attention whose keys and values are multiplied by matrices of the edges' types.

    With several groups, only scores and weights, [E, H], are kept for all groups. Differentiable any number
    of times.

    Args:
        groups: The edges.
        sources: For each type, the position of its sources' tensor among the keys and the values.
        query: [num_dst, H, D], float32 or float64, on the CPU.
        keys: A pair: [N, H * D] for each kind of sources, of the same dtype; and the matrices [types, h, K,
            K] of :func:`.typed_product`.
        values: A pair like ``keys``, for the values.
        scale: The factor of the scores.
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
    """Scores [E, H] of queries, or weighted sums [num_dst, H, D], computed with rows that are made in groups.

    Each of the two is the gradient of the other. The operands are the queries [num_dst, H, D] or the weights
    [E, H]; the matrices; and the keys or the values of each kind of sources.
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
        """Add a group's part of all gradients; its intermediate tensors are freed before the next group."""
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
        """Return the rows of a group, [rows, H, D]."""
        parts = [ends[number] for number in self.sources[group.types]]
        rows = typed_product(parts, matrices[group.types], fastest=self.fastest)
        return rows.view(len(rows), heads, rows.size(1) // heads)

    @staticmethod
    def _part(group: RowGroup, scores: bool, operand: Tensor, rows: Tensor) -> Tensor:
        """Return the scores of a group's edges, or the weighted sums of its rows."""
        if scores:
            return sddmm(group.graph, operand, rows)
        return reduce_rows(group.graph, rows, weight=operand[group.edges], reduce="sum")
