"""Sort, unique and membership of integers, by a radix sort and by tables."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop import native
from onehop.graph.edge_columns import EdgeColumns
from onehop.graph.lending import read_address
from onehop.native import address, extension

INTEGERS = (torch.int64, torch.int32)
# If the span of the integers is at most this many times their number, a table is faster than a sort: without
# places (1 byte for each number of the span), and with the places of distinct integers (5 bytes). For 300,000
# integers with a span of 2 (8) times their number, a sort took 1.7 (1.6) ms, and with places 2.2 (2.2) ms;
# tables took 0.7 (1.5) ms, and with places 1.9 (4.6) ms.
MOST_SPREAD, MOST_SPREAD_OF_PLACES = 4, 1

Unique = tuple[Tensor, Tensor, Tensor]


class Integers:
    """A non-empty tensor of fewer than 2^31 int64 or int32 integers in CPU memory.

    Its owner may write to it at any time. If another thread does so while a method runs, the method returns
    None if it detects the write; otherwise its result is meaningless.

    Attributes:
        ascend: Whether the integers never decrease.
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
        """Return whether :meth:`unique` uses a table, with the places of distinct integers if ``places``."""
        return self.span < len(self) * (MOST_SPREAD_OF_PLACES if places else MOST_SPREAD)

    def sorted(self, descending: bool = False) -> tuple[Tensor, Tensor] | None:
        """Return a vector's integers in order, and the place of each, int64; the sort is stable."""
        if self.ascend and not descending:
            return self._x.clone(), torch.arange(len(self), device="cpu")
        ordered = self._sorted(descending, numbered=True)
        if ordered is None:
            return None
        return self._values(ordered, len(self), False), _written(ordered.keys.write_notes, len(self))

    def unique(self, inverse: bool = True, counts: bool = True) -> Unique | None:
        """Return the distinct integers, ascending; the index of each integer among them; and their counts.

        Results that are not requested are empty. The second result has the shape of the integers.
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
        """Return whether each entry of ``x`` is among the integers, or, if ``inverted``, is not among them.

        The result is also None if both the smallest and the largest int64 are among the integers.
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
    """Return the distinct pairs of integers, ordered by the first and then by the second integer.

    Args:
        pairs: [2, E], int64 or int32, on the CPU; E is at least 1.

    Returns:
        The distinct pairs, [E', 2]; the index of each given pair among them, [E]; and their counts, [E'].
        None if the span of a row of ``pairs`` is 2^31 or more, or if another thread writes to them.
    """
    least = pairs.amin(1).clamp(max=0)
    # Node numbers are not negative, so they need no shifted copy.
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
    """Return contiguous integers in the form for native code; a lent copy keeps sharing its memory."""
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
