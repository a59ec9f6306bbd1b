"""Pairs of a type of edges and a node: what an edge's type and one of its ends decide is computed for each.

There are no more pairs than edges, and they are numbered type by type, so that all pairs of one type are
multiplied by its matrix at once.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.graph.identity import CACHE


@dataclass(frozen=True, slots=True)
class Ends:
    """The pairs that the edges have at one end.

    Attributes:
        nodes: [P]: the node of each pair.
        counts: How many of the pairs each type has, in order.
        of_edges: [E]: the pair of each edge.
    """

    nodes: Tensor
    counts: tuple[int, ...]
    of_edges: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return self.nodes.nbytes + self.of_edges.nbytes

    def multiplied(self, x: Tensor, matrices: Tensor) -> Tensor:
        """[P, width]: each pair's row of ``x``, [N, columns], times its type's matrix [columns, width]."""
        rows = x.index_select(0, self.nodes).split(self.counts)
        return torch.cat([part @ matrix for part, matrix in zip(rows, matrices.unbind(), strict=True)])


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs at both ends of edges.

    Attributes:
        sources: Those of the sources,
        targets: and of the destinations.
        graph: From the sources' pairs to the destinations, an edge for each, in the caller's order.
        of_each: From the sources' pairs to the destinations' pairs, likewise.
    """

    sources: Ends
    targets: Ends
    graph: Graph
    of_each: Graph

    @property
    def nbytes(self) -> int:
        """Bytes of all."""
        return self.sources.nbytes + self.targets.nbytes + self.graph.nbytes + self.of_each.nbytes


class _Key(NamedTuple):
    """The key of pairs: the inputs besides edges and types."""

    types: int
    num_dst: int


@dataclass(frozen=True, slots=True)
class _OfTypes:
    """A note on the types of edges: the number of the graph that was made of them."""

    number: int
    nbytes: int = 0


def pairs_of(edge_index: Tensor, edge_type: Tensor, types: int, size: tuple[int, int]) -> Pairs | None:
    """The pairs of edges, found or made.

    Args:
        edge_index: [2, E], int64, on the CPU: sources above destinations.
        edge_type: [E], int64, on the CPU.
        types: How many there are.
        size: (num_src, num_dst).

    Returns:
        None if a node or a type is out of range, which PyG is to report.
    """
    key = _Key(types, size[1])
    found: Pairs | None = CACHE.find(edge_index, key)
    of_types: _OfTypes | None = CACHE.find(edge_type, key)
    if found is not None and of_types is not None and of_types.number == found.graph.number:
        return found if _reach(found.sources.nodes, size[0]) else None
    ends = edge_index.unbind()
    if not _reach(edge_type, types) or not all(map(_reach, ends, size)):
        return None
    # Tensors made in inference mode could not be used outside it, where they will be found again.
    with torch.inference_mode(False), torch.no_grad():
        sources, targets = (_at(end, edge_type, types, count) for end, count in zip(ends, size, strict=True))
        first = len(sources.nodes)
        pairs = Pairs(
            sources,
            targets,
            Graph.from_edge_index(torch.stack([sources.of_edges, ends[1]]), size=(first, size[1])),
            Graph.from_edge_index(
                torch.stack([sources.of_edges, targets.of_edges]), size=(first, len(targets.nodes))
            ),
        )
    CACHE.store(edge_index, key, pairs)
    CACHE.store(edge_type, key, _OfTypes(pairs.graph.number))
    return pairs


def _reach(numbers: Tensor, end: int) -> bool:
    """Return whether all numbers are from 0 to ``end`` - 1."""
    return not numbers.numel() or 0 <= int(numbers.min()) <= int(numbers.max()) < end


def _at(nodes: Tensor, edge_type: Tensor, types: int, count: int) -> Ends:
    pairs, of_edges = torch.unique(edge_type * count + nodes, return_inverse=True)
    counts = torch.bincount(pairs // count, minlength=types)
    return Ends(pairs % count, tuple(counts.tolist()), of_edges)
