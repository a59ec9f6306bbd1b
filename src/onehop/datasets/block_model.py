"""Large random graphs with hubs and many small communities: a degree-corrected block model."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from onehop.datasets import degree_tail
from onehop.datasets.dataset import Progress
from onehop.datasets.native import extension, threads
from onehop.datasets.random_graphs import distinct_pairs
from onehop.errors import ArgumentError
from onehop.sizes import readable

# Maximum share of its community with which a node is joined. A hub finds its other neighbours outside.
MOST_OF_COMMUNITY = 0.95
# Maximum number of pairs; a pair takes about 40 bytes at the peak, so this many take 11 GB.
_MOST_PAIRS = 2**28
# Number of steps in which communities are generated; progress is reported between steps.
_STEPS = 40


class Rows(NamedTuple):
    """A symmetric graph in compressed sparse rows.

    rowptr: [N + 1], int64: the positions at which each node's neighbours begin.
        rowptr: [N + 1], int64: the position of each node's first neighbour.
        col: [E], int32: the neighbours, ascending in every row.
        community: [N], int32: the community of every node.
    """

    rowptr: np.ndarray
    col: np.ndarray
    community: np.ndarray


@dataclass(frozen=True, slots=True)
class BlockModel:
    """Parameters of a graph.

    Every node has a target degree from a heavy tail (:mod:`onehop.datasets.degree_tail`). Nodes form
    communities of exponentially distributed sizes. Two nodes of a community are joined with a probability
    proportional to the product of their target degrees inside the community. The missing edges of a node are
    drawn between communities, by weight. Node numbers are shuffled, so the order of the nodes carries no
    information. Model: B. Karrer, M. Newman, "Stochastic blockmodels and community structure in networks",
    Physical Review E 83 (2011).

    Attributes:
        num_nodes: Number of nodes at scale 1.
        num_pairs: Number of undirected edges at scale 1; exactly this many are generated.
        tail: Exponent of the degrees' tail.
        largest_degree: Degree of the largest hub.
        community: Mean size of a community, in nodes.
        inside: Target share of a node's edges inside its community.
    """

    num_nodes: int
    num_pairs: int
    tail: float
    largest_degree: int
    community: float
    inside: float

    def generate(self, seed: int, scale: float, progress: Progress) -> Rows:
        """Generate the graph; the same seed gives the same graph with any number of threads.

        Args:
            seed: The same seed gives the same graph, bit for bit, with the same version of numpy.
            scale: Multiplies the numbers of nodes and edges; communities keep their size.
            progress: Called with the current step and the share that is done.

        Raises:
            ArgumentError: At this scale there are too few nodes for the number of edges, or too many edges
                for memory.
        """
        num_nodes, num_pairs = max(1, round(self.num_nodes * scale)), round(self.num_pairs * scale)
        if 16 * num_pairs > num_nodes * (num_nodes - 1):
            least = 16 * self.num_pairs / self.num_nodes**2
            raise ArgumentError(
                f"scale: {num_pairs} pairs are more than an eighth of all pairs of {num_nodes} nodes. Nodes "
                f"and edges both shrink with the scale; choose at least {least * 1.02:.2g}."
            )
        if self.too_large(scale):
            raise ArgumentError(
                f"scale: {num_pairs} pairs would take about {readable(num_pairs * 40)} to make; choose at "
                f"most {_MOST_PAIRS / self.num_pairs * 0.99:.2g}."
            )
        rng = np.random.default_rng([seed, 2])
        native_seed = int(rng.integers(2**63))
        starts = self.communities(rng, num_nodes)
        sizes = np.diff(starts)
        community = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        largest = min(self.largest_degree, num_nodes // 2)
        wanted = degree_tail.degrees(num_nodes, 2 * num_pairs / num_nodes, self.tail, largest)
        wanted = rng.permutation(wanted)
        number = rng.permutation(num_nodes).astype(np.int32)

        inside, degrees = self._inside(starts, wanted, native_seed, progress)
        if len(inside) > num_pairs:
            inside = rng.permutation(inside)[:num_pairs]
        # No node has probability 0, so that the draw ends for any degrees.
        lacking = np.maximum(wanted - degrees, 0.01 * wanted.mean())
        between = _between(lacking, community, num_pairs - len(inside), native_seed, rng, progress)
        pairs = np.concatenate([inside, between])
        del inside, between

        progress("sorting edges", 0.75)
        rowptr = np.empty(num_nodes + 1, dtype=np.int64)
        col = np.empty(2 * num_pairs, dtype=np.int32)
        extension.block_rows(
            pairs.ctypes.data,
            len(pairs),
            number.ctypes.data,
            num_nodes,
            rowptr.ctypes.data,
            col.ctypes.data,
            threads(),
        )
        renumbered = np.empty_like(community)
        renumbered[number] = community
        progress("sorting edges", 1.0)
        return Rows(rowptr, col, renumbered)

    def too_large(self, scale: float) -> bool:
        """Return whether the graph at this scale has more edges than fit into memory."""
        return round(self.num_pairs * scale) > _MOST_PAIRS

    def communities(self, rng: np.random.Generator, num_nodes: int) -> np.ndarray:
        """Return [C + 1], int64: the positions at which each community's nodes begin."""
        # A size is at least 1, so that there are never more communities than nodes; and at most a quarter of
        # the nodes, so that edges between communities are always possible.
        sizes = np.ceil(rng.exponential(self.community, num_nodes)).astype(np.int64)
        sizes = np.clip(sizes, 1, max(1, num_nodes // 4))
        ends = np.cumsum(sizes)
        count = int(np.searchsorted(ends, num_nodes, side="left")) + 1
        return np.concatenate([[0], np.minimum(ends[:count], num_nodes)])

    def _inside(
        self, starts: np.ndarray, wanted: np.ndarray, seed: int, progress: Progress
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs inside communities, [P'] packed as uint64, and each node's degree from them, [N]."""
        sizes = np.diff(starts)
        room = np.repeat(MOST_OF_COMMUNITY * (sizes - 1), sizes)
        demand = np.minimum(self.inside * wanted, room)
        # The expected number is at most half of the demand; ten standard deviations more are never reached.
        expected = demand.sum() / 2
        pairs = np.empty(int(expected + 10 * expected**0.5 + 100), dtype=np.uint64)
        degrees = np.zeros(len(wanted))
        found = 0
        # Each step has equal work; a community's work is its size squared.
        work = np.cumsum(sizes.astype(np.float64) ** 2)
        cuts = np.searchsorted(work, np.linspace(0, work[-1], _STEPS + 1)[1:])
        call = extension.BlockInsideCall()
        call.starts, call.demand, call.degrees = starts.ctypes.data, demand.ctypes.data, degrees.ctypes.data
        call.seed, call.threads = seed, threads()
        first = 0
        for step, last in enumerate(np.minimum(cuts + 1, len(sizes)).tolist(), start=1):
            call.first, call.last = first, last
            call.pairs, call.capacity = pairs[found:].ctypes.data, len(pairs) - found
            count = extension.block_inside(call)
            assert count >= 0, "more pairs inside communities than ten standard deviations above the mean"
            found, first = found + count, last
            progress("drawing edges inside communities", 0.4 * step / _STEPS)
        return pairs[:found], degrees


def _between(
    weights: np.ndarray,
    community: np.ndarray,
    num_pairs: int,
    seed: int,
    rng: np.random.Generator,
    progress: Progress,
) -> np.ndarray:
    """Return [num_pairs], packed as uint64: distinct pairs whose ends are in different communities."""
    num_nodes = len(weights)
    threshold, alias = np.empty(num_nodes, dtype=np.uint32), np.empty(num_nodes, dtype=np.int32)
    extension.block_alias(weights.ctypes.data, num_nodes, threshold.ctypes.data, alias.ctypes.data)
    call = extension.BlockBetweenCall()
    call.threshold, call.alias = threshold.ctypes.data, alias.ctypes.data
    call.community, call.nodes = community.ctypes.data, num_nodes
    call.seed, call.threads = seed, threads()
    next_stream = 0

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        nonlocal next_stream
        tasks = -(-count // extension.DRAWS_PER_TASK)
        drawn = np.empty(tasks * extension.DRAWS_PER_TASK, dtype=np.uint64)
        call.first_stream, call.draws, call.pairs = next_stream, len(drawn), drawn.ctypes.data
        pairs = extension.block_between(call)
        next_stream += tasks
        return _unpacked(drawn[: min(pairs, count)])

    low, high = distinct_pairs(
        draw,
        num_nodes,
        num_pairs,
        rng,
        lambda _what, done: progress("drawing edges between communities", 0.4 + 0.35 * done),
    )
    return low.astype(np.uint64) << np.uint64(32) | high.astype(np.uint64)


def _unpacked(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return (pairs >> np.uint64(32)).astype(np.int64), (pairs & np.uint64(0xFFFFFFFF)).astype(np.int64)
