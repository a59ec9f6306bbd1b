"""Attention over the relations of HGTConv, a group of relations at a time.

Each relation has rows of keys and values of its own for its sources. Where these are many times as many as
there are nodes, the rows of a group of relations are made, used and dropped, and made again in the backward
pass; between the groups there are numbers of edges and heads, which the softmax needs all together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.ops import edge_softmax, sddmm
from onehop.ops.aggregate import reduce_rows
from onehop.ops.recomputed import Needs, differentiated
from onehop.ops.typed import consecutive, gradient_of_matrices, multiply, typed_product


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive relations.

    Attributes:
        relations: The relations.
        edges: Their edges among the joint edges.
        graph: From the rows of the group to all nodes.
    """

    relations: slice
    edges: slice
    graph: Graph


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of all relations.

    Attributes:
        each: The groups, in order.
    """

    each: tuple[Group, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all graphs."""
        return sum(group.graph.nbytes for group in self.each)


def groups_of(graph: Graph, rows: Sequence[int], edges: Sequence[int], most: int) -> Groups:
    """Groups of relations; found once for a graph.

    Args:
        graph: The joint edges, relation after relation: from a row for each relation and source to nodes.
        rows: Number of these rows of each relation.
        edges: Number of edges of each relation.
        most: Most rows of a group, unless it has one relation.
    """
    key = ("groups of relations", tuple(rows), tuple(edges), most)
    with graph.lock:
        found: Groups | None = graph.derived.get(key)
        if found is None:
            found = graph.derived[key] = Groups(tuple(_groups(graph, rows, edges, most)))
    return found


def _groups(graph: Graph, rows: Sequence[int], edges: Sequence[int], most: int) -> Iterator[Group]:
    joint = graph.edge_index()
    first_row = first_edge = 0
    for relations in consecutive(rows, most):
        count, end = sum(rows[relations]), first_edge + sum(edges[relations])
        own = joint[:, first_edge:end] - torch.tensor([[first_row], [0]], device="cpu")
        made = Graph.from_edge_index(own, size=(count, graph.num_dst))
        yield Group(relations, slice(first_edge, end), made)
        first_row, first_edge = first_row + count, end


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """Attention over all relations, group by group: pieces for :func:`onehop.ops.recomputed.recomputed`.

    Its operands are queries [num_dst, H, D]; the matrices of keys and those of values, [relations, h, K, K],
    as of :func:`onehop.ops.typed.typed_product`; the keys [N, H * D] of each type of sources; and the values
    likewise. Its result is [num_dst, H, D].

    Attributes:
        graph: The joint edges.
        groups: Groups of these.
        sources: The type of sources of each relation.
        scale: By which scores are multiplied.
        fastest: Whether products may run in another library than torch's own.
    """

    graph: Graph
    groups: Groups
    sources: tuple[int, ...]
    scale: float
    fastest: bool

    def forward(self, operands: Sequence[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        """Computes the attended values, and keeps the scores [E, H]."""
        query, of_keys, of_values, *ends = operands
        keys, values = _halves(ends)
        each = [sddmm(one.graph, query, self._rows(one, query, keys, of_keys)) for one in self.groups.each]
        scores = torch.cat(each) * self.scale
        alpha = edge_softmax(self.graph, scores)
        out: Tensor | None = None
        for group in self.groups.each:
            rows = self._rows(group, query, values, of_values)
            part = reduce_rows(group.graph, rows, weight=alpha[group.edges], reduce="sum")
            out = part if out is None else out + part
        assert out is not None
        return out, (scores,)

    def differentiable(
        self, needs: Needs, operands: Sequence[Tensor], *grads: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Computes gradients that can be differentiated again, with the rows of all groups at once."""
        return differentiated(lambda *given: self.forward(given)[0], needs, operands, grads)

    def gradients(
        self, needs: Needs, operands: Sequence[Tensor], kept: Sequence[Any], *grads: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Computes the gradients of the operands that need one, group by group."""
        (grad,), (scores,) = grads, kept
        assert grad is not None
        query, of_keys, of_values, *ends = operands
        keys, values = _halves(ends)
        found = [torch.zeros_like(each, memory_format=torch.contiguous_format) for each in operands]
        of_query, keys_matrices, values_matrices, *of_ends = found
        to_keys, to_values = _halves(of_ends)
        leaf = scores.detach().requires_grad_()
        with torch.enable_grad():
            alpha = edge_softmax(self.graph, leaf)
        weights, of_weights = alpha.detach(), torch.empty_like(scores)
        for group in self.groups.each:
            rows = self._rows(group, query, values, of_values)
            of_weights[group.edges] = sddmm(group.graph, grad, rows)
            del rows
            pulled = reduce_rows(group.graph.transpose(), grad, weight=weights[group.edges], reduce="sum")
            self._go_back(group, pulled, values, of_values, to_values, values_matrices)
        (of_scores,) = torch.autograd.grad(alpha, leaf, of_weights)
        of_scores = of_scores * self.scale
        for group in self.groups.each:
            rows = self._rows(group, query, keys, of_keys)
            of_query += reduce_rows(group.graph, rows, weight=of_scores[group.edges], reduce="sum")
            del rows
            pulled = reduce_rows(group.graph.transpose(), query, weight=of_scores[group.edges], reduce="sum")
            self._go_back(group, pulled, keys, of_keys, to_keys, keys_matrices)
        return tuple(each for each, needed in zip(found, needs, strict=True) if needed)

    def _rows(self, group: Group, query: Tensor, ends: Sequence[Tensor], matrices: Tensor) -> Tensor:
        """[rows, H, D]: the rows of a group, of the keys or values ``ends``."""
        parts = [ends[number] for number in self.sources[group.relations]]
        made = typed_product(parts, matrices[group.relations], fastest=self.fastest)
        return made.view(-1, *query.shape[1:])

    def _go_back(
        self,
        group: Group,
        pulled: Tensor,
        ends: Sequence[Tensor],
        matrices: Tensor,
        of_ends: Sequence[Tensor],
        of_matrices: Tensor,
    ) -> None:
        """Adds to the gradients ``of_ends`` and ``of_matrices`` what the gradient of a group's rows gives."""
        numbers = self.sources[group.relations]
        parts = [ends[number] for number in numbers]
        of_parts = pulled.flatten(1).split([len(part) for part in parts])
        of_group = matrices[group.relations]
        of_matrices[group.relations] = gradient_of_matrices(parts, of_parts, of_group, self.fastest)
        made = multiply(of_parts, of_group.mT, self.fastest).split([len(part) for part in parts])
        for number, part in zip(numbers, made, strict=True):
            of_ends[number].add_(part)


def _halves(ends: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """The keys and the values."""
    return ends[: len(ends) // 2], ends[len(ends) // 2 :]
