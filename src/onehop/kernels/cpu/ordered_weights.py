"""Weights that do not change, kept in the order in which the kernels read them.

The caller's weights are in the caller's edge order, and reading them through the permutation is a random
access for every edge: with 2.4 million edges that takes longer than the sums of width 16. A weight that
is met a second time is laid out once in the graph's order. Its contents are compared by fingerprint at every
use, at the speed of a read in order, so that writes which escape the version counter are seen here.
"""

from typing import Any, NamedTuple

from torch import Tensor

from onehop import native, thresholds
from onehop.graph.contents import Noted
from onehop.graph.identity import CACHE, remembered
from onehop.graph.lending import read_address


class _Ordered(NamedTuple):
    """The entry kept for a weight: empty after the first call; later its fingerprint and ordered copy."""

    fingerprint: int = 0
    weight: Tensor | None = None


def in_graph_order(
    csr: Any, number: int, transposed: bool, ordering: str, weight: Tensor
) -> tuple[Tensor, bool]:
    """The weight in the order of ``csr.col`` and True, if it has been met before; else the weight and False.

    Args:
        csr: The native graph.
        number: Of the graph that ``csr`` belongs to, which is never used again, as an address would be.
        transposed: Whether ``csr`` is that graph's transpose.
        ordering: In which order ``csr`` has its rows.
        weight: [E] or [E, H], in the caller's edge order.
    """
    if csr.edges < thresholds.now.ordered_edges or not weight.is_contiguous() or csr.perm is None:
        return weight, False
    rest = ("weight in graph order", number, transposed, ordering)
    entry: _Ordered | None = remembered(weight, key=rest)
    if entry is None and thresholds.now.meetings > 1:
        CACHE.store(Noted(weight), rest, _Ordered())
        return weight, False
    if entry is None or entry.weight is None:
        noted, fingerprint = Noted(weight), _fingerprint(weight)
        ordered = weight.detach().index_select(0, csr.perm)
        CACHE.store(noted, rest, _Ordered(fingerprint, ordered))
        return ordered, True
    if entry.fingerprint != _fingerprint(weight):
        CACHE.store(Noted(weight), rest, _Ordered())
        return weight, False
    return entry.weight, True


def _fingerprint(weight: Tensor) -> int:
    return native.extension.fingerprint(read_address(weight), weight.nbytes, native.threads())
