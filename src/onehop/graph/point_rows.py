"""Neighbours of points as rows, and the vectors between them as autograd records them."""

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.native import CPU
from onehop.points.periodic import (
    DIMS,
    PeriodicAtoms,
    PeriodicRows,
    booleans,
    checked_cell,
    checked_radius,
    neighbours_of,
)
from onehop.points.search import neighbours

_MATRIX = 2


@dataclasses.dataclass(frozen=True, slots=True)
class PointRows:
    """The neighbours of each point, as compressed sparse rows.

    Attributes:
        rowptr: [N + 1], int64: the bounds of each point's neighbours.
        col: [E], int64 or int32: the numbers of the neighbours.
        bounds: [B + 1], int64: the bounds of the structures.
        dims: D, the number of coordinates of a point.
        times: [E, 3], int32: how often each vector of the cell is added to the neighbour's position; None
            without a cell.
    """

    rowptr: Tensor
    col: Tensor
    bounds: Tensor
    dims: int
    times: Tensor | None = None

    @classmethod
    def of(
        cls,
        pos: Tensor,
        k: int | None,
        radius: float,
        cell: Tensor | None,
        pbc: bool | Sequence[bool] | Tensor | None,
        bounds: Tensor | None,
    ) -> "PointRows":
        """Find the neighbours of points; see :meth:`onehop.Graph.from_points`."""
        if cell is not None:
            if k is not None:
                raise ArgumentError(f"k: with a cell, expected None, got {k}; give a radius alone.")
            atoms = PeriodicAtoms.of(pos, cell, pbc, bounds)
            return cls.in_cells(neighbours_of(atoms, checked_radius("radius", radius)), atoms)
        check_nothing_repeats(pbc)
        if k is None and radius == math.inf:
            raise ArgumentError("k, radius: expected at least one of them.")
        rowptr, col = neighbours("pos", pos, k, radius, bounds)
        if bounds is None:
            bounds = torch.tensor([0, len(pos)], device=CPU)
        return cls(rowptr, col, bounds, pos.size(1) if pos.dim() > 1 else 1)

    @classmethod
    def in_cells(cls, rows: PeriodicRows, atoms: PeriodicAtoms) -> "PointRows":
        """Return neighbours in cells."""
        return cls(rows.rowptr, rows.col, atoms.bounds, DIMS, rows.shifts)

    @property
    def shifts(self) -> Tensor:
        """[E, D], int32; see :attr:`onehop.graph.PointGraph.shifts`."""
        if self.times is None:
            return torch.zeros(self.col.numel(), self.dims, dtype=torch.int32, device=CPU)
        return self.times

    def vectors(self, pos: Tensor, cell: Tensor | None) -> Tensor:
        """Return the vector of each edge, [E, D]; see :meth:`onehop.graph.PointGraph.vectors`."""
        count = self.rowptr.numel() - 1
        if not isinstance(pos, Tensor) or pos.shape != (count, self.dims) or not pos.is_floating_point():
            kind = (
                f"{pos.dtype} of shape {list(pos.shape)}" if isinstance(pos, Tensor) else type(pos).__name__
            )
            raise ArgumentError(
                f"pos: expected floating-point numbers of shape [{count}, {self.dims}], got {kind}."
            )
        if (cell is None) != (self.times is None):
            reason = "with a cell; give it" if cell is None else "without a cell; omit it"
            raise ArgumentError(f"cell: the graph was made {reason}.")
        source = self.col.long().to(pos.device)
        target = torch.repeat_interleave(self.rowptr.diff()).to(pos.device)
        vectors = pos.index_select(0, source) - pos.index_select(0, target)
        if cell is None or self.times is None:
            return vectors
        cell = checked_cell(cell, self.bounds.numel() - 1, pos.device).to(pos.dtype)
        structure = None
        if cell.dim() > _MATRIX:
            of_points = torch.repeat_interleave(self.bounds.diff()).to(pos.device)
            structure = of_points.index_select(0, target)
        times = self.times.to(device=pos.device, dtype=pos.dtype)
        # The sum is in this order, without fused products, as in the search.
        offset: Tensor | None = None
        for axis in range(DIMS):
            along = cell[axis] if structure is None else cell[:, axis].index_select(0, structure)
            part = times[:, axis : axis + 1] * along
            offset = part if offset is None else offset + part
        assert offset is not None
        return vectors + offset


def structures_of(batch: Tensor, pos: Tensor, cell: Tensor | None) -> Tensor:
    """Return the bounds of structures, [B + 1], int64, from the structure of each point.

    Args:
        batch: [N], int64 or int32 on the CPU: numbers of structures, which ascend.
        pos: [N, D].
        cell: [B, 3, 3] if there are cells for B structures; otherwise B is one more than the largest number.

    Raises:
        ArgumentError: The shape, dtype or device of ``batch`` does not fit, or the numbers do not ascend from
            0 or more to at most B - 1.
    """
    if not isinstance(batch, Tensor) or batch.dtype not in (torch.int64, torch.int32) or not batch.is_cpu:
        kind = batch.dtype if isinstance(batch, Tensor) else type(batch).__name__
        raise ArgumentError(f"batch: expected an int64 or int32 tensor on the CPU, got {kind}.")
    points = pos.size(0) if isinstance(pos, Tensor) and pos.dim() else 0
    if batch.shape != (points,):
        raise ArgumentError(f"batch: expected shape [{points}], got {list(batch.shape)}.")
    batch = batch.to(torch.int64, copy=True)
    largest = int(batch[-1]) if batch.numel() else -1
    several = isinstance(cell, Tensor) and cell.dim() > _MATRIX
    structures = len(cell) if several else largest + 1  # type: ignore[arg-type]
    if batch.numel() and (int(batch[0]) < 0 or largest >= structures or bool((batch.diff() < 0).any())):
        raise ArgumentError(f"batch: expected numbers that ascend and are in [0, {structures}).")
    return torch.searchsorted(batch, torch.arange(structures + 1, device=CPU))


def check_nothing_repeats(pbc: bool | Sequence[bool] | Tensor | None) -> None:
    """Raise if vectors of a cell repeat; there is no cell.

    Raises:
        ArgumentError: An entry of ``pbc`` is true.
    """
    if pbc is not None and bool(booleans(pbc).any()):
        raise ArgumentError(f"pbc: expected None or False without a cell, got {pbc!r}.")


def lengths_of(vectors: Tensor) -> Tensor:
    """Return the length of each vector, [E]; all derivatives of a length of 0 are 0."""
    squared = vectors.square().sum(1)
    zero = squared == 0
    return squared.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)
