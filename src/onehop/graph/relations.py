"""Edges of several relations: graphs whose rows are the pairs of a relation and a destination."""

from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class RelationBlock:
    """The edges of some destinations, in the order of their relations, then of their destinations.

    A pair is a relation and a destination that has edges of it. So small relations have few rows, and all of
    them together no more than there are edges.

    Attributes:
        first: The first destination,
        last: and the one after the last.
        pairs: From the sources to the P pairs.
        ends: From the pairs to their destinations, counted from the first, an edge each.
        targets: [P], int64: these destinations.
        counts: How many of the pairs each relation has, in order.
    """

    first: int
    last: int
    pairs: Graph
    ends: Graph
    targets: Tensor
    counts: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the graphs and the numbers."""
        return self.pairs.nbytes + self.ends.nbytes + self.targets.nbytes


@dataclass(frozen=True, slots=True)
class Relations:
    """Edges of several relations.

    Attributes:
        blocks: All of them, those of some destinations each.
    """

    blocks: tuple[RelationBlock, ...]

    @property
    def number(self) -> int:
        """Identifies these relations as long as they are kept."""
        return self.blocks[0].pairs.number

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(block.nbytes for block in self.blocks)


def divide(
    edge_index: Tensor,
    relation: Tensor,
    num_relations: int,
    size: tuple[int, int],
    most: int | None = None,
    rows_of_each: bool = False,
) -> Relations:
    """Orders edges by their relations, in blocks of destinations.

    Args:
        edge_index: [2, E], int64, on the CPU: sources above destinations.
        relation: [E], int64, from 0 to R - 1.
        num_relations: R.
        size: (num_src, num_dst).
        most: Pairs of a block, unless it has a single destination; None means one block.
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
    pairs, of_edges = torch.unique(target * num_relations + relation, return_inverse=True)
    targets, relations = pairs // num_relations, pairs % num_relations
    until = torch.bincount(targets, minlength=num_dst).cumsum(0)
    bounds = _bounds(until, len(pairs) if most is None else most)
    sizes = torch.tensor([last - first for first, last in bounds], device="cpu")
    block_of = torch.arange(len(bounds), device="cpu").repeat_interleave(sizes)
    # Stable, so that the destinations of a relation stay in order.
    order = torch.argsort(block_of[targets] * num_relations + relations, stable=True)
    numbers = torch.empty_like(order)
    numbers[order] = torch.arange(len(order), device="cpu")
    ordered = Graph.from_edge_index(torch.stack([source, numbers[of_edges]]), size=(num_src, len(pairs)))
    targets, relations = targets[order], relations[order]
    blocks, begin = [], 0
    for first, last in bounds:
        end = int(until[last - 1]) if last else 0
        counts = tuple(torch.bincount(relations[begin:end], minlength=num_relations).tolist())
        blocks.append(_block(ordered, targets[begin:end] - first, begin, (first, last), counts))
        begin = end
    return Relations(tuple(blocks))


def _bounds(until: Tensor, most: int) -> list[tuple[int, int]]:
    """The first destination of each block and the one after its last; one empty block if there are none.

    Args:
        until: [num_dst]: how many pairs there are up to each destination.
        most: Of a block.
    """
    bounds, first, done = [], 0, 0
    while first < len(until):
        last = max(int(torch.searchsorted(until, done + most, right=True)), first + 1)
        bounds.append((first, last))
        first, done = last, int(until[last - 1])
    return bounds or [(0, 0)]


def _block(
    ordered: Graph, targets: Tensor, begin: int, bounds: tuple[int, int], counts: tuple[int, ...]
) -> RelationBlock:
    """The block of the pairs from ``begin`` on, with these destinations, counted from the first."""
    count, (first, last) = len(targets), bounds
    rowptr = ordered.rowptr[begin : begin + count + 1]
    col = ordered.col[int(rowptr[0]) : int(rowptr[-1])]
    to_targets = torch.stack([torch.arange(count, device="cpu"), targets])
    return RelationBlock(
        first=first,
        last=last,
        pairs=Graph.from_csr(rowptr - rowptr[0], col, ordered.num_src),
        ends=Graph.from_edge_index(to_targets, size=(count, last - first)),
        targets=targets,
        counts=counts,
    )
