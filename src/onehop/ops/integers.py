"""Integers sorted, told apart, and looked up in others: by a radix sort and by tables."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop import native
from onehop.graph.edge_columns import EdgeColumns
from onehop.graph.lending import read_address
from onehop.native import address, extension

INTEGERS = (torch.int64, torch.int32)
# Up to so many numbers between the integers, for each of them, a table of all is faster than a sort; and a
# table that has the places of distinct ones too, which has 5 bytes a number and not 1. Of 300,000 integers
# over 2 (8) times as many numbers, a sort took 1.7 (1.6) ms, and with places 2.2 (2.2); tables 0.7 (1.5), and
# with places 1.9 (4.6).
MOST_SPREAD, MOST_SPREAD_OF_PLACES = 4, 1

Unique = tuple[Tensor, Tensor, Tensor]


class Integers:
    """Integers of int64 or int32 in the CPU's memory, one or more and less than 2^31.

    Their owner may write to them at any time. A method returns None if another thread did while it ran, as
    far as it sees that; else its result has no meaning then.

    Attributes:
        ascend: Whether none is smaller than the one before.
        span: The largest minus the smallest.
    """

    def __init__(self, x: Tensor) -> None:
        self._x = x.contiguous()
        self._call = _call(self._x)
        self._limits = extension.limits_of(self._call, native.threads())
        self.ascend, self.span = self._limits.ascends, self._limits.span

    def __len__(self) -> int:
        return self._x.numel()

    def is_dense(self, places: bool) -> bool:
        """Return whether :meth:`unique` makes a table, of the places of distinct ones too if ``places``."""
        return self.span < len(self) * (MOST_SPREAD_OF_PLACES if places else MOST_SPREAD)

    def sorted(self, descending: bool = False) -> tuple[Tensor, Tensor] | None:
        """The integers of a vector in order, and the place of each, int64; equal ones keep their order."""
        if self.ascend and not descending:
            return self._x.clone(), torch.arange(len(self), device="cpu")
        ordered = self._sorted(descending, numbered=True)
        if ordered is None:
            return None
        return self._values(ordered, len(self), False), _written(ordered.keys.write_notes, len(self))

    def unique(self, inverse: bool = True, counts: bool = True) -> Unique | None:
        """The distinct integers, ascending; which of them each one is; and how often each occurs.

        What is not wanted is empty. The second one has the shape of the integers.
        """
        if self.ascend:
            distinct: Unique = torch.ops.aten.unique_consecutive(self._x, inverse, counts)
            return distinct
        if self.is_dense(inverse or counts):
            return self._unique_in_table(inverse, counts)
        ordered = self._sorted(descending=False, numbered=inverse)
        if ordered is None:
            return None
        keys = ordered.keys
        return (
            self._values(ordered, keys.distinct, True),
            _written(keys.write_inverse, len(self)).view(self._x.shape) if inverse else _none(),
            _written(keys.write_counts, keys.distinct) if counts else _none(),
        )

    def contain(self, x: Tensor, inverted: bool = False) -> Tensor | None:
        """Tells of each entry of another tensor if it is among these; if ``inverted``, if it is not.

        None too if both the least and the largest int64 are among these.
        """
        x = x.contiguous()
        out = torch.empty(x.shape, dtype=torch.bool, device="cpu")
        are_found = extension.find_among(
            _call(x), self._call, self._limits, inverted, address(out), native.threads()
        )
        return out if are_found else None

    def _sorted(self, descending: bool, numbered: bool) -> Any:
        ordered = extension.SortedIntegers(self._call, self._limits, descending, numbered)
        return ordered if ordered.sort(native.threads()) else None

    def _unique_in_table(self, inverse: bool, counts: bool) -> Unique | None:
        table = extension.DistinctIntegers(self._call, self._limits, inverse or counts, native.threads())
        values, places, numbers = self._values(table, table.distinct), _none(), _none()
        if inverse or counts:
            places = torch.empty(self._x.shape, dtype=torch.int64, device="cpu")
            if not table.write_inverse(self._call, address(places), native.threads()):
                return None
        if counts:
            numbers = torch.empty(table.distinct, dtype=torch.int64, device="cpu")
            extension.count_numbers(
                address(places), len(self), table.distinct, address(numbers), native.threads()
            )
        return values, places if inverse else _none(), numbers

    def _values(self, integers: Any, count: int, *how: bool) -> Tensor:
        out = torch.empty(count, dtype=self._x.dtype, device="cpu")
        integers.write_values(address(out), *how, native.threads())
        return out


def unique_pairs(pairs: Tensor) -> Unique | None:
    """The distinct pairs of integers, in the order of the first, then of the second.

    Args:
        pairs: [2, E], int64 or int32, on the CPU; E is at least 1.

    Returns:
        The pairs, [E', 2]; which of them each given pair is, [E]; and how often each of them is there, [E'].
        None if numbers of one line lie 2^31 or more apart, and if another thread writes to them.
    """
    least = pairs.amin(1).clamp(max=0)
    # Node numbers, which are not negative, need no copy.
    are_negative = bool(least.any())
    edges = EdgeColumns(pairs - least.unsqueeze(1) if are_negative else pairs)
    if not edges.are_valid:
        return None
    try:
        ordered = edges.sorted(numbered=True)
    except RuntimeError:  # another thread wrote to them
        return None
    out = torch.stack(tuple(ordered.edge_index(once=True)), 1)
    return out.add_(least) if are_negative else out, ordered.inverse, ordered.counts


def _call(x: Tensor) -> Any:
    """Integers without gaps as native code reads them: a copy that shares its memory still does then."""
    call = extension.Integers()
    call.values, call.count = read_address(x) or address(x), x.numel()
    call.is_wide = x.dtype is torch.int64
    return call


def _written(write: Callable[[int, int], None], count: int) -> Tensor:
    out = torch.empty(count, dtype=torch.int64, device="cpu")
    write(address(out), native.threads())
    return out


def _none() -> Tensor:
    return torch.empty(0, dtype=torch.int64, device="cpu")
