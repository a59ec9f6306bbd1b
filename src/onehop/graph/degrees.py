"""Rows of a graph in the order of their degrees, in blocks."""

from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class RowBlock:
    """A block of rows.

    Attributes:
        begin: Its first place in the order,
        end: and the one after its last.
        alike: Whether its rows have one degree.
    """

    begin: int
    end: int
    alike: bool


@dataclass(frozen=True, slots=True)
class RowsByDegree:
    """Rows of a graph, those of one degree next to each other.

    Attributes:
        order: [num_dst], int64: numbers of the rows.
        blocks: What they are divided into.
    """

    order: Tensor
    blocks: tuple[RowBlock, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the order."""
        return self.order.nbytes


def rows_by_degree(graph: Graph, fewest: int, most: int) -> RowsByDegree:
    """Rows of a graph in blocks by their degrees; found once for a graph.

    Args:
        graph: The graph.
        fewest: How many rows of one degree there must be for blocks of their own.
        most: Rows of a block.
    """
    key = ("rows by degree", fewest, most)
    with graph.lock:
        found: RowsByDegree | None = graph.derived.get(key)
        if found is None:
            found = graph.derived[key] = _divided(graph.in_degrees, fewest, most)
    return found


def _divided(degrees: Tensor, fewest: int, most: int) -> RowsByDegree:
    order = torch.argsort(degrees, stable=True)
    _, which, counts = torch.unique_consecutive(degrees[order], return_inverse=True, return_counts=True)
    many = counts >= fewest
    apart = many[which]
    blocks, begin = [], 0
    for count in counts[many].tolist():
        blocks += _blocks(begin, begin + count, most, alike=True)
        begin += count
    blocks += _blocks(begin, len(order), most, alike=False)
    return RowsByDegree(torch.cat([order[apart], order[~apart]]), tuple(blocks))


def _blocks(begin: int, end: int, most: int, alike: bool) -> list[RowBlock]:
    return [RowBlock(first, min(first + most, end), alike) for first in range(begin, end, most)]
