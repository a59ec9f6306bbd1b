"""torch's ``unique``, ``isin`` and stable ``sort`` of many integers: equal to torch's in every bit.

Each function has the arguments that torch's CPU kernel has, and returns None where torch's has to run, as
where it is nearly as fast. :mod:`onehop.integrations.torch.kernels` calls them.
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

# torch sorts a vector of at least this many integers by radix, in 8 to 9 ns each while all are in its caches.
# Of fewer than 1 million, ours took 0.4 to 0.55 times as long where their span is less than twice their
# number, and 0.6 to 1 times elsewhere; of 1 million and more 0.2 to 0.5 times, but 0.6 where words have 128
# bits.
_BY_RADIX, _MANY = 1 << 15, 1 << 20
_NEAR, _MOST_BITS = 2, 72
_SAMPLES = 16
_PAIR = 2


def _left_to_torch(body: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``body``: it also returns None where tensors are not numbers in memory, or memory runs out."""

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
    """``x.sort(stable=stable, dim=dim, descending=descending)`` of a vector.

    A sort that need not be stable is served only where torch's is stable.
    """
    if x.dim() != 1 or dim not in (-1, 0):
        return None
    if not stable and (descending or x.numel() < _BY_RADIX or not _sorts_by_radix()):
        return None
    if descending:  # by comparison in torch
        return Integers(x).sorted(descending=True)
    integers = Integers(x) if _may_pay(x) else None
    pays = integers is not None and (integers.ascend or _pays(integers, places=True))
    return integers.sorted() if integers is not None and pays else None


@_left_to_torch
def unique(x: Tensor, ascending: bool, inverse: bool, counts: bool) -> Unique | None:
    """``torch.unique(x, ascending, inverse, counts)``, if torch's ascends where it need not."""
    if not (ascending or _tells_apart_by_sorting()):
        return None
    integers = Integers(x) if _may_pay(x) else None
    if integers is None:
        return None
    pays = integers.ascend or integers.is_dense(inverse or counts) or _pays(integers, inverse)
    return integers.unique(inverse, counts) if pays else None


@_left_to_torch
def unique_dim(x: Tensor, dim: int, _ascending: bool, _inverse: bool, _counts: bool) -> Unique | None:
    """``torch.unique(x, dim=dim)`` of pairs.

    torch's result always ascends, and always has the inverse and the counts.
    """
    if x.dim() != _PAIR or not -_PAIR <= dim < _PAIR:
        return None
    by_column = dim % _PAIR == 1
    pairs = x if by_column else x.t()
    distinct = unique_pairs(pairs) if pairs.size(0) == _PAIR else None
    return None if distinct is None else (distinct[0].t() if by_column else distinct[0], *distinct[1:])


@_left_to_torch
def isin(x: Tensor, others: Tensor, inverted: bool) -> Tensor | None:
    """``torch.isin(x, others, invert=inverted)``."""
    return Integers(others).contain(x, inverted)


def _suits(x: Tensor) -> bool:
    return 0 < x.numel() <= MOST_NODES and is_numbers(x)


def _may_pay(x: Tensor) -> bool:
    """Return whether a sample suggests that finding the span of the integers may pay."""
    count = x.numel()
    if not _BY_RADIX <= count < _MANY or not x.is_contiguous() or not _sorts_by_radix():
        return True
    some = x.view(-1)[:: count // _SAMPLES].tolist()
    return max(some) - min(some) < MOST_SPREAD * count or some == sorted(some)


def _pays(integers: Integers, places: bool) -> bool:
    """Return whether sorting integers takes at most half as long as in torch, with their places or not."""
    count, span = len(integers), integers.span
    if count < _BY_RADIX or span < _NEAR * count or not _sorts_by_radix():
        return True
    return count >= _MANY and not (places and span.bit_length() + count.bit_length() > _MOST_BITS)


@functools.cache
def _sorts_by_radix() -> bool:
    """Return whether torch sorts many integers by radix here, so that equal ones keep their order.

    A sort by comparison would change the order of some of these many equal integers.
    """
    x = torch.arange(_BY_RADIX, device="cpu") % 7
    with torchs_kernels():
        return torch.equal(x.sort().indices, x.sort(stable=True).indices)


@functools.cache
def _tells_apart_by_sorting() -> bool:
    """Return whether torch's distinct numbers ascend where they need not; in a hash table they do not."""
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
"""By the operator's name."""
