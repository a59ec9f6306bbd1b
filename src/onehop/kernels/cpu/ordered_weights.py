"""A cache of unchanged weights in the order in which the kernels read them.

Weights are in the caller's edge order, and reading them through the permutation is a random access for every
edge: with 2.4 million edges, this takes longer than the sums of width 16. When a weight is used a second
time, it is copied to the graph's order once. Its contents are compared by a fingerprint at every use, at the
speed of a sequential read, so that writes that bypass the version counter are detected.
"""

from typing import Any, NamedTuple

from torch import Tensor

from onehop import native, thresholds
from onehop.graph.contents import Noted
from onehop.graph.identity import CACHE, remembered
from onehop.graph.lending import read_address, source_of


class _Ordered(NamedTuple):
    """The cached entry of a weight: empty after the first call, later its fingerprint and ordered copy."""

    fingerprint: int = 0
    weight: Tensor | None = None


def in_graph_order(
    csr: Any, number: int, transposed: bool, ordering: str, weight: Tensor
) -> tuple[Tensor, bool]:
    """Return the weight in the order of ``csr.col`` and True, if it was used before; else itself and False.

    Args:
        csr: The native graph.
        number: The number of the graph to which ``csr`` belongs; unlike an address, it is never reused.
        transposed: Whether ``csr`` is that graph's transpose.
        ordering: The order of the rows of ``csr``.
        weight: [E] or [E, H], in the caller's edge order.
    """
    if csr.edges < thresholds.now.ordered_edges or not weight.is_contiguous() or csr.perm is None:
        return weight, False
    # A backward pass copies a matrix's values in every step; the copies share an entry.
    source, rest = source_of(weight), ("weight in graph order", number, transposed, ordering)
    entry: _Ordered | None = remembered(source, key=rest)
    if entry is None and thresholds.now.meetings > 1:
        CACHE.store(Noted(source), rest, _Ordered())
        return weight, False
    if entry is None or entry.weight is None:
        noted, fingerprint = Noted(source), _fingerprint(weight)
        ordered = weight.detach().index_select(0, csr.perm)
        CACHE.store(noted, rest, _Ordered(fingerprint, ordered))
        return ordered, True
    if entry.fingerprint != _fingerprint(weight):
        CACHE.store(Noted(source), rest, _Ordered())
        return weight, False
    return entry.weight, True


def _fingerprint(weight: Tensor) -> int:
    return native.extension.fingerprint(read_address(weight), weight.nbytes, native.threads())
