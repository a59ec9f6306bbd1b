"""Random walks: of first order, and of second order with any return and in-out parameter."""

import math

import torch
from torch import Tensor

from onehop.errors import ArgumentError, IndexRangeError
from onehop.graph.identity import remembered

# Proposals of a step, before all neighbours are looked at: where a weight is tiny, hardly any is accepted.
_PROPOSALS = 32


def random_walk(
    rowptr: Tensor, col: Tensor, start: Tensor, length: int, p: float = 1.0, q: float = 1.0
) -> Tensor:
    """Walks along edges drawn at random; a walk that is at a node without edges stays there.

    Args:
        rowptr: [N + 1], int64 or int32: the bounds of each node's neighbours.
        col: [E], of the same dtype: the neighbours.
        start: [W], of the same dtype: the first nodes.
        length: How many steps follow.
        p: The return parameter: the way back to the node before has weight 1 / p.
        q: The in-out parameter: a way to a node that is no neighbour of the node before has weight 1 / q.

    Returns:
        [W, length + 1], of the same dtype. Drawn by torch's generator.

    Raises:
        ArgumentError: ``length`` is negative, or p or q is not positive and finite.
        IndexRangeError: A walk begins at no node.

    Source: Grover and Leskovec, node2vec (arXiv 1607.00653), section 3.2. Steps of second order are drawn
    without tables: one of first order is proposed until one is accepted (Yang et al., KnightKing, SOSP 2019).
    """
    if length < 0:
        raise ArgumentError(f"length: expected at least 0, got {length}.")
    if not (0 < p < math.inf and 0 < q < math.inf):
        raise ArgumentError(f"p, q: expected positive finite numbers, got {p} and {q}.")
    nodes = rowptr.numel() - 1
    wrong = ((start < 0) | (start >= nodes)).nonzero()
    if wrong.numel():
        entry = int(wrong[0])
        raise IndexRangeError(f"start: entry {entry} is {int(start[entry])}, which is not in [0, {nodes}).")
    walks = torch.empty(start.size(0), length + 1, dtype=rowptr.dtype, device="cpu")
    walks[:, 0] = start
    neighbours = _Neighbours(rowptr, col)
    second = None if p == q == 1 else _SecondOrder(neighbours, _Pairs(rowptr, col), p, q)
    for step in range(1, length + 1):
        now = walks[:, step - 1]
        if second is None or step == 1:
            walks[:, step] = neighbours.drawn(now)
        else:
            walks[:, step] = second.drawn(walks[:, step - 2], now)
    return walks


class _Neighbours:
    def __init__(self, rowptr: Tensor, col: Tensor) -> None:
        self._first, self._degree, self._col = rowptr[:-1], rowptr.diff(), col

    def all_of(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """The places in ``nodes``, which ascend, and all their neighbours."""
        degrees = self._degree[nodes]
        rows = torch.repeat_interleave(degrees.long())
        before = (degrees.cumsum(0) - degrees)[rows]
        return rows, self._col[self._first[nodes][rows] + torch.arange(rows.numel(), device="cpu") - before]

    def have_some(self, nodes: Tensor) -> Tensor:
        """Return which nodes have neighbours."""
        return self._degree[nodes] > 0

    def drawn(self, nodes: Tensor) -> Tensor:
        """A neighbour of each node; the node itself if it has none."""
        degrees = self._degree[nodes]
        # In float64 the product is below the degree.
        place = (torch.rand(nodes.shape, dtype=torch.float64, device="cpu") * degrees).to(nodes.dtype)
        if not self._col.numel():
            return nodes
        found = self._col[(self._first[nodes] + place).clamp_(max=self._col.numel() - 1)]
        return torch.where(degrees > 0, found, nodes)


class _Pairs:
    """The edges as sorted numbers, which are kept while the edges do not change."""

    def __init__(self, rowptr: Tensor, col: Tensor) -> None:
        self._nodes = rowptr.numel() - 1

        def numbers() -> Tensor:
            rows = torch.repeat_interleave(rowptr.diff().long())
            return (rows * self._nodes + col).sort().values

        self._keys = remembered(rowptr, col, key="pairs of walks", make=numbers)

    def have(self, rows: Tensor, cols: Tensor) -> Tensor:
        """Return whether there is an edge from each row to each column."""
        if not self._keys.numel():
            return torch.zeros(rows.shape, dtype=torch.bool, device="cpu")
        keys = rows.long() * self._nodes + cols
        place = torch.searchsorted(self._keys, keys).clamp_(max=self._keys.numel() - 1)
        return self._keys[place] == keys


class _SecondOrder:
    """Draws steps that depend on the node before."""

    def __init__(self, neighbours: _Neighbours, pairs: _Pairs, p: float, q: float) -> None:
        self._neighbours, self._pairs = neighbours, pairs
        self._back, self._out = 1 / p, 1 / q

    def drawn(self, before: Tensor, now: Tensor) -> Tensor:
        """A neighbour of each node, by its weight."""
        found, waiting = now.clone(), self._neighbours.have_some(now).nonzero()[:, 0]
        largest = max(self._back, 1.0, self._out)
        for _ in range(_PROPOSALS):
            proposed = self._neighbours.drawn(now[waiting])
            chance = torch.rand(waiting.shape, dtype=torch.float64, device="cpu") * largest
            taken = chance < self._weights(before[waiting], proposed)
            found[waiting[taken]] = proposed[taken]
            waiting = waiting[~taken]
            if not waiting.numel():
                return found
        found[waiting] = self._of_all(before[waiting], now[waiting])
        return found

    def _weights(self, before: Tensor, proposed: Tensor) -> Tensor:
        out = torch.full(before.shape, self._out, dtype=torch.float64, device="cpu")
        weights = out.masked_fill_(self._pairs.have(before, proposed), 1.0)
        return weights.masked_fill_(proposed == before, self._back)

    def _of_all(self, before: Tensor, now: Tensor) -> Tensor:
        """Draws among all neighbours of nodes that have some: exponential times, of which the least wins."""
        rows, candidates = self._neighbours.all_of(now)
        rate = self._weights(before[rows], candidates)
        times = torch.empty_like(rate).exponential_() / rate
        order = times.argsort()
        order = order[rows[order].argsort(stable=True)]
        firsts = torch.searchsorted(rows[order], torch.arange(now.numel(), device="cpu"))
        return candidates[order[firsts]]
