"""``unique``, ``isin`` and stable ``sort`` of many integers, with results equal to torch's in every bit.

Each function has the arguments of torch's CPU kernel, and returns None if torch's kernel has to run, for
example because it is nearly as fast. :mod:`onehop.integrations.torch.kernels` calls them.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop.graph.build import MOST_NODES
from onehop.integrations.torch.served import Served
from onehop.native import WithoutMemoryError, torchs_kernels
from onehop.ops.contexts import is_numbers
from onehop.ops.integers import MOST_SPREAD, Integers, Unique, unique_pairs
from onehop.reference.independent import runs_specification

# torch sorts a vector of at least _BY_RADIX integers by radix, in 8 to 9 ns each while they fit its caches.
# For fewer than 1 million integers, our sort took 0.4 to 0.55 times as long if their span is less than twice
# their number, and 0.6 to 1 times otherwise; for 1 million and more, 0.2 to 0.5 times, but 0.6 times with
# words of 128 bits.
_BY_RADIX, _MANY = 1 << 15, 1 << 20
_NEAR, _MOST_BITS = 2, 72
_SAMPLES = 16
_PAIR = 2


def _left_to_torch(body: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``body`` so that it also returns None if a tensor has no memory, or memory runs out."""

    @functools.wraps(body)
    def function(*args: Any) -> Any:
        try:
            suits = all(_suits(argument) for argument in args if isinstance(argument, Tensor))
            return body(*args) if suits and not runs_specification.get() else None
        except (WithoutMemoryError, MemoryError):
            return None

    return function


@_left_to_torch
def sort(x: Tensor, stable: bool, dim: int, descending: bool) -> tuple[Tensor, Tensor] | None:
    """Compute ``x.sort(stable=stable, dim=dim, descending=descending)`` for a vector.

    A sort with ``stable=False`` is served only if torch's sort is stable nevertheless.
    """
    if x.dim() != 1 or dim not in (-1, 0):
        return None
    if not stable and (descending or x.numel() < _BY_RADIX or not _sorts_by_radix()):
        return None
    if descending:  # torch sorts by comparison here
        return Integers(x).sorted(descending=True)
    integers = Integers(x) if _may_pay(x) else None
    pays = integers is not None and (integers.ascend or _pays(integers, places=True))
    return integers.sorted() if integers is not None and pays else None


@_left_to_torch
def unique(x: Tensor, ascending: bool, inverse: bool, counts: bool) -> Unique | None:
    """Compute ``torch.unique(x, ascending, inverse, counts)``, unless torch's result would not ascend."""
    if not (ascending or _tells_apart_by_sorting()):
        return None
    integers = Integers(x) if _may_pay(x) else None
    if integers is None:
        return None
    pays = integers.ascend or integers.is_dense(inverse or counts) or _pays(integers, inverse)
    return integers.unique(inverse, counts) if pays else None


@_left_to_torch
def unique_dim(x: Tensor, dim: int, _ascending: bool, _inverse: bool, _counts: bool) -> Unique | None:
    """Compute ``torch.unique(x, dim=dim)`` for pairs.

    As in torch, the result always ascends, and always has the inverse and the counts.
    """
    if x.dim() != _PAIR or not -_PAIR <= dim < _PAIR:
        return None
    by_column = dim % _PAIR == 1
    pairs = x if by_column else x.t()
    distinct = unique_pairs(pairs) if pairs.size(0) == _PAIR else None
    return None if distinct is None else (distinct[0].t() if by_column else distinct[0], *distinct[1:])


@_left_to_torch
def isin(x: Tensor, others: Tensor, inverted: bool) -> Tensor | None:
    """Compute ``torch.isin(x, others, invert=inverted)``."""
    return Integers(others).contain(x, inverted)


def _suits(x: Tensor) -> bool:
    return 0 < x.numel() <= MOST_NODES and is_numbers(x)


def _may_pay(x: Tensor) -> bool:
    """Return whether sorting the integers may pay, by a sample, before their span is computed."""
    count = x.numel()
    if not _BY_RADIX <= count < _MANY or not x.is_contiguous() or not _sorts_by_radix():
        return True
    some = x.view(-1)[:: count // _SAMPLES].tolist()
    return max(some) - min(some) < MOST_SPREAD * count or some == sorted(some)


def _pays(integers: Integers, places: bool) -> bool:
    """Return whether our sort, with places or without, takes at most half as long as torch's."""
    count, span = len(integers), integers.span
    if count < _BY_RADIX or span < _NEAR * count or not _sorts_by_radix():
        return True
    return count >= _MANY and not (places and span.bit_length() + count.bit_length() > _MOST_BITS)


@functools.cache
def _sorts_by_radix() -> bool:
    """Return whether torch sorts many integers by radix here, so that equal ones keep their order.

    The check sorts many equal integers; a sort by comparison would change the order of some of them.
    """
    x = torch.arange(_BY_RADIX, device="cpu") % 7
    with torchs_kernels():
        return torch.equal(x.sort().indices, x.sort(stable=True).indices)


@functools.cache
def _tells_apart_by_sorting() -> bool:
    """Return whether torch's ``unique(sorted=False)`` ascends too, which it does not with a hash table."""
    x = torch.arange(999, device="cpu") * 7919 % 1009
    with torchs_kernels():
        distinct = torch.ops.aten._unique2(x, False)[0]
    return bool((distinct.diff() > 0).all())


SERVED = {
    "sort": Served(sort, "sort"),
    "_unique2": Served(unique, "unique"),
    "unique_dim": Served(unique_dim, "unique_dim"),
    "isin": Served(isin, "isin"),
}
"""The functions that run instead of operators, by the operator's name."""
