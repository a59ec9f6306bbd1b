"""Attention over the relations of HGTConv, a group of relations at a time.

Each relation has rows of keys and values of its own for its sources. Where these are many times as many as
there are nodes, the rows of a group of relations are made, used and dropped, and made again in the backward
pass; between the groups there are numbers of edges and heads, which the softmax needs all together.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.ops import edge_softmax, sddmm
from onehop.ops.aggregate import reduce_rows
from onehop.ops.recomputed import Needs, differentiated, recomputed

Rows = Callable[[list[Tensor], Tensor], Tensor]
"""Makes [rows, H, D] of each relation's sources' rows [N, H, D] and of the matrices [relations, H, D, D]."""


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive relations.

    Attributes:
        relations: The first of them, and the one after the last.
        edges: Likewise, of the joint edges.
        graph: From the rows of the group to all nodes.
    """

    relations: tuple[int, int]
    edges: tuple[int, int]
    graph: Graph


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of all relations.

    Attributes:
        each: The groups, in order.
    """

    each: tuple[Group, ...]


def groups_of(graph: Graph, rows: Sequence[int], edges: Sequence[int], most: int) -> Groups:
    """Groups of relations; found once for a graph.

    Args:
        graph: The joint edges, relation after relation: from a row for each relation and source to nodes.
        rows: How many of these rows each relation has,
        edges: and how many of the edges.
        most: Rows of a group, unless it has one relation.
    """
    key = ("groups of relations", tuple(rows), tuple(edges), most)
    with graph.lock:
        found: Groups | None = graph.derived.get(key)
        if found is None:
            found = graph.derived[key] = Groups(tuple(_divided(graph, rows, edges, most)))
    return found


def _divided(graph: Graph, rows: Sequence[int], edges: Sequence[int], most: int) -> Iterator[Group]:
    joint = graph.edge_index()
    first = first_row = first_edge = 0
    while first < len(rows):
        last, count = first + 1, rows[first]
        while last < len(rows) and count + rows[last] <= most:
            count += rows[last]
            last += 1
        end = first_edge + sum(edges[first:last])
        own = joint[:, first_edge:end] - torch.tensor([[first_row], [0]], device="cpu")
        made = Graph.from_edge_index(own, size=(count, graph.num_dst))
        yield Group((first, last), (first_edge, end), made)
        first, first_row, first_edge = last, first_row + count, end


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """Attention over all relations, group by group.

    Attributes:
        graph: The joint edges.
        groups: Of these.
        sources: For each relation, which of the types of sources it has.
        types: How many of these there are.
        scale: By which scores are multiplied.
        rows: How rows of relations are made.
    """

    graph: Graph
    groups: Groups
    sources: tuple[int, ...]
    types: int
    scale: float
    rows: Rows

    def __call__(
        self, query: Tensor, keys: list[Tensor], values: list[Tensor], of_keys: Tensor, of_values: Tensor
    ) -> Tensor:
        """[num_dst, H, D]: the attended values.

        Args:
            query: [num_dst, H, D].
            keys: [N, H, D] for each type of sources.
            values: Likewise.
            of_keys: [relations, H, D, D], by which keys are multiplied.
            of_values: Likewise.
        """
        out: Tensor = recomputed(self, query, of_keys, of_values, *keys, *values)
        return out

    def forward(self, operands: Sequence[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        """The attended values, and the scores [E, H]; all rows are kept only if a gradient is recorded."""
        query, of_keys, of_values, *ends = operands
        keys, values = ends[: self.types], ends[self.types :]
        each = [sddmm(group.graph, query, self._rows(group, keys, of_keys)) for group in self.groups.each]
        scores = torch.cat(each) * self.scale
        alpha = edge_softmax(self.graph, scores)
        out: Tensor | None = None
        for group in self.groups.each:
            rows = self._rows(group, values, of_values)
            part = reduce_rows(group.graph, rows, weight=alpha[slice(*group.edges)], reduce="sum")
            out = part if out is None else out + part
        assert out is not None
        return out, (scores,)

    def _rows(self, group: Group, ends: Sequence[Tensor], matrices: Tensor) -> Tensor:
        relations = range(*group.relations)
        return self.rows(
            [ends[self.sources[number]] for number in relations], matrices[slice(*group.relations)]
        )

    def gradients(
        self, needs: Needs, operands: Sequence[Tensor], kept: Sequence[Any], *grads: Tensor | None
    ) -> tuple[Tensor, ...]:
        """The gradients of those of the operands of :meth:`forward` that are needed."""
        (scores,), (grad,) = kept, grads
        assert grad is not None
        query, of_keys, of_values, *ends = operands
        found = [torch.zeros_like(each, memory_format=torch.contiguous_format) for each in operands]
        first = 3 + self.types
        leaf = scores.detach().requires_grad_()
        with torch.enable_grad():
            alpha = edge_softmax(self.graph, leaf)
        weights, of_weights = alpha.detach(), torch.empty_like(scores)
        for group in self.groups.each:
            edges = slice(*group.edges)
            made = self._made(group, ends[self.types :], of_values)
            of_weights[edges] = sddmm(group.graph, grad, made.rows.detach())
            pulled = reduce_rows(group.graph.transpose(), grad, weight=weights[edges], reduce="sum")
            made.go_back(pulled, found[first:], found[2][slice(*group.relations)])
        (of_scores,) = torch.autograd.grad(alpha, leaf, of_weights)
        of_scores = of_scores * self.scale
        for group in self.groups.each:
            edges = slice(*group.edges)
            made = self._made(group, ends[: self.types], of_keys)
            found[0] += reduce_rows(group.graph, made.rows.detach(), weight=of_scores[edges], reduce="sum")
            pulled = reduce_rows(group.graph.transpose(), query, weight=of_scores[edges], reduce="sum")
            made.go_back(pulled, found[3:first], found[1][slice(*group.relations)])
        return tuple(each for each, needed in zip(found, needs, strict=True) if needed)

    def _made(self, group: Group, ends: Sequence[Tensor], matrices: Tensor) -> "_Made":
        """The rows of a group, with what they are made of as leaves."""
        numbers = [self.sources[number] for number in range(*group.relations)]
        leaves = {number: ends[number].detach().requires_grad_() for number in dict.fromkeys(numbers)}
        of_group = matrices[slice(*group.relations)].detach().requires_grad_()
        with torch.enable_grad():
            rows = self.rows([leaves[number] for number in numbers], of_group)
        return _Made(rows, leaves, of_group)

    def differentiable(
        self, needs: Needs, operands: Sequence[Tensor], *grads: Tensor | None
    ) -> tuple[Tensor, ...]:
        """The gradients as functions that can be differentiated again, with the rows of all groups."""
        return differentiated(lambda *inputs: self.forward(inputs)[0], needs, operands, grads)


@dataclass(frozen=True, slots=True)
class _Made:
    """Rows of a group.

    Attributes:
        rows: [rows, H, D].
        leaves: What they are made of, by the numbers of the types of sources,
        matrices: and by which matrices.
    """

    rows: Tensor
    leaves: dict[int, Tensor]
    matrices: Tensor

    def go_back(self, pulled: Tensor, of_ends: Sequence[Tensor], of_matrices: Tensor) -> None:
        """Adds what the rows' gradient makes of those of the sources and the matrices, to these."""
        *found, of_group = torch.autograd.grad(self.rows, [*self.leaves.values(), self.matrices], pulled)
        of_matrices += of_group
        for number, part in zip(self.leaves, found, strict=True):
            of_ends[number].add_(part)
