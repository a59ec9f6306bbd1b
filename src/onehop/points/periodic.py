"""Neighbours of atoms in cells that repeat: all images of all atoms that are nearer than a distance.

An image of atom j, shifted by the integers s, is at ``(pos[j] - pos[i]) + s @ cell`` from atom i. It is a
neighbour if the sum of the squares of this vector, in float64, is below the square of the radius. An image at
exactly this distance is no neighbour, as in ASE and matscipy. Atom i itself is none; its other images are.
``csrc/points/periodic.cpp`` finds them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop import config
from onehop.errors import ArgumentError
from onehop.native import CPU, address, empty, extension, threads
from onehop.points.clouds import Clouds
from onehop.sizes import readable

DIMS = 3
# Products of three such lengths are finite.
_LARGEST = 1e100
# Bytes of arrays for an image of an atom, while neighbours are searched, and for a neighbour in a graph.
_IMAGE_BYTES = 112
_EDGE_BYTES = 20
_MOST_IMAGES = 2**31 - 1
# Numbers of onehop::PeriodicError in csrc/include/onehop/periodic.hpp.
_SINGULAR, _TOO_FAR, _TOO_MANY_IMAGES = 1, 2, 3


@dataclass(frozen=True, slots=True)
class PeriodicAtoms:
    """Atoms of structures, each with a cell.

    Attributes:
        pos: [N, 3], float64; a copy of the caller's.
        bounds: [B + 1], int64: structure b is atoms ``bounds[b]`` to ``bounds[b + 1]``.
        cells: [B, 3, 3], float64: the vectors of each cell are its rows.
        periodic: [B, 3], bool: which of these vectors repeat.
    """

    pos: Tensor
    bounds: Tensor
    cells: Tensor
    periodic: Tensor

    @classmethod
    def of(
        cls, pos: Tensor, cell: Tensor, pbc: bool | Sequence[bool] | Tensor | None, bounds: Tensor | None
    ) -> "PeriodicAtoms":
        """Check atoms and their cells.

        Args:
            pos: [N, 3], real numbers on the CPU.
            cell: [3, 3], or [B, 3, 3]: a cell for each structure.
            pbc: Which vectors of the cell repeat: one boolean, three, or [B, 3]; None means all.
            bounds: [B + 1], int64: the bounds of the structures; None means one structure.

        Raises:
            ArgumentError: A shape, dtype or device does not fit, or a number is not finite or too large.
        """
        clouds = Clouds.of("pos", pos, bounds)
        if clouds.points.size(1) != DIMS or pos.dim() == 1:
            raise ArgumentError(f"pos: with a cell, expected shape [N, 3], got {list(pos.shape)}.")
        count = clouds.sizes.numel()
        cells = checked_cell(cell, count, CPU).detach().to(torch.float64).expand(count, DIMS, DIMS).clone()
        # Comparisons with NaN are false.
        if not bool((cells.abs() < _LARGEST).all()):
            raise ArgumentError(f"cell: expected finite numbers below {_LARGEST:g}, got {cell.tolist()}.")
        # Native code reads positions more than once, and another thread might write to the caller's.
        return cls(clouds.points.clone(), clouds.bounds, cells, _periodic_of(pbc, count))

    def native(self, radius: float) -> Any:
        """Return the atoms for native code; they are valid as long as ``self`` exists."""
        atoms = extension.PeriodicAtoms()
        atoms.positions, atoms.bounds = address(self.pos), address(self.bounds)
        atoms.cells, atoms.periodic = address(self.cells), address(self.periodic)
        atoms.structures, atoms.radius = self.bounds.numel() - 1, radius
        return atoms


@dataclass(frozen=True, slots=True)
class PeriodicRows:
    """The neighbours of each atom, by their numbers and then by their shifts, as compressed sparse rows.

    Attributes:
        rowptr: [N + 1], int64: the bounds of each atom's neighbours.
        col: [E], int32: the numbers of the neighbours.
        shifts: [E, 3], int32: how often each vector of the cell is added to the neighbour's position.
    """

    rowptr: Tensor
    col: Tensor
    shifts: Tensor


def checked_cell(cell: Tensor, structures: int, device: torch.device) -> Tensor:
    """Return the cell, [3, 3] or [B, 3, 3], if it fits the number of structures.

    Raises:
        ArgumentError: The shape, dtype or device does not fit.
    """
    if not isinstance(cell, Tensor) or cell.layout is not torch.strided or cell.device != device:
        raise ArgumentError(
            f"cell: expected a dense tensor on {device}, such as torch.as_tensor(atoms.cell.array); got "
            f"{f'one on {cell.device}' if isinstance(cell, Tensor) else type(cell).__name__}."
        )
    if cell.shape not in ((DIMS, DIMS), (structures, DIMS, DIMS)) or cell.is_complex():
        raise ArgumentError(
            f"cell: expected real numbers of shape [3, 3] or [{structures}, 3, 3], for {structures} "
            f"structures, got {cell.dtype} of shape {list(cell.shape)}."
        )
    return cell


def checked_radius(name: str, radius: float) -> float:
    """Return a distance as a float.

    Raises:
        ArgumentError: The distance is not finite or not above 0.
    """
    try:
        value = float(radius)
    except (TypeError, ValueError):
        value = math.nan
    # The negation is true for NaN.
    if not 0 < value < math.inf:
        raise ArgumentError(f"{name}: with a cell, expected a finite distance above 0, got {radius}.")
    return value


def booleans(pbc: bool | Sequence[bool] | Tensor) -> Tensor:
    """Return which vectors of cells repeat as a tensor of booleans, in the shape that they have.

    Raises:
        ArgumentError: There is something else than booleans.
    """
    try:
        periodic = torch.as_tensor(pbc, device=CPU)
    except (TypeError, ValueError, RuntimeError):
        periodic = None
    if periodic is None or periodic.dtype is not torch.bool:
        raise ArgumentError(f"pbc: expected a boolean, three, or [B, 3], got {pbc!r}.")
    return periodic


def _periodic_of(pbc: bool | Sequence[bool] | Tensor | None, structures: int) -> Tensor:
    """Return [B, 3], bool: which vectors of each structure's cell repeat."""
    periodic = booleans(True if pbc is None else pbc)
    if periodic.shape not in ((), (DIMS,), (structures, DIMS)):
        raise ArgumentError(
            f"pbc: expected a boolean, three, or a tensor of shape [{structures}, 3] for {structures} "
            f"structures, got shape {list(periodic.shape)}."
        )
    return periodic.expand(structures, DIMS).clone()


def neighbours_of(atoms: PeriodicAtoms, radius: float) -> PeriodicRows:
    """Find all images of atoms that are nearer than a distance.

    Args:
        atoms: The atoms. Images of an atom are neighbours of atoms of its own structure.
        radius: The distance, in the unit of the positions: finite and above 0.

    Raises:
        ArgumentError: A cell is singular, an atom is too many cells away from the origin, or the neighbours,
            or the images among which they are searched, do not fit in this machine's memory.
    """
    search, native = extension.PeriodicSearch(), atoms.native(radius)
    memory = config.physical_memory_bytes()
    most_images = min(memory // _IMAGE_BYTES, _MOST_IMAGES)
    error = search.prepare(native, most_images, threads())
    if error:
        raise _refusal(error, atoms, radius, search.wrong_structure, most_images)
    count = atoms.pos.size(0)
    rowptr = torch.empty(count + 1, dtype=torch.int64, device=CPU)
    edges = search.count(address(rowptr), memory // _EDGE_BYTES, threads())
    if edges < 0:
        raise ArgumentError(
            f"radius: the {count} atoms have more than {memory // _EDGE_BYTES} neighbours nearer than "
            f"{radius:g}, too many for this machine's memory, {readable(memory)}. Give a smaller radius."
        )
    out, rows = _room(rowptr, edges)
    search.write(out, threads())
    return rows


def nearer(atoms: PeriodicAtoms, rows: PeriodicRows, radius: float) -> PeriodicRows:
    """Return those of the neighbours that are nearer than a distance, at the atoms' present positions.

    Args:
        atoms: The atoms; as many as rows.
        rows: Neighbours that were found at other positions, perhaps, and for a larger distance.
        radius: The distance: finite and above 0.
    """
    native, all_rows = atoms.native(radius), extension.PeriodicRows()
    all_rows.rowptr, all_rows.col = address(rows.rowptr), address(rows.col)
    all_rows.shifts = address(rows.shifts)
    rowptr = torch.empty_like(rows.rowptr)
    near = torch.empty(rows.col.numel(), dtype=torch.bool, device=CPU)
    edges = extension.count_nearer(native, all_rows, address(near), address(rowptr), threads())
    out, kept = _room(rowptr, edges)
    extension.write_nearer(atoms.pos.size(0), all_rows, address(near), out, threads())
    return kept


def _room(rowptr: Tensor, edges: int) -> tuple[Any, PeriodicRows]:
    """Return arrays for neighbours, for native code and for Python."""
    # Large arrays come from the memory pool, which has floating-point numbers alone.
    col = empty((edges,), torch.float32).view(torch.int32)
    shifts = empty((edges, DIMS), torch.float32).view(torch.int32)
    out = extension.PeriodicOut()
    out.rowptr, out.col, out.shifts = address(rowptr), address(col), address(shifts)
    return out, PeriodicRows(rowptr, col, shifts)


def _refusal(error: int, atoms: PeriodicAtoms, radius: float, structure: int, most: int) -> ArgumentError:
    cell, periodic = atoms.cells[structure].tolist(), atoms.periodic[structure].tolist()
    if error == _SINGULAR:
        return ArgumentError(
            f"cell: the vectors of structure {structure} that repeat are linearly dependent, or more than "
            f"2**30 times as long as those of the same lattice's shortest cell: {cell}, pbc {periodic}."
        )
    if error == _TOO_FAR:
        return ArgumentError(
            f"pos: images of atoms of structure {structure} are shifted by more than 2**29 vectors of its "
            f"cell: {cell}. Move the atoms into the cell, and give the shortest cell of the lattice."
        )
    assert error == _TOO_MANY_IMAGES
    return ArgumentError(
        f"radius: within {radius:g} of the atoms of structures 0 to {structure} there are more than {most} "
        f"images of atoms, the most that are searched on this machine; the cell of structure {structure} is "
        f"{cell}, pbc {periodic}. Give a smaller radius."
    )
