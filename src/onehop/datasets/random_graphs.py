"""Edges without further structure: random graphs with a skewed degree distribution, and grids."""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from onehop.datasets.dataset import Progress
from onehop.errors import ArgumentError, integer
from onehop.graph.edges import distinct, edges_of_keys

# Draws this many pairs of nodes; returns two arrays of node numbers.
DrawPairs = Callable[[int], tuple[np.ndarray, np.ndarray]]


def chung_lu(
    num_nodes: int, num_edges: int, exponent: float = 0.6, seed: int = 0, progress: Progress | None = None
) -> Tensor:
    """Generate a symmetric Chung-Lu graph: an edge's probability is proportional to its ends' weights.

    The probability of an edge is proportional to the product of both weights. The node of rank r (from 1) has
    weight ``r ** -exponent``; ranks are assigned to node numbers at random. There are no self loops and no
    repeated edges. Model: F. Chung, L. Lu, "Connected components in random graphs with given expected degree
    sequences", Annals of Combinatorics 6 (2002).

    Args:
        num_nodes: Number of nodes.
        num_edges: Number of directed edges, an even number: each pair counts twice.
        exponent: Skew; 0 gives every node the same weight.
        seed: The same seed gives the same graph.
        progress: Called with the current step and its finished share, 0 to 1.

    Returns:
        [2, num_edges], int64, ordered by source, then by destination.

    Raises:
        ArgumentError: ``num_edges`` is odd, or more than half of all pairs.

    Examples:
        >>> from onehop.datasets import chung_lu
        >>> edge_index = chung_lu(1000, 10_000, seed=0)
        >>> degrees = edge_index[1].bincount(minlength=1000)
        >>> degrees.median().item(), degrees.max().item()  # a few nodes have most of the edges
        (7, 206)
    """
    num_nodes, num_edges, seed = (
        integer(name, value)
        for name, value in (("num_nodes", num_nodes), ("num_edges", num_edges), ("seed", seed))
    )
    if num_edges % 2:
        raise ArgumentError(
            f"num_edges: expected an even number, since every pair gives two edges, got {num_edges}."
        )
    rng = np.random.default_rng([seed, 0])
    weights = np.arange(1, num_nodes + 1, dtype=np.float64) ** -exponent
    heaviest_first = np.cumsum(weights)
    node_of_rank = rng.permutation(num_nodes)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        ranks = pick(rng.random(2 * count) * heaviest_first[-1], heaviest_first)
        return ranks[:count], ranks[count:]

    low, high = distinct_pairs(draw, num_nodes, num_edges // 2, rng, progress)
    return both_directions(node_of_rank[low], node_of_rank[high], num_nodes)


def grid(rows: int, columns: int) -> Tensor:
    """Generate a grid of streets: every crossing is joined with its neighbours in its row and its column.

    Returns:
        [2, E], int64, ordered by source, with both directions; node ``r * columns + c`` is in row r and
        column c.

    Examples:
        >>> from onehop.datasets import grid
        >>> grid(2, 2)  # 0 and 1 above 2 and 3
        tensor([[0, 0, 1, 1, 2, 2, 3, 3],
                [1, 2, 0, 3, 0, 3, 1, 2]])
    """
    rows, columns = integer("rows", rows), integer("columns", columns)
    number = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns)
    low = np.concatenate([number[:, :-1].ravel(), number[:-1].ravel()])
    high = np.concatenate([number[:, 1:].ravel(), number[1:].ravel()])
    return both_directions(low, high, rows * columns)


def distinct_pairs(
    draw: DrawPairs,
    num_nodes: int,
    num_pairs: int,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw until there are ``num_pairs`` distinct pairs of distinct nodes.

    Returns:
        The lower and the higher node of every pair, in ascending order.

    Raises:
        ArgumentError: ``num_pairs`` is more than half of all pairs, so drawing would take too long.
    """
    if num_pairs > num_nodes * (num_nodes - 1) // 4:
        raise ArgumentError(
            f"num_edges: {2 * num_pairs} edges are more than half of all pairs of {num_nodes} nodes; ask for "
            "fewer."
        )
    found = np.empty(0, dtype=np.int64)
    accepted = 1.0
    while len(found) < num_pairs:
        missing = num_pairs - len(found)
        # Draw slightly more than is missing, given how many of the last draws were new.
        count = int(missing / max(accepted, 0.05) * 1.02) + 16
        first, second = draw(count)
        low, high = np.minimum(first, second), np.maximum(first, second)
        keys = (low * num_nodes + high)[low != high]
        before = len(found)
        found = distinct(np.concatenate([found, keys]))
        accepted = (len(found) - before) / count
        if progress is not None:
            progress("drawing edges", min(1.0, len(found) / num_pairs))
    if len(found) > num_pairs:
        # The surplus is dropped at random, because dropping the last pairs would favour low numbers.
        found = np.delete(found, rng.choice(len(found), len(found) - num_pairs, replace=False, shuffle=False))
    return np.divmod(found, num_nodes)


def both_directions(low: np.ndarray, high: np.ndarray, num_nodes: int) -> Tensor:
    """Return [2, 2 P], int64: P distinct pairs in both directions, ordered by source, then by destination."""
    keys = np.concatenate([low * np.int64(num_nodes) + high, high * np.int64(num_nodes) + low])
    keys.sort()
    return edges_of_keys(keys, num_nodes)


def pick(places: np.ndarray, cumulative: np.ndarray) -> np.ndarray:
    """Return the index in ``cumulative`` (cumulative weights) to which each of ``places`` belongs."""
    return np.minimum(np.searchsorted(cumulative, places, side="right"), len(cumulative) - 1)
