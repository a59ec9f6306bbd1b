"""Graphs in memory and on disk: compressed sparse rows of destinations, and derived data."""

import dataclasses
import itertools
import math
import os
import threading
import weakref
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from onehop import native, thresholds
from onehop.errors import ArgumentError
from onehop.graph import build, dgl_edges, edges, folder as folders, placed, reading
from onehop.graph.held import bytes_held, bytes_of_graph
from onehop.graph.index import IndexRows, from_index
from onehop.graph.orders import Order, Orders, Reordering, reordered
from onehop.graph.point_rows import PointRows, lengths_of, structures_of
from onehop.graph.statistics import GraphStatistics
from onehop.graph.streams import capturing

if TYPE_CHECKING:
    import scipy.sparse

_numbers = itertools.count()
_by_number: "weakref.WeakValueDictionary[int, Graph]" = weakref.WeakValueDictionary()


class Graph:
    """An immutable directed graph: rows are destinations, columns are sources.

    The caller's edge order is kept: every tensor with one entry per edge is passed and returned in the order
    of the ``edge_index`` (or matrix) from which the graph was made. Repeated edges stay separate edges. The
    graph owns copies of its arrays; later writes to the caller's tensors do not affect it.

    Make a graph with :meth:`from_edge_index`, ``from_csr``, ``from_points``, ``from_scipy``, ``from_dgl`` or
    :meth:`load`.

    Examples:
        >>> import onehop, torch
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[1, 0, 0], [2, 1, 2]]))  # 1->2, 0->1, 0->2
        >>> graph
        Graph(num_nodes=3, num_edges=3)
        >>> graph.rowptr.tolist(), graph.col.tolist()  # row 0 is empty, row 1 has source 0, row 2 has 1 and 0
        ([0, 0, 1, 3], [0, 1, 0])
        >>> graph.edge_index().tolist()  # in the order in which the edges were given
        [[1, 0, 0], [2, 1, 2]]
    """

    def __init__(self, csr: Any) -> None:
        """Wraps a native graph, which is made on first use for a graph on a device or of an index."""
        # These are plain integers, which torch.compile can read.
        self.num_src: int = csr.cols
        """Number of sources (columns)."""
        self.num_dst: int = csr.rows
        """Number of destinations (rows)."""
        self.num_edges: int = csr.edges
        """Number of edges, including repeated ones."""
        self.index: IndexRows | None = csr if isinstance(csr, IndexRows) else None
        """The index from which the graph was made; None if it was made from edges."""
        self._csr: Any = None if isinstance(csr, placed.PlacedCsr | IndexRows) else csr
        self._transpose: Any = None
        self._inverse_in_degrees: dict[torch.dtype, Tensor] = {}
        self.lock = threading.RLock()
        # Used by onehop.graph.reorder: (method, transposed) -> native graph, and method -> its two orders.
        self.ordered: dict[tuple[str, bool], Any] = {}
        self.orders: dict[str, Orders] = {}
        # Data that backends derived from this graph, by the backends' keys.
        self.derived: dict[Hashable, Any] = {}
        if isinstance(csr, placed.PlacedCsr):
            self.derived[placed.key(csr.device, False)] = csr
        self.made_on: torch.device | None = csr.device if isinstance(csr, placed.PlacedCsr) else None
        """The device on which the graph was made; None for the host."""
        # Used by the CPU backend: prepared calls that are bound to this graph, by the key of the call.
        self.prepared: dict[Hashable, Any] = {}
        self.number: int = next(_numbers)
        """A number that identifies this graph, for example in a compiled program; see :func:`by_number`."""
        _by_number[self.number] = self

    @staticmethod
    def from_edge_index(
        edge_index: Tensor, num_nodes: int | None = None, size: tuple[int, int] | None = None
    ) -> "Graph":
        """Make a graph from a list of edges, as in PyG.

        Args:
            edge_index: [2, E], int32 or int64: sources in the first row, destinations in the second. If it is
                on a GPU, the graph is made there: nothing is copied to the host, and with ``num_nodes`` or
                ``size`` the host does not wait. Arrays on the CPU are made when they are first used.
            num_nodes: Number of nodes; None means one more than the largest number in ``edge_index``.
            size: (num_src, num_dst) of a bipartite graph, instead of ``num_nodes``.

        Raises:
            ArgumentError: The shape or dtype is wrong, there is no data, or both ``num_nodes`` and ``size``
                are given.
            IndexRangeError: A node number is negative or too large. On a GPU, this is a device assertion, as
                in torch's own indexing; with ``ONEHOP_CHECK=full`` it is this error there too.
        """
        return Graph(build.from_edge_index(edge_index, num_nodes, size))

    @staticmethod
    def from_csr(rowptr: Tensor, col: Tensor, num_src: int | None = None) -> "Graph":
        """Make a graph from compressed sparse rows of destinations.

        Args:
            rowptr: [num_dst + 1], int32 or int64, ascending from 0 to E.
            col: [E], the source of every edge.
            num_src: Number of sources; None means ``num_dst``.

        Raises:
            ArgumentError: A shape, dtype or device is wrong, or ``rowptr`` does not ascend from 0 to E.
            IndexRangeError: A source is negative or too large.
        """
        return Graph(build.from_csr(rowptr, col, num_src))

    @staticmethod
    def from_index(index: Tensor, num_rows: int) -> "Graph":
        """Make a graph from an index: entry e is an edge from row e to row ``index[e]``; see :mod:`.index`.

        The edges are in the order of their rows, not of the index.

        Args:
            index: [E], int32 or int64.
            num_rows: Number of destinations.

        Raises:
            ArgumentError: The shape or dtype is wrong, or there are too many entries or rows.
            IndexRangeError: An entry is negative or too large.
        """
        return Graph(from_index(index, num_rows))

    @staticmethod
    def from_points(
        pos: Tensor,
        *,
        k: int | None = None,
        radius: float = math.inf,
        cell: Tensor | None = None,
        pbc: bool | Sequence[bool] | Tensor | None = None,
        batch: Tensor | None = None,
        ptr: Tensor | None = None,
    ) -> "PointGraph":
        """Make a graph of points and their neighbours; edges go from neighbours to points.

        Without a cell, the neighbours of a point are in the order of their distances. With a cell, they are
        all images nearer than ``radius``, also of the point itself, in the order of their numbers and then of
        their shifts. The search is exact for skewed and small cells and for points outside the cell, and
        distances are compared in float64.

        Args:
            pos: [N, D], real numbers on the CPU; [N, 3] with a cell.
            k: The maximal number of neighbours of a point: the nearest, and at equal distance those with
                lower numbers. None means all within ``radius``; with a cell, it must be None.
            radius: Neighbours are nearer than this distance, in the unit of ``pos``. A point at exactly this
                distance is no neighbour, as in ASE and matscipy.
            cell: [3, 3], or [B, 3, 3] with a cell for each structure: the vectors of the cell are its rows,
                in the unit of ``pos``. None means that nothing repeats.
            pbc: Which vectors of the cell repeat: one boolean, three, or [B, 3]. None means all vectors of a
                given cell. The other vectors have no effect, and may be 0.
            batch: [N], int64 or int32: the number of the structure of each point, ascending. Structures are
                searched separately. None means one structure.
            ptr: [B + 1], int64: the bounds of the structures, instead of ``batch``.

        Raises:
            ArgumentError: A shape, dtype or device does not fit, a coordinate is not finite, ``k`` or
                ``radius`` is negative, or both are omitted; ``pbc`` is given without a cell, both ``batch``
                and ``ptr`` are given, or the vectors that repeat are linearly dependent; ``radius`` is not
                finite and above 0 with a cell, or so large that the neighbours do not fit in memory.

        Examples:
            >>> import onehop, torch
            >>> onehop.Graph.from_points(torch.tensor([[0.0], [1.0], [5.0]]), k=1).edge_index()
            tensor([[1, 0, 1],
                    [0, 1, 2]])
            >>> atom, cell = torch.zeros(1, 3), torch.diag(torch.tensor([1.0, 3.0, 3.0]))
            >>> graph = onehop.Graph.from_points(atom, radius=1.5, cell=cell)  # its own images
            >>> graph.edge_index().tolist(), graph.shifts.tolist()
            ([[0, 0], [0, 0]], [[-1, 0, 0], [1, 0, 0]])
        """
        if batch is not None:
            if ptr is not None:
                raise ArgumentError("batch, ptr: expected at most one of them.")
            ptr = structures_of(batch, pos, cell)
        return PointGraph(PointRows.of(pos, k, radius, cell, pbc, ptr))

    @staticmethod
    def from_scipy(matrix: Any) -> "Graph":
        """Make a graph from a SciPy sparse matrix or array of shape (num_dst, num_src).

        An entry in row i and column j is an edge from source j to destination i. Values are ignored, stored
        zeros are edges, and duplicates in a COO matrix stay separate edges. The edge order is the order of
        the matrix's arrays (``matrix.data``), so ``torch.from_numpy(matrix.data)`` is the weight.

        Raises:
            ArgumentError: ``matrix`` is not a two-dimensional SciPy sparse matrix, or its arrays contradict
                each other.
            IndexRangeError: A row or a column is outside the matrix.

        Examples:
            >>> import onehop, scipy.sparse
            >>> graph = onehop.Graph.from_scipy(scipy.sparse.csr_array([[0, 0, 5], [7, 0, 0]]))
            >>> graph, graph.edge_index().tolist()
            (Graph(num_src=3, num_dst=2, num_edges=2), [[2, 0], [0, 1]])
        """
        return Graph(build.from_scipy(matrix))

    @staticmethod
    def from_dgl(graph: Any) -> "Graph":
        """Make a graph from a DGLGraph with one edge type, on the same device; see :mod:`.dgl_edges`."""
        edge_index, size = dgl_edges.edges_of(graph)
        return Graph.from_edge_index(edge_index, size=size)

    @staticmethod
    def load(path: str | os.PathLike[str], key: str | None = None) -> "Graph":
        """Load a graph from a file; see :mod:`onehop.files` for the formats.

        Args:
            path: The file.
            key: The name of the matrix in a ``.mat`` file with several; None means the usual one.

        Raises:
            ArgumentError: ``key`` is given for another format, or the file has no sparse matrix with that
                name.
            FileNotFoundError: There is no such file.
            FileFormatError: The file is truncated, malformed or of an unknown kind.
        """
        edge_index, size = reading.read(path, key)
        return Graph.from_edge_index(edge_index, size=size)

    @property
    def rowptr(self) -> Tensor:
        """The bounds of each destination's edges, [num_dst + 1], int64; must not be written to."""
        return self.csr.rowptr

    @property
    def col(self) -> Tensor:
        """The source of every edge, destination by destination, [E], int32; must not be written to."""
        return self.csr.col

    @property
    def perm(self) -> Tensor | None:
        """The caller's number of every edge, [E], int32 or int64; None if the orders agree."""
        return self.csr.perm

    @property
    def csr(self) -> "native.extension.Csr":
        """The native graph, for kernels; made on first use if the graph is of an index or on a device."""
        if self._csr is None:
            with self.lock:
                if self._csr is None and self.index is not None:
                    self._csr = self.index.native()
                elif self._csr is None:
                    assert self.made_on is not None
                    self._csr = build.on_host(self.on(self.made_on))
        csr: native.extension.Csr = self._csr
        return csr

    @property
    def transposed_csr(self) -> Any:
        """The native transposed graph, whose rows are sources, for kernels; made on first use and cached."""
        if self._transpose is None:
            with self.lock:
                if self._transpose is None:
                    wide = self.num_edges > thresholds.now.wide_edges
                    self._transpose = self.csr.transpose(wide, native.threads())
        return self._transpose

    def on(self, device: torch.device, transposed: bool = False) -> placed.PlacedCsr:
        """Return the rows on a device, for kernels there; they are made on first use and cached.

        Args:
            device: The device, with its number.
            transposed: Whether rows are sources.
        """
        return placed.rows_of(self, device, transposed)

    def keep(self, key: Hashable, value: Any, device: torch.device) -> None:
        """Store data on a device that were made from this graph in :attr:`derived`.

        Data that are made while calls are captured get contents only when the calls are replayed, so they are
        not stored.
        """
        if not capturing(device):
            self.derived[key] = value

    def transpose(self) -> "Graph":
        """Return the graph with reversed edges, in the same edge order; it shares this graph's arrays."""
        if self.made_on is not None:
            turned = Graph(self.on(self.made_on, transposed=True))
            turned.derived[placed.key(self.made_on, True)] = self.on(self.made_on)
            return turned
        turned = Graph(self.transposed_csr)
        turned._transpose = self.csr
        return turned

    @property
    def num_nodes(self) -> int:
        """The number of nodes, if sources and destinations are the same nodes.

        Raises:
            ArgumentError: The graph has different numbers of sources and destinations.
        """
        return _num_nodes(self)

    @property
    def in_degrees(self) -> Tensor:
        """The number of edges that end at each destination, [num_dst], int64."""
        return self.rowptr.diff()

    @property
    def out_degrees(self) -> Tensor:
        """The number of edges that start at each source, [num_src], int64."""
        return torch.bincount(self.col, minlength=self.num_src)

    def inverse_in_degrees(self, dtype: torch.dtype) -> Tensor:
        """Return 1 / max(in-degree, 1), [num_dst], cached for each dtype."""
        if dtype not in self._inverse_in_degrees:
            self._inverse_in_degrees[dtype] = self.in_degrees.clamp_(min=1).to(dtype).reciprocal_()
        return self._inverse_in_degrees[dtype]

    @cached_property
    def statistics(self) -> GraphStatistics:
        """Degrees and other statistics, computed on first use."""
        return GraphStatistics.of(self.csr)

    def reorder(self, method: Order = "community") -> "Reordering[Graph]":
        """Return the graph with new node numbers, which are close for neighbours.

        Later operations on the renumbered graph become faster, in every library, but features, labels and
        masks must be renumbered too (:meth:`Reordering.apply`). ``onehop.tune`` tries orders of rows itself,
        which needs no renumbering.

        Args:
            method: "degree", "rcm", "community" or "metis", see :func:`onehop.graph.orders.node_orders`.

        Raises:
            ArgumentError: The method is unknown.
            ConfigurationError: The method is "metis" and pymetis is not installed.

        Examples:
            >>> import onehop, torch
            >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 1, 2], [3, 3, 3]]))
            >>> reordered = graph.reorder("degree")
            >>> reordered.graph.edge_index().tolist()  # node 3, which has most edges, is node 0 now
            [[1, 2, 3], [0, 0, 0]]
        """
        return reordered(self.csr, method, Graph.from_edge_index)

    def edge_index(self) -> Tensor:
        """Return a new tensor, [2, E], int64, of sources and destinations in the caller's edge order."""
        return edges.edge_index_of(self.csr)

    def save(self, folder: str | os.PathLike[str]) -> "StoredGraph":
        """Store the graph in a new folder, with its edges in row order; see :func:`.stored.write`."""
        step = max(folders.PIECE * max(self.num_dst, 1) // max(self.num_edges, 1), 1)
        blocks = folders.blocks_of(self.rowptr, self.col, step)
        folders.write(folder, self.num_src, ((degrees, col) for _, degrees, col in blocks))
        return StoredGraph.open(folder)

    @staticmethod
    def open(folder: str | os.PathLike[str]) -> "StoredGraph":
        """Open a graph that stays on disk; see :meth:`onehop.graph.stored.StoredGraph.open`."""
        return StoredGraph.open(folder)

    def to_scipy(self, weight: Tensor | None = None) -> "scipy.sparse.coo_array":
        """Return the graph as a SciPy COO array of shape (num_dst, num_src), in the caller's edge order.

        Args:
            weight: [E], the values; None means ones.

        Raises:
            ArgumentError: ``weight`` does not have one entry per edge.
        """
        return edges.as_scipy(self.edge_index(), (self.num_dst, self.num_src), weight)

    @property
    def nbytes(self) -> int:
        """The bytes of all existing arrays: the graph, its transpose if made, and other cached data."""
        return sum(self.nbytes_by_device.values())

    @property
    def nbytes_by_device(self) -> dict[torch.device, int]:
        """The bytes on each device."""
        index = None if self.index is None else self.index.numbers
        return bytes_of_graph([self._csr, self._transpose, *self.ordered.values()], index, self.derived)

    def __repr__(self) -> str:
        nodes = f"num_nodes={self.num_dst}"
        if self.num_src != self.num_dst:
            nodes = f"num_src={self.num_src}, num_dst={self.num_dst}"
        return f"Graph({nodes}, num_edges={self.num_edges})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the graph as its list of edges."""
        return (Graph.from_edge_index, (self.edge_index(), None, (self.num_src, self.num_dst)))


class PointGraph(Graph):
    """A graph of points and their neighbours in space; see :meth:`Graph.from_points`.

    Examples:
        >>> import onehop, torch
        >>> pos, cell = torch.tensor([[0.0, 0, 0], [3.5, 0, 0]]), 4 * torch.eye(3)
        >>> graph = onehop.Graph.from_points(pos, radius=1.0, cell=cell)
        >>> graph.edge_index().tolist(), graph.shifts.tolist()
        ([[1, 0], [0, 1]], [[-1, 0, 0], [1, 0, 0]])
        >>> graph.vectors(pos, cell)
        tensor([[-0.5000,  0.0000,  0.0000],
                [ 0.5000,  0.0000,  0.0000]])
    """

    def __init__(self, rows: PointRows) -> None:
        """Makes a graph whose edges are in the order of the rows."""
        super().__init__(build.from_csr(rows.rowptr, rows.col, None))
        self._rows = dataclasses.replace(rows, rowptr=self.rowptr, col=self.col)

    @property
    def shifts(self) -> Tensor:
        """The times that each vector of the cell is added to the source's position, [E, D], int32."""
        return self._rows.shifts

    def vectors(self, pos: Tensor, cell: Tensor | None = None) -> Tensor:
        """Return the vector from the destination to the shifted source of each edge, [E, D].

        The vector is ``pos[source] - pos[destination] + shifts @ cell``: from the atom to its neighbour, as
        in ASE, matscipy, NequIP and SchNetPack. (In MACE, the receiver is shifted, and the vector goes from
        the sender to the receiver: its ``unit_shifts`` are ``-shifts``, and its vectors ``-vectors``.)
        Gradients flow to ``pos`` and ``cell``.

        Args:
            pos: [N, D], floating-point numbers: the positions, from which the graph was made or near them.
            cell: [3, 3] or [B, 3, 3]: the cell; None for a graph that was made without one.

        Raises:
            ArgumentError: A shape, dtype or device does not fit, or ``cell`` is missing or superfluous.
        """
        return self._rows.vectors(pos, cell)

    def lengths(self, pos: Tensor, cell: Tensor | None = None) -> Tensor:
        """Return the length of the vector of each edge, [E]; see :meth:`vectors`.

        All derivatives of a length of 0 are 0.
        """
        return lengths_of(self.vectors(pos, cell))

    @property
    def nbytes_by_device(self) -> dict[torch.device, int]:
        """The bytes on each device."""
        totals = super().nbytes_by_device
        totals[native.CPU] += bytes_held([self._rows.bounds, self._rows.times])[native.CPU]
        return totals

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the graph as its rows."""
        return (PointGraph, (self._rows,))


class StoredGraph(folders.StoredRows):
    """A graph in a folder. Only the part that is being read is in memory.

    Attributes:
        folder: The path of the folder.
        num_src: Number of sources.
        num_dst: Number of destinations.
        num_edges: Number of edges.
        identity: Identifies this stored graph.
    """

    __slots__ = ()

    @property
    def num_nodes(self) -> int:
        """The number of nodes, if sources and destinations are the same nodes.

        Raises:
            ArgumentError: The graph has different numbers of sources and destinations.
        """
        return _num_nodes(self)

    @property
    def in_degrees(self) -> Tensor:
        """The number of edges that end at each destination, [num_dst], int64."""
        return torch.from_numpy(np.diff(self.rowptr))

    @property
    def out_degrees(self) -> Tensor:
        """The number of edges that start at each source, [num_src], int64; every call reads all edges.

        Raises:
            FileFormatError: The files contradict each other.
        """
        degrees = torch.zeros(self.num_src, dtype=torch.int64, device="cpu")
        for _, _, sources in self.blocks():
            degrees += torch.bincount(sources, minlength=self.num_src)
        return degrees

    def load(self) -> Graph:
        """Load the whole graph into memory.

        Raises:
            ArgumentError: ``rowptr`` does not ascend.
            IndexRangeError: A source is outside the graph.
        """
        rowptr, col = (torch.from_numpy(np.array(array)) for array in (self.rowptr, self.col))
        return Graph.from_csr(rowptr, col, self.num_src)


def _num_nodes(graph: Graph | StoredGraph) -> int:
    if graph.num_src != graph.num_dst:
        raise ArgumentError(
            f"num_nodes: the graph has {graph.num_src} sources and {graph.num_dst} destinations; use num_src "
            "or num_dst."
        )
    return graph.num_dst


def by_number(number: int) -> Graph:
    """Return the graph with this number.

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
