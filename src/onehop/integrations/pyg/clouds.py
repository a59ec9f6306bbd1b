"""Checks of the batch vectors of PyG's point searches, when PyG turns them into bounds of clouds.

A batch vector that does not ascend gives wrong bounds, and for numbers out of range torch writes outside of
its memory. The operators get only the bounds, which show neither fault.
"""

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import pool
from torch_geometric.nn.conv import edge_conv, gravnet_conv, x_conv

from onehop.errors import ArgumentError, IndexRangeError
from onehop.integrations.rows import Row, replacing, replacing_in

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class _Side(NamedTuple):
    """The points of one side of a search and their batch vector, with the names of PyG's arguments."""

    name: str
    batch: Any
    points_name: str
    points: Any

    def check(self, size: Any) -> None:
        """Checks that the batch has an entry for each point, and that its numbers ascend and are in range.

        Raises:
            ArgumentError: The batch has another number of entries, or its numbers do not ascend.
            IndexRangeError: A number is negative, or not below the number of clouds, ``size`` (None: no
                bound).
        """
        name, batch, points = self.name, self.batch, self.points
        if isinstance(points, Tensor) and batch.numel() != points.size(0):
            raise ArgumentError(
                f"{name}: expected a number for each of the {points.size(0)} rows of {self.points_name}, got "
                f"{batch.numel()}."
            )
        falls = (batch[1:] < batch[:-1]).nonzero()
        if falls.numel():
            entry = int(falls[0]) + 1
            before, after = batch[entry - 1 : entry + 1].tolist()
            raise ArgumentError(
                f"{name}: expected numbers of clouds that ascend, got {after} behind {before} in entry "
                f"{entry}. Sort the points: order = {name}.argsort(stable=True), {self.points_name}[order], "
                f"{name}[order]."
            )
        if batch.numel() and int(batch[0]) < 0:
            raise IndexRangeError(f"{name}: expected numbers of clouds from 0 on, got {int(batch[0])}.")
        if batch.numel() and size is not None and int(batch[-1]) >= size:
            raise IndexRangeError(
                f"{name}: expected numbers of clouds below batch_size, {size}, got {int(batch[-1])}."
            )

    @property
    def clouds(self) -> int:
        """The number of clouds, without empty clouds after the last point."""
        if self.batch is None:
            return 1
        return int(self.batch.max()) + 1 if self.batch.numel() else 0


def rows() -> list[Row]:
    """Return the rows of the patch table."""
    return [
        replacing(pool, "_batch_to_ptr", _check, _assert),
        *replacing_in([edge_conv, gravnet_conv, x_conv], "index2ptr", _check, _assert),
    ]


def _check(_: Any, batch: Any, size: Any = None) -> None:
    """Checks a batch vector; names and points for the error come from the calling function of PyG.

    Raises:
        ArgumentError: See :meth:`_Side.check`; or the two sides of a search differ in their number of clouds.
        IndexRangeError: See :meth:`_Side.check`.
    """
    # The local variables of the PyG function that called the replaced one.
    local = sys._getframe(2).f_locals
    sides = _sides(local, batch)
    if any(not _is_served(side.batch) for side in sides if side.batch is not None):
        return  # PyG raises its own error
    for side in sides:
        if side.batch is not None and side.batch is batch:
            side.check(size)
    if len({side.clouds for side in sides}) > 1 and size is None:
        first, last = sides
        names = first.name if first.name == last.name else f"{first.name}, {last.name}"
        advice = " Give batch_size if clouds have no points of one side." if "batch_size" in local else ""
        raise ArgumentError(
            f"{names}: expected as many clouds of {first.points_name} as of {last.points_name}, got "
            f"{first.clouds} and {last.clouds}.{advice}"
        )


def _is_served(batch: Any) -> bool:
    return isinstance(batch, Tensor) and batch.dim() == 1 and batch.dtype in _INTEGERS and batch.is_cpu


def _sides(local: Mapping[str, Any], batch: Any) -> list[_Side]:
    """Return the sides of a search, from the local variables of PyG's function."""
    if "batch_x" in local:
        return [_Side(f"batch_{end}", local[f"batch_{end}"], end, local.get(end)) for end in ("x", "y")]
    if "b" in local:  # a layer with two sets of points
        places = ("[0]", "[1]") if isinstance(local["batch"], tuple) else ("", "")
        return [
            _Side(f"batch{place}", of, f"x{place}", points)
            for place, of, points in zip(places, local["b"], local["x"], strict=True)
        ]
    name = "pos" if "pos" in local else "x"
    return [_Side("batch", batch, name, local.get(name))]


def _assert(_: Any, batch: Any, size: Any = None) -> None:
    """Adds a check of the order to a traced program; torch raises the error when the program runs."""
    if isinstance(batch, Tensor):
        torch._assert_async((batch[1:] >= batch[:-1]).all(), "batch: expected numbers of clouds that ascend.")
