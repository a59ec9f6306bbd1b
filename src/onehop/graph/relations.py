"""Edges of several relations: one graph whose rows are the pairs of a relation and a destination."""

from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class Relations:
    """Edges in the order of their relations, then of their destinations.

    A pair is a relation and a destination that has edges of it. So small relations have few rows, and all of
    them together no more than there are edges.

    Attributes:
        pairs: From the sources to the P pairs.
        ends: From the pairs to their destinations, an edge each.
        counts: How many of the pairs each relation has, in order.
    """

    pairs: Graph
    ends: Graph
    counts: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of both graphs."""
        return self.pairs.nbytes + self.ends.nbytes


def divide(
    edge_index: Tensor,
    relation: Tensor,
    num_relations: int,
    size: tuple[int, int],
    rows_of_each: bool = False,
) -> Relations:
    """Orders edges by their relations.

    Args:
        edge_index: [2, E], int64, on the CPU: sources above destinations.
        relation: [E], int64, from 0 to R - 1.
        num_relations: R.
        size: (num_src, num_dst).
        rows_of_each: Whether every relation has sources of its own: then there are R times as many, those of
            one relation after those of another.

    Raises:
        ArgumentError: A node or a relation is out of range, or there are too many pairs.
    """
    num_src, num_dst = size
    source, target = edge_index[0], edge_index[1]
    for name, numbers, end in (
        ("relation", relation, num_relations),
        ("source", source, num_src),
        ("destination", target, num_dst),
    ):
        if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < end:
            raise ArgumentError(f"relations: expected each {name} to be from 0 to {end - 1}.")
    if rows_of_each:
        source, num_src = relation * num_src + source, num_relations * num_src
    ends = torch.stack([source, relation * num_dst + target])
    ordered = Graph.from_edge_index(ends, size=(num_src, num_relations * num_dst))
    pairs = ordered.in_degrees.nonzero().flatten()
    # Rows between them are empty, so that each ends where the next begins.
    rowptr = torch.cat([ordered.rowptr.long()[pairs], torch.tensor([edge_index.size(1)], device="cpu")])
    to_targets = torch.stack([torch.arange(len(pairs), device="cpu"), pairs % num_dst])
    counts = torch.bincount(pairs // num_dst, minlength=num_relations)
    return Relations(
        pairs=Graph.from_csr(rowptr, ordered.col, num_src),
        ends=Graph.from_edge_index(to_targets, size=(len(pairs), num_dst)),
        counts=tuple(counts.tolist()),
    )
