"""Integers sorted, told apart, and looked up in others: by a radix sort, and by tables of the numbers between.

All return what torch's functions return, in value, order, dtype and layout. They return None where torch's
are as fast, and where another thread writes to the integers meanwhile.
"""

from typing import Any

import torch
from torch import Tensor

from onehop import native
from onehop.graph.build import MOST_NODES
from onehop.graph.edge_columns import MOST_NODES as MOST_ENDS
from onehop.graph.edge_columns import EdgeColumns
from onehop.native import address, extension

INTEGERS = (torch.int64, torch.int32)
# Up to so many numbers lie between the integers, for each of them, where a table of all is faster than a sort.
_MOST_SPREAD = 4
# Bits of a number and its place that are sorted as one.
_WORD = 64


class _Found:
    """Integers and the limits between which they lie."""

    def __init__(self, x: Tensor) -> None:
        """Reads int64 or int32 in the CPU's memory, one or more."""
        self.x = x.contiguous()
        self.call = _call(self.x)
        limits = extension.limits_of(self.call, native.threads())
        self.limits, self.ascends, self.span = limits, limits.ascends, limits.span

    def sorted(self, descending: bool, numbered: bool) -> Any:
        made = extension.SortedIntegers(self.call, self.limits, descending, numbered)
        return made if made.sort(native.threads()) else None

    def values(self, made: Any, count: int, *how: bool) -> Tensor:
        out = torch.empty(count, dtype=self.x.dtype, device="cpu")
        made.write_values(address(out), *how, native.threads())
        return out


def sort(x: Tensor, descending: bool = False) -> tuple[Tensor, Tensor] | None:
    """``x.sort(stable=True, descending=descending)`` of [n], int64 or int32; n is at least 1.

    Numbers that lie so far apart that they do not fit in 64 bits with their places are torch's, unless they
    are to descend.
    """
    found = _Found(x)
    if found.ascends and not descending:
        return x.clone(memory_format=torch.contiguous_format), torch.arange(x.numel(), device="cpu")
    bits = found.span.bit_length() + (x.numel() - 1).bit_length()
    made = found.sorted(descending, True) if bits <= _WORD or descending else None
    if made is None:
        return None
    return found.values(made, x.numel(), False), _numbers(made.keys.write_notes, x.numel())


def unique(x: Tensor, inverse: bool, counts: bool) -> tuple[Tensor, Tensor, Tensor] | None:
    """``torch.unique`` of a tensor of int64 or int32 with one entry or more, in ascending order.

    Returns:
        The numbers, where each entry of the tensor is among them, and how often it is there; empty if not
        wanted.
    """
    found = _Found(x)
    if found.ascends:
        return torch.unique_consecutive(found.x, return_inverse=True, return_counts=True)
    if found.span < _MOST_SPREAD * x.numel():
        return _unique_in_table(found, x.shape, inverse, counts)
    made = found.sorted(False, inverse)
    if made is None:
        return None
    keys = made.keys
    return (
        found.values(made, keys.distinct, True),
        _numbers(keys.write_inverse, x.numel()).view(x.shape) if inverse else _none(),
        _numbers(keys.write_counts, keys.distinct) if counts else _none(),
    )


def _unique_in_table(
    found: _Found, shape: torch.Size, inverse: bool, counts: bool
) -> tuple[Tensor, Tensor, Tensor] | None:
    made = extension.DistinctIntegers(found.call, found.limits, inverse or counts, native.threads())
    values = found.values(made, made.distinct)
    if not (inverse or counts):
        return values, _none(), _none()
    of_each = torch.empty(shape, dtype=torch.int64, device="cpu")
    if not made.write_inverse(found.call, address(of_each), native.threads()):
        return None
    how_often = torch.empty(made.distinct, dtype=torch.int64, device="cpu") if counts else _none()
    if counts:
        extension.count_numbers(
            address(of_each), of_each.numel(), made.distinct, address(how_often), native.threads()
        )
    return values, of_each if inverse else _none(), how_often


def isin(x: Tensor, others: Tensor, inverted: bool) -> Tensor | None:
    """``torch.isin(x, others, invert=inverted)`` of int64 or int32, one entry or more each."""
    found, x = _Found(others), x.contiguous()
    out = torch.empty(x.shape, dtype=torch.bool, device="cpu")
    are_found = extension.find_among(
        _call(x), found.call, found.limits, inverted, address(out), native.threads()
    )
    return out if are_found else None


def _call(x: Tensor) -> Any:
    call = extension.Integers()
    call.values, call.count, call.is_wide = address(x), x.numel(), x.dtype is torch.int64
    return call


def _numbers(write: Any, count: int) -> Tensor:
    out = torch.empty(count, dtype=torch.int64, device="cpu")
    write(address(out), native.threads())
    return out


def _none() -> Tensor:
    return torch.empty(0, dtype=torch.int64, device="cpu")
