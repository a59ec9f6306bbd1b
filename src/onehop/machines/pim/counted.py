"""The work of each core and tasklet, counted for a given graph."""

import weakref
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from onehop import native
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.machines.native import extension
from onehop.machines.pim.shapes import CutRule, WorkCounts, edge_bounds, equal_bounds

# Minimum number of columns that the kernel reads ahead.
_PADDING = 16
# Maximum size in bytes of the counts that a graph's shapes may cache.
_KEPT_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class Cuts:
    """Positions of each part's pieces, in the form that the native code writes and reads.

    Attributes:
        core_rows: [parts, 2, cores], int64.
        tasklets: [parts, 5, cores, tasklets], int64: edge begin, edge end, row begin, row end, filled.
    """

    core_rows: np.ndarray
    tasklets: np.ndarray

    def counts(self) -> WorkCounts:
        """Return the sizes of the pieces."""
        t = self.tasklets
        return WorkCounts(
            t[:, 1] - t[:, 0], t[:, 3] - t[:, 2], t[:, 4], self.core_rows[:, 1] - self.core_rows[:, 0]
        )


@dataclass(frozen=True, slots=True)
class Parts:
    """A graph cut into blocks of columns.

    Attributes:
        bounds: [parts + 1], int64: the columns at which the parts begin, and the end.
        positions: [parts, rows + 1], int64: positions of each row's edges in each part.
        filled: [parts, rows + 1], int32: number of non-empty rows before each row.
        largest_row: [parts]: number of edges in the longest row.
    """

    bounds: np.ndarray
    positions: np.ndarray
    filled: np.ndarray
    largest_row: np.ndarray

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.positions.nbytes + self.filled.nbytes


class GraphShapes:
    """Counts of a graph, cached up to a limit."""

    def __init__(self, graph: Graph) -> None:
        self.num_src, self.num_dst, self.num_edges = graph.num_src, graph.num_dst, graph.num_edges
        # A weak reference: an object that is kept with a graph must not keep the graph alive.
        self._graph = weakref.ref(graph)
        self._parts: OrderedDict[tuple[int, str], Parts] = OrderedDict()
        self._cuts: OrderedDict[tuple[int, str, CutRule], tuple[Cuts, WorkCounts]] = OrderedDict()
        self._cuts_bytes = 0
        self._columns: tuple[tuple[int, str, bool], Tensor, Tensor | None] | None = None
        self._out_degrees: np.ndarray | None = None

    def part_columns(self, parts: int, cut: str) -> np.ndarray:
        """Return [parts]: number of columns in each part."""
        return np.diff(self.bounds(parts, cut))

    def counts(self, parts: int, cut: str, rule: CutRule) -> WorkCounts:
        """Count the edges and rows of every piece."""
        return self._cut(parts, cut, rule)[1]

    def largest_rows(self, parts: int, cut: str) -> np.ndarray:
        """Return [parts]: number of edges in the longest row."""
        return self.parts(parts, cut).largest_row

    def hub_edges(self, parts: int, cut: str, rule: CutRule, hubs: int) -> np.ndarray:
        """Return [parts, cores, tasklets]: edges from each part's ``hubs`` sources with the most edges."""
        bounds, tasklets = self.bounds(parts, cut), self.cuts(parts, cut, rule).tasklets
        col, _ = self.columns(parts, cut, with_origin=False)
        counts = np.empty((parts, rule.cores, rule.tasklets), dtype=np.int64)
        for part in range(parts):
            degrees = self.out_degrees[bounds[part] : bounds[part + 1]]
            marks = np.zeros(len(degrees), dtype=np.uint8)
            marks[np.argsort(-degrees, kind="stable")[:hubs]] = 1
            begins, ends = np.ascontiguousarray(tasklets[part, 0]), np.ascontiguousarray(tasklets[part, 1])
            extension.pim_count_marked(
                col.data_ptr(),
                marks.ctypes.data,
                begins.ctypes.data,
                ends.ctypes.data,
                begins.size,
                native.threads(),
                counts[part].ctypes.data,
            )
        return counts

    def cuts(self, parts: int, cut: str, rule: CutRule) -> Cuts:
        """Return the positions of the pieces."""
        return self._cut(parts, cut, rule)[0]

    def bounds(self, parts: int, cut: str) -> np.ndarray:
        """Return [parts + 1]: the columns at which the parts begin, and the end."""
        if cut == "equal":
            return equal_bounds(self.num_src, parts)
        return edge_bounds(self.out_degrees, parts)

    @property
    def out_degrees(self) -> np.ndarray:
        """Return [num_src]: number of edges of each source."""
        if self._out_degrees is None:
            self._out_degrees = self.graph.out_degrees.numpy()
        return self._out_degrees

    @property
    def graph(self) -> Graph:
        """The graph."""
        graph = self._graph()
        if graph is None:
            raise ArgumentError("graph: it was freed; keep the Graph while its shapes are in use.")
        return graph

    def parts(self, parts: int, cut: str) -> Parts:
        """Return the graph cut by columns."""
        key = (parts, cut)
        if key not in self._parts:
            self._parts[key] = self._count(parts, cut)
            while sum(p.nbytes for p in self._parts.values()) > _KEPT_BYTES and len(self._parts) > 1:
                self._parts.popitem(last=False)
        self._parts.move_to_end(key)
        return self._parts[key]

    def columns(self, parts: int, cut: str, with_origin: bool) -> tuple[Tensor, Tensor | None]:
        """Sort the edges by part.

        Returns:
            [E + padding], int32: columns, counted from the first column of their part; and, if requested,
            [E], int64: the edges' positions in the graph's order.
        """
        key = (parts, cut, with_origin)
        if self._columns is None or self._columns[0] != key:
            self._columns = None
            self._columns = (key, *self._fill(parts, cut, with_origin))
        return self._columns[1], self._columns[2]

    def _cut(self, parts: int, cut: str, rule: CutRule) -> tuple[Cuts, WorkCounts]:
        key = (parts, cut, rule)
        if key not in self._cuts:
            cuts = cut_parts(self.parts(parts, cut), self.num_dst, rule)
            self._cuts[key] = (cuts, cuts.counts())
            self._cuts_bytes += cuts.tasklets.nbytes
            while self._cuts_bytes > _KEPT_BYTES // 4 and len(self._cuts) > 1:
                self._cuts_bytes -= self._cuts.popitem(last=False)[1][0].tasklets.nbytes
        return self._cuts[key]

    def _part_of(self, bounds: np.ndarray) -> np.ndarray:
        return np.repeat(np.arange(len(bounds) - 1, dtype=np.uint16), np.diff(bounds))

    def _count(self, parts: int, cut: str) -> Parts:
        graph, bounds = self.graph, self.bounds(parts, cut)
        positions = np.empty((parts, self.num_dst + 1), dtype=np.int64)
        filled = np.empty((parts, self.num_dst + 1), dtype=np.int32)
        part_of = self._part_of(bounds)
        extension.pim_count_parts(
            graph.rowptr.data_ptr(),
            graph.col.data_ptr(),
            self.num_dst,
            part_of.ctypes.data,
            parts,
            native.threads(),
            positions.ctypes.data,
            filled.ctypes.data,
        )
        largest_row = np.array([np.diff(row).max(initial=0) for row in positions])
        return Parts(bounds, positions, filled, largest_row)

    def _fill(self, parts: int, cut: str, with_origin: bool) -> tuple[Tensor, Tensor | None]:
        graph, division = self.graph, self.parts(parts, cut)
        part_of, first = self._part_of(division.bounds), division.bounds[:-1].astype(np.int32)
        col = torch.zeros(self.num_edges + _PADDING, dtype=torch.int32, device="cpu")
        origin = torch.empty(self.num_edges, dtype=torch.int64, device="cpu") if with_origin else None
        extension.pim_fill_parts(
            rowptr=graph.rowptr.data_ptr(),
            col=graph.col.data_ptr(),
            rows=self.num_dst,
            part_of=part_of.ctypes.data,
            parts=parts,
            first_column=first.ctypes.data,
            threads=native.threads(),
            positions=division.positions.ctypes.data,
            part_col=col.data_ptr(),
            origin=0 if origin is None else origin.data_ptr(),
        )
        return col, origin


def cut_parts(parts: Parts, rows: int, rule: CutRule) -> Cuts:
    """Cut every part by a rule."""
    number = len(parts.bounds) - 1
    core_rows = np.empty((number, 2, rule.cores), dtype=np.int64)
    tasklets = np.empty((number, 5, rule.cores, rule.tasklets), dtype=np.int64)
    cut = extension.PimCut()
    cut.cores, cut.tasklets, cut.coo = rule.cores, rule.tasklets, rule.coo
    cut.cores_by_edge, cut.threads_by_edge = rule.cores_by_edge, rule.threads_by_edge
    cut.row_granule = rule.row_granule
    for part in range(number):
        extension.pim_cut_part(
            cut,
            parts.positions[part].ctypes.data,
            parts.filled[part].ctypes.data,
            rows,
            core_rows[part].ctypes.data,
            tasklets[part].ctypes.data,
        )
    return Cuts(core_rows, tasklets)
