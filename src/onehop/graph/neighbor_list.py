"""Neighbours of moving atoms: found for a larger radius, and kept while they cover the smaller one."""

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph.graph import PointGraph
from onehop.graph.point_rows import PointRows, check_nothing_repeats, structures_of
from onehop.native import CPU
from onehop.points.periodic import (
    DIMS,
    PeriodicAtoms,
    PeriodicRows,
    checked_radius,
    nearer,
    neighbours_of,
)

# Distances and displacements are rounded by far less than these shares of what they are computed from.
_SHARE = 1e-9
_ROUNDINGS = 256 * torch.finfo(torch.float64).eps


class NeighborList:
    """The neighbours of moving atoms, which are searched again only when atoms have moved too far.

    The search finds all neighbours within ``radius + skin``. They contain all neighbours within ``radius`` as
    long as no atom has moved by more than half of ``skin``. If the cell changes, the motion that atoms follow
    with the cell is no movement: a cell that is stretched uses up ``skin`` by how much shorter ``radius`` is
    in the earlier cell. Each call returns exactly the edges that :meth:`onehop.Graph.from_points` finds with
    a cell, in the same order.

    Examples:
        >>> import onehop.graph, torch
        >>> pos, cell = torch.tensor([[0.0, 0, 0], [3.5, 0, 0]]), 4 * torch.eye(3)
        >>> neighbors = onehop.graph.NeighborList(radius=1.0, skin=0.5)
        >>> for step in range(4):
        ...     graph = neighbors.update(pos, cell)
        ...     pos = pos + torch.tensor([[0.0], [0.05]])
        >>> graph.num_edges, neighbors.searches
        (2, 2)
    """

    def __init__(
        self,
        radius: float,
        *,
        skin: float,
        pbc: bool | Sequence[bool] | Tensor | None = None,
        batch: Tensor | None = None,
    ) -> None:
        """Makes a list that has not searched yet.

        Args:
            radius: Neighbours are nearer than this distance, in the unit of the positions.
            skin: The distance by which the search reaches farther; 0 or more.
            pbc: Which vectors of the cell repeat; see :meth:`onehop.Graph.from_points`.
            batch: [N], int64 or int32: the number of the structure of each atom, ascending; None means one
                structure.

        Raises:
            ArgumentError: ``radius`` is not finite and above 0, or ``skin`` is not finite and at least 0.
        """
        self.radius: float = checked_radius("radius", radius)
        """Neighbours are nearer than this distance."""
        if not 0 <= skin < math.inf:
            raise ArgumentError(f"skin: expected a finite distance of at least 0, got {skin}.")
        self.skin: float = float(skin)
        """The distance by which a search reaches farther."""
        self.searches: int = 0
        """Number of searches so far."""
        self._pbc, self._batch = pbc, batch
        self._atoms: PeriodicAtoms | None = None
        self._rows: PeriodicRows | None = None
        self._largest_shift = 0

    def update(self, pos: Tensor, cell: Tensor | None = None) -> PointGraph:
        """Return the graph of the neighbours at these positions.

        Args:
            pos: [N, 3], real numbers on the CPU.
            cell: [3, 3] or [B, 3, 3]: the vectors of the cell are its rows. None means that nothing repeats.

        Raises:
            ArgumentError: See :meth:`onehop.Graph.from_points`.
        """
        bounds = None if self._batch is None else structures_of(self._batch, pos, cell)
        if cell is None:
            check_nothing_repeats(self._pbc)
            nowhere = torch.zeros(DIMS, DIMS, dtype=torch.float64, device=CPU)
            atoms = PeriodicAtoms.of(pos, nowhere, False, bounds)
        else:
            atoms = PeriodicAtoms.of(pos, cell, self._pbc, bounds)
        if self._rows is None or not self._covers(atoms):
            self._rows = neighbours_of(atoms, self.radius + self.skin)
            self._atoms = atoms
            shifts = self._rows.shifts
            self._largest_shift = int(shifts.abs().max()) if shifts.numel() else 0
            self.searches += 1
        rows = PointRows.in_cells(nearer(atoms, self._rows, self.radius), atoms)
        return PointGraph(rows if cell is not None else dataclasses.replace(rows, times=None))

    def _covers(self, atoms: PeriodicAtoms) -> bool:
        """Return whether all neighbours of the atoms are among those of the last search.

        Let F map the earlier cell to the present one. A vector v between atoms of the present structure was
        at most ``|v| * |inverse of F|`` long if all atoms had moved with the cell, and at most the two atoms'
        further displacements longer. |...| is the spectral norm.
        """
        before = self._atoms
        assert before is not None
        same = torch.equal(before.bounds, atoms.bounds) and torch.equal(before.periodic, atoms.periodic)
        if not same or before.pos.shape != atoms.pos.shape:
            return False
        moved, stretched = atoms.pos, torch.ones(atoms.cells.size(0), dtype=torch.float64, device=CPU)
        structure = torch.repeat_interleave(atoms.bounds.diff())
        if not torch.equal(before.cells, atoms.cells):
            others = _perpendicular(before)
            cell_before, cell = (
                torch.where(each.periodic.unsqueeze(2), each.cells, others) for each in (before, atoms)
            )
            back = torch.linalg.inv_ex(cell).inverse @ cell_before
            if not bool(back.isfinite().all()):
                return False
            stretched = torch.linalg.matrix_norm(back, ord=2)
            moved = (atoms.pos.unsqueeze(1) @ back.index_select(0, structure)).squeeze(1)
        far = torch.zeros_like(stretched)
        far.scatter_reduce_(0, structure, (moved - before.pos).norm(dim=1), "amax")
        reach = self.radius + self.skin
        sizes = [each.abs().max() if each.numel() else far.new_zeros(()) for each in (before.pos, atoms.pos)]
        sizes += [self._largest_shift * each.cells.abs().amax() for each in (before, atoms) if len(far)]
        margin = _SHARE * reach + _ROUNDINGS * float(sum(sizes))
        return bool((self.radius * stretched + 2 * far <= reach - margin).all())


def _perpendicular(atoms: PeriodicAtoms) -> Tensor:
    """Return [B, 3, 3]: for the vectors that do not repeat, unit vectors perpendicular to those that do."""
    opened = ~atoms.periodic
    directions: Tensor = torch.linalg.svd(atoms.cells.masked_fill(opened.unsqueeze(2), 0)).Vh
    # Directions in which nothing repeats come last.
    number = (atoms.periodic.sum(1, keepdim=True) + opened.cumsum(1) - 1).clamp(min=0, max=DIMS - 1)
    return directions.gather(1, number.unsqueeze(2).expand(-1, -1, DIMS))
