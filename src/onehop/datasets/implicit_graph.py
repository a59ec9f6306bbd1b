"""A graph with communities that is too large to be stored: its rows are computed when they are needed."""

import numpy as np
from numpy.typing import ArrayLike

from onehop.datasets import degree_tail
from onehop.datasets.block_model import MOST_OF_COMMUNITY, BlockModel
from onehop.datasets.native import extension, threads
from onehop.errors import ArgumentError, IndexRangeError, integer


class ImplicitGraph:
    """A symmetric block model at full size, in about 6 bytes per node.

    A hash of each pair of nodes decides whether two nodes of a community are joined. Edges between
    communities are pairs of stubs that a permutation without a table matches. Both computations give the same
    answer from both ends of an edge. The number of edges is only approximately the model's number.

    Args:
        model: Parameters of the graph, at scale 1.
        seed: The same seed gives the same graph, bit for bit, with the same versions of numpy and of the C
            library.
        self_loops: Whether every node has an edge to itself.

    Raises:
        ArgumentError: The seed is negative.
    """

    def __init__(self, model: BlockModel, seed: int = 0, *, self_loops: bool = False) -> None:
        seed = integer("seed", seed, None)
        if seed < 0:
            raise ArgumentError(f"seed: expected zero or more, got {seed}.")
        rng = np.random.default_rng([seed, 5])
        self._self_loops = self_loops
        self.num_nodes = model.num_nodes
        """Number of nodes."""
        starts = model.communities(rng, model.num_nodes)
        offset, shape, beyond = degree_tail.figures(
            2 * model.num_pairs / model.num_nodes, model.tail, min(model.largest_degree, model.num_nodes // 2)
        )
        self._graph = extension.ImplicitGraph(
            nodes=model.num_nodes,
            seed=int(rng.integers(2**63)),
            offset=offset,
            shape=shape,
            beyond=beyond,
            inside=model.inside,
            most_of_community=MOST_OF_COMMUNITY,
            starts=starts.ctypes.data,
            communities=len(starts) - 1,
            threads=threads(),
        )

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self._graph.bytes

    def rows(self, nodes: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the neighbours of the given nodes.

        Args:
            nodes: [M], integers from 0 to ``num_nodes - 1``.

        Returns:
            ``rowptr``, [M + 1], int64, and ``col``, int32: for each node its neighbours, ascending and
            without repeats, followed by the node itself if there are self loops.

        Raises:
            ArgumentError: ``nodes`` is not a list of integers.
            IndexRangeError: A node does not exist.
        """
        wanted = np.asarray(nodes)
        if wanted.ndim != 1 or (wanted.size and wanted.dtype.kind not in "iu"):
            raise ArgumentError(
                f"nodes: expected a list of whole numbers, got shape {list(wanted.shape)} of {wanted.dtype}."
            )
        wanted = np.ascontiguousarray(wanted, dtype=np.int64)
        outside = (wanted < 0) | (wanted >= self.num_nodes)
        if outside.any():
            raise IndexRangeError(f"nodes: {wanted[outside][0]} is not in [0, {self.num_nodes}).")
        rowptr, col = self._graph.rows(wanted.ctypes.data, len(wanted), threads())
        if not self._self_loops:
            return rowptr, col
        return rowptr + np.arange(len(rowptr)), np.insert(col, rowptr[1:], wanted)
