"""A graph as onehop's kernels read it: compressed sparse rows of destinations, and derived data."""

import itertools
import os
import threading
import weakref
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from onehop import native, thresholds
from onehop.errors import ArgumentError
from onehop.graph import build

if TYPE_CHECKING:
    from onehop.graph.orders import Orders
    from onehop.graph.reorder import Reordering
    from onehop.graph.statistics import GraphStatistics
    from onehop.graph.stored import StoredGraph

_numbers = itertools.count()
_by_number: "weakref.WeakValueDictionary[int, Graph]" = weakref.WeakValueDictionary()


class Graph:
    """An immutable directed graph: rows are destinations, columns are sources.

    The caller's edge order is kept: every tensor with one entry an edge is given, and returned, in the order
    of the ``edge_index`` (or matrix) that the graph was made from. Repeated edges stay separate edges. The
    graph owns copies of its arrays; later writes to the caller's tensors do not affect it.

    Make one with :meth:`from_edge_index`, ``from_csr``, ``from_scipy``, ``from_dgl`` or :meth:`load`.
    """

    __slots__ = (
        "__weakref__",
        "_csr",
        "_inverse_in_degrees",
        "_statistics",
        "_transpose",
        "derived",
        "lock",
        "num_dst",
        "num_edges",
        "num_src",
        "number",
        "ordered",
        "orders",
        "prepared",
    )

    def __init__(self, csr: Any) -> None:
        # Plain numbers, which torch.compile can look at.
        self.num_src: int = csr.cols
        """Number of sources (columns)."""
        self.num_dst: int = csr.rows
        """Number of destinations (rows)."""
        self.num_edges: int = csr.edges
        """Number of edges, repeated ones included."""
        self._csr = csr
        self._transpose: Any = None
        self._statistics: GraphStatistics | None = None
        self._inverse_in_degrees: dict[torch.dtype, Tensor] = {}
        self.lock = threading.RLock()
        # Of onehop.graph.reorder: (method, transposed) -> native graph, and method -> its two orders.
        self.ordered: dict[tuple[str, bool], Any] = {}
        self.orders: dict[str, Orders] = {}
        # Data that backends derived from this graph, by keys of their own; every value has nbytes.
        self.derived: dict[Hashable, Any] = {}
        # Of the CPU backend: calls that are bound to this graph, for each a key of the call.
        self.prepared: dict[Hashable, Any] = {}
        self.number: int = next(_numbers)
        """Identifies this graph where only numbers can be passed, as in a compiled program; see
        :func:`by_number`."""
        _by_number[self.number] = self

    @classmethod
    def from_edge_index(
        cls, edge_index: Tensor, num_nodes: int | None = None, size: tuple[int, int] | None = None
    ) -> "Graph":
        """A graph from a list of edges, as PyG keeps it.

        Args:
            edge_index: [2, E], int32 or int64: sources above destinations. From a GPU it is copied once: the
                graph's own arrays are on the CPU, and the arrays that kernels need are copied to the device
                on first use.
            num_nodes: Number of nodes; None means one more than the largest number in ``edge_index``.
            size: (num_src, num_dst) of a bipartite graph, instead of ``num_nodes``.

        Raises:
            ArgumentError: Wrong shape or dtype, no data, or both ``num_nodes`` and ``size``.
            IndexRangeError: A node number is negative or too large.
        """
        return cls(build.from_edge_index(edge_index, num_nodes, size))

    @classmethod
    def from_csr(cls, rowptr: Tensor, col: Tensor, num_src: int | None = None) -> "Graph":
        """A graph from compressed sparse rows of destinations.

        Args:
            rowptr: [num_dst + 1], int32 or int64, ascending from 0 to E.
            col: [E], the source of every edge.
            num_src: Number of sources; None means ``num_dst``.

        Raises:
            ArgumentError: Wrong shape, dtype or device, or ``rowptr`` does not ascend from 0 to E.
            IndexRangeError: A source is negative or too large.
        """
        return cls(build.from_csr(rowptr, col, num_src))

    @classmethod
    def from_scipy(cls, matrix: Any) -> "Graph":
        """A graph from a SciPy sparse matrix or array of shape (num_dst, num_src).

        An entry in row i and column j is an edge from source j to destination i. Values are omitted, stored
        zeros are edges, and duplicates of a COO matrix stay separate edges. The edge order is that of the
        matrix's own arrays (``matrix.data``), so ``torch.from_numpy(matrix.data)`` is its weight.

        Raises:
            ArgumentError: Not a two-dimensional SciPy sparse matrix, or its arrays contradict each other.
            IndexRangeError: A row or a column lies outside the matrix.
        """
        return cls(build.from_scipy(matrix))

    @classmethod
    def from_dgl(cls, graph: Any) -> "Graph":
        """A graph from a DGLGraph with one type of edges: see :mod:`onehop.graph.dgl_edges`."""
        from onehop.graph import dgl_edges

        edge_index, size = dgl_edges.edges_of(graph)
        return cls.from_edge_index(edge_index, size=size)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Graph":
        """A graph from a file: see :mod:`onehop.graph.files` for the formats.

        Raises:
            FileNotFoundError: There is no such file.
            FileFormatError: The file is truncated, malformed or of an unknown kind.
        """
        from onehop.graph import files

        content = files.read(path)
        return cls.from_edge_index(content.edge_index, size=content.size)

    @property
    def rowptr(self) -> Tensor:
        """Return [num_dst + 1], int64: bounds of each destination's edges. Must not be written to."""
        rowptr: Tensor = self._csr.rowptr
        return rowptr

    @property
    def col(self) -> Tensor:
        """Return [E], int32: the source of every edge, destination by destination. Must not be written to."""
        col: Tensor = self._csr.col
        return col

    @property
    def perm(self) -> Tensor | None:
        """Return [E], int32 or int64: the caller's number of every edge; None if the orders agree."""
        perm: Tensor | None = self._csr.perm
        return perm

    @property
    def csr(self) -> Any:
        """The native graph, for kernels."""
        return self._csr

    @property
    def transposed_csr(self) -> Any:
        """The native transposed graph, for kernels: rows are sources. Built on first use, then cached."""
        if self._transpose is None:
            with self.lock:
                if self._transpose is None:
                    self._transpose = self._csr.transpose(
                        self.num_edges > thresholds.now.wide_edges, native.threads()
                    )
        return self._transpose

    def transpose(self) -> "Graph":
        """The graph with every edge reversed, in the same edge order; it shares this graph's arrays."""
        turned = Graph(self.transposed_csr)
        turned._transpose = self._csr
        return turned

    @property
    def in_degrees(self) -> Tensor:
        """Return [num_dst], int64: the number of edges that end at each destination."""
        return self.rowptr.diff()

    @property
    def out_degrees(self) -> Tensor:
        """Return [num_src], int64: the number of edges that start at each source."""
        return torch.bincount(self.col, minlength=self.num_src)

    def inverse_in_degrees(self, dtype: torch.dtype) -> Tensor:
        """Return [num_dst]: 1 / max(in-degree, 1), cached for each dtype."""
        if dtype not in self._inverse_in_degrees:
            self._inverse_in_degrees[dtype] = self.in_degrees.clamp_(min=1).to(dtype).reciprocal_()
        return self._inverse_in_degrees[dtype]

    @property
    def statistics(self) -> "GraphStatistics":
        """Degrees and other statistics, computed on first use."""
        if self._statistics is None:
            from onehop.graph.statistics import GraphStatistics

            self._statistics = GraphStatistics.of(self)
        return self._statistics

    def reorder(self, method: str = "community") -> "Reordering":
        """The graph with new node numbers: see :func:`onehop.graph.reorder.reorder`."""
        from onehop.graph.reorder import reorder

        return reorder(self, method)

    def edge_index(self) -> Tensor:
        """Return [2, E], int64: sources above destinations, in the caller's edge order. A new tensor."""
        target = torch.repeat_interleave(torch.arange(self.num_dst, device="cpu"), self.in_degrees)
        ordered = torch.stack([self.col.long(), target])
        if self.perm is None:
            return ordered
        result = torch.empty_like(ordered)
        result[:, self.perm.long()] = ordered
        return result

    def save(self, folder: str | os.PathLike[str]) -> "StoredGraph":
        """Stores the graph in a new folder, its edges in the order of ``perm``; see :func:`.stored.write`."""
        from onehop.graph import stored

        return stored.save(self, folder)

    @staticmethod
    def open(folder: str | os.PathLike[str]) -> "StoredGraph":
        """A graph that stays on disk; see :meth:`onehop.graph.stored.StoredGraph.open`."""
        from onehop.graph.stored import StoredGraph

        return StoredGraph.open(folder)

    def to_scipy(self, weight: Tensor | None = None) -> scipy.sparse.coo_array:
        """The graph as a SciPy COO array of shape (num_dst, num_src), in the caller's edge order.

        Args:
            weight: [E], the values; None means ones.

        Raises:
            ArgumentError: ``weight`` does not have one entry an edge.
        """
        source, target = self.edge_index().numpy()
        if weight is not None and weight.shape != (self.num_edges,):
            raise ArgumentError(f"weight: expected shape [{self.num_edges}], got {list(weight.shape)}.")
        values = np.ones(self.num_edges, dtype=np.float32) if weight is None else weight.detach().numpy()
        return scipy.sparse.coo_array((values, (target, source)), shape=(self.num_dst, self.num_src))

    @property
    def nbytes(self) -> int:
        """Bytes of the existing arrays: the graph, its transpose once built, and other cached data."""
        native_graphs = [self._csr, self._transpose, *self.ordered.values()]
        own = sum(int(each.bytes) for each in native_graphs if each is not None)
        return own + sum(int(each.nbytes) for each in list(self.derived.values()))

    def __repr__(self) -> str:
        """Nodes and edges."""
        nodes = f"num_nodes={self.num_dst}"
        if self.num_src != self.num_dst:
            nodes = f"num_src={self.num_src}, num_dst={self.num_dst}"
        return f"Graph({nodes}, num_edges={self.num_edges})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the graph as its list of edges."""
        return (_from_pickle, (self.edge_index(), (self.num_src, self.num_dst)))


def by_number(number: int) -> Graph:
    """The graph with that number.

    Raises:
        ArgumentError: The graph was freed: a compiled program keeps only its number, so the caller must keep
            the graph.
    """
    graph = _by_number.get(number)
    if graph is None:
        raise ArgumentError(
            f"graph: number {number} was freed; keep the Graph alive while a program that uses it runs."
        )
    return graph


def _from_pickle(edge_index: Tensor, size: tuple[int, int]) -> Graph:
    return Graph.from_edge_index(edge_index, size=size)
