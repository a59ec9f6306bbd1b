"""Vectors between points along edges, which depend on positions and cells as autograd records it."""

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.native import CPU
from onehop.points.periodic import DIMS, checked_cell

_MATRIX = 2


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
    if batch.dim() != 1 or batch.numel() != len(pos):
        raise ArgumentError(f"batch: expected shape [{len(pos)}], got {list(batch.shape)}.")
    batch = batch.to(torch.int64, copy=True)
    largest = int(batch[-1]) if batch.numel() else -1
    several = isinstance(cell, Tensor) and cell.dim() > _MATRIX
    structures = len(cell) if several else largest + 1  # type: ignore[arg-type]
    if batch.numel() and (int(batch[0]) < 0 or largest >= structures or bool((batch.diff() < 0).any())):
        raise ArgumentError(f"batch: expected numbers that ascend and are in [0, {structures}).")
    return torch.searchsorted(batch, torch.arange(structures + 1, device=CPU))


def edge_vectors(
    pos: Tensor, cell: Tensor | None, rows: tuple[Tensor, Tensor], shifts: Tensor | None, bounds: Tensor
) -> Tensor:
    """Return the vector of each edge; see :meth:`onehop.graph.PointGraph.vectors`.

    Args:
        pos: [N, D].
        cell: [3, 3] or [B, 3, 3], or None.
        rows: The bounds of each point's edges, [N + 1], and the sources, [E].
        shifts: [E, 3], or None if the points were in no cell.
        bounds: [B + 1]: the bounds of the structures.
    """
    count = rows[0].numel() - 1
    if not isinstance(pos, Tensor) or pos.dim() != _MATRIX or pos.size(0) != count or not pos.is_floating_point():
        shape = f"{pos.dtype} of shape {list(pos.shape)}" if isinstance(pos, Tensor) else type(pos).__name__
        raise ArgumentError(f"pos: expected floating-point numbers of shape [{count}, D], got {shape}.")
    if (cell is None) != (shifts is None):
        raise ArgumentError(
            "cell: expected the cell of the points, as the graph was made with one."
            if cell is None
            else "cell: expected None, because the graph was made without a cell."
        )
    source = rows[1].long().to(pos.device)
    target = torch.repeat_interleave(rows[0].diff()).to(pos.device)
    vectors = pos.index_select(0, source) - pos.index_select(0, target)
    if cell is None or shifts is None:
        return vectors
    if pos.size(1) != DIMS:
        raise ArgumentError(f"pos: expected shape [{count}, 3], got {list(pos.shape)}.")
    cell = checked_cell(cell, bounds.numel() - 1, pos.device).to(pos.dtype)
    times = shifts.to(device=pos.device, dtype=pos.dtype)
    structure = None
    if cell.dim() > _MATRIX:
        structure = torch.repeat_interleave(bounds.diff()).to(pos.device).index_select(0, target)
    # The sum is in this order, without fused products, as in the search.
    offset: Tensor | None = None
    for axis in range(DIMS):
        along = cell[axis] if structure is None else cell[:, axis].index_select(0, structure)
        part = times[:, axis : axis + 1] * along
        offset = part if offset is None else offset + part
    assert offset is not None
    return vectors + offset


def lengths_of(vectors: Tensor) -> Tensor:
    """Return the length of each vector, [E]; all derivatives of a length of 0 are 0."""
    squared = vectors.square().sum(1)
    zero = squared == 0
    return squared.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)
