"""The work of each core and tasklet under a plan; counted.py counts it on a graph."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from onehop.errors import ArgumentError
from onehop.machines.common.checks import check

_MOST_PARTS = 4096


@dataclass(frozen=True, slots=True)
class CutRule:
    """The cut of one part: the fields of a plan on which the cut depends.

    Attributes:
        cores: Number of cores in a cluster.
        tasklets: Number of tasklets in a core.
        coo: True for COO, false for CSR.
        cores_by_edge: Whether the core balance is "edge".
        threads_by_edge: Whether the thread balance is "edge".
        row_granule: CSR: rows of a thread are cut at multiples of this number.
    """

    cores: int
    tasklets: int
    coo: bool
    cores_by_edge: bool
    threads_by_edge: bool
    row_granule: int

    @property
    def straddling(self) -> bool:
        """Return whether neighbouring cores may share a row."""
        return self.coo and self.cores_by_edge


@dataclass(frozen=True, slots=True)
class WorkCounts:
    """The work of every core and tasklet, for every part, cut by one rule.

    Attributes:
        edges: [parts, cores, tasklets], number of edges.
        rows: [parts, cores, tasklets], number of rows.
        filled: [parts, cores, tasklets], number of rows that are not empty.
        core_rows: [parts, cores], rows of each core's block of results.
        hub_edges: [parts, cores, tasklets], edges whose sources are kept in working memory; None means zero.
        copies: [parts, 1, tasklets], number of tasklets that an entry represents; None means one.
    """

    edges: np.ndarray
    rows: np.ndarray
    filled: np.ndarray
    core_rows: np.ndarray
    hub_edges: np.ndarray | None = None
    copies: np.ndarray | None = None

    @property
    def core_edges(self) -> np.ndarray:
        """Return [parts, cores]: edges of each core."""
        return self.of_core(self.edges)

    @property
    def tasklets(self) -> np.ndarray:
        """Return [parts, 1] or [1, 1]: tasklets of a core."""
        copies = np.ones((1, 1, self.edges.shape[-1])) if self.copies is None else self.copies
        total: np.ndarray = copies.sum(axis=2)
        return total

    def of_core(self, each: np.ndarray) -> np.ndarray:
        """Return [parts, cores]: the sum of [parts, cores, tasklets] over a core's tasklets."""
        total: np.ndarray = (each if self.copies is None else each * self.copies).sum(axis=2)
        return total


class Shapes(Protocol):
    """A source of work counts."""

    @property
    def num_src(self) -> int:
        """Number of sources."""
        ...

    @property
    def num_dst(self) -> int:
        """Number of destinations."""
        ...

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        ...

    def part_columns(self, parts: int, cut: str) -> np.ndarray:
        """Return [parts]: number of columns in each part."""
        ...

    def counts(self, parts: int, cut: str, rule: CutRule) -> WorkCounts:
        """Return the work counts under a rule."""
        ...

    def hub_edges(self, parts: int, cut: str, rule: CutRule, hubs: int) -> np.ndarray:
        """Return [parts, cores, tasklets]: edges from the ``hubs`` sources of a part with the most edges."""
        ...

    def largest_rows(self, parts: int, cut: str) -> np.ndarray:
        """Return [parts]: number of edges in the longest row."""
        ...


@dataclass(frozen=True, slots=True)
class BalancedShapes:
    """A graph of which only the size is known; all work is assumed to be perfectly balanced.

    Attributes:
        num_src: Number of sources.
        num_dst: Number of destinations.
        num_edges: Number of edges.
    """

    num_src: int
    num_dst: int
    num_edges: int

    def __post_init__(self) -> None:
        """Check that the sizes are non-negative integers, and that edges have ends.

        Raises:
            ArgumentError: A size is wrong.
        """
        check(self, error=ArgumentError, least=dict.fromkeys(("num_src", "num_dst", "num_edges"), 0))
        if self.num_edges and not (self.num_src and self.num_dst):
            raise ArgumentError(
                f"num_edges: {self.num_edges} edges need at least one source and one destination, got "
                f"num_src={self.num_src} and num_dst={self.num_dst}."
            )

    def part_columns(self, parts: int, cut: str) -> np.ndarray:
        """Return [parts]: number of columns in each part."""
        return np.diff(equal_bounds(self.num_src, parts))

    def largest_rows(self, parts: int, cut: str) -> np.ndarray:
        """Return [parts]: number of edges per row; all rows are equal."""
        return np.full(parts, self.num_edges / parts / max(self.num_dst, 1))

    def hub_edges(self, parts: int, cut: str, rule: CutRule, hubs: int) -> np.ndarray:
        """Return [parts, cores, tasklets]: edges from hubs; all sources have equally many edges."""
        share = np.minimum(hubs / np.maximum(self.part_columns(parts, cut), 1), 1.0)
        edges: np.ndarray = self.counts(parts, cut, rule).edges * share[:, None, None]
        return edges

    def counts(self, parts: int, cut: str, rule: CutRule) -> WorkCounts:
        """Return equal counts for all tasklets, including fractions."""
        shape = (parts, rule.cores, rule.tasklets)
        edges = self.num_edges / parts / rule.cores / rule.tasklets
        rows = self.num_dst / rule.cores / rule.tasklets
        return WorkCounts(
            np.full(shape, edges),
            np.full(shape, rows),
            np.full(shape, min(rows, edges)),
            np.full(shape[:2], np.ceil(self.num_dst / rule.cores)),
        )


def equal_bounds(columns: int, parts: int) -> np.ndarray:
    """Return [parts + 1]: blocks of ceil(columns / parts) columns; the last are smaller or empty."""
    _check_parts(parts)
    step = -(-columns // parts)
    return np.minimum(np.arange(parts + 1, dtype=np.int64) * step, columns)


def edge_bounds(out_degrees: np.ndarray, parts: int) -> np.ndarray:
    """Return [parts + 1]: blocks of columns with about equally many edges."""
    _check_parts(parts)
    before = np.concatenate([[0], np.cumsum(out_degrees)])
    shares = np.arange(1, parts) * (before[-1] / parts)
    inner = np.searchsorted(before, shares)
    bounds: np.ndarray = np.concatenate([[0], inner, [len(out_degrees)]]).astype(np.int64)
    return bounds


def _check_parts(parts: int) -> None:
    if parts > _MOST_PARTS:
        raise ArgumentError(f"plan: sp * block_rounds must be at most {_MOST_PARTS}, got {parts}.")
