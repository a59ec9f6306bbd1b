"""Aggregates of constant features, kept: in full-batch training the first layer's are the same every epoch.

Features that need no gradient are marked when they are met, and their aggregate is kept when they are met
again. The next time it is given back, if the features have neither been written to (by their version counter,
and by a fingerprint of their contents, which sees writes that escape the counter), nor the weights, nor the
aggregate itself, which the caller may have changed in place.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from onehop import config, native
from onehop.graph.identity import CACHE

# Of edges times width: with less the sum costs hardly more than looking for it.
LEAST_WORK = 1 << 20
# One over the share of the cache that features may have, so that their aggregates do not push out the graphs.
_LARGEST_SHARE = 8
_MARK = "constant features"

_on = False


def switch(on: bool) -> None:
    """Turns keeping on or off; what was kept before is found no more."""
    global _on
    _on = on


@dataclass(frozen=True, slots=True)
class _Mark:
    """That features were met."""

    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class _Kept:
    """An aggregate, and what it was made from.

    Attributes:
        out: The aggregate.
        version: Of the aggregate.
        factor: The weights or scales, or None.
        factor_version: Of those.
        fingerprint: Of the features.
    """

    out: Tensor
    version: int
    factor: Tensor | None
    factor_version: int
    fingerprint: int

    @property
    def nbytes(self) -> int:
        """Bytes of the aggregate."""
        return self.out.nbytes


def constant(x: Tensor, factor: Tensor | None, edges: int) -> bool:
    """Whether an aggregate of these features, over so many edges, may be kept; never on another device.

    Args:
        x: [N, F].
        factor: The weights or scales, or None.
        edges: Number of edges.
    """
    return (
        _on
        and x.is_cpu  # the fingerprint is taken there
        and not x.requires_grad
        and (factor is None or not factor.requires_grad)
        and x.dim() == 2
        and edges * x.size(1) >= LEAST_WORK
        and x.nbytes * _LARGEST_SHARE <= config.graph_cache_bytes()
        and x.is_contiguous()
        and not x.is_inference()
        and (factor is None or not factor.is_inference())
    )


def met_before(x: Tensor) -> bool:
    """Whether these features, as they are, were met before; marks them if not."""
    if CACHE.find(x, _MARK) is not None:
        return True
    CACHE.store(x, _MARK, _Mark())
    return False


def find(x: Tensor, factor: Tensor | None, rest: Hashable) -> Tensor | None:
    """The aggregate kept for these features.

    Args:
        x: [N, F], for which :func:`constant` holds.
        factor: The weights or scales, or None.
        rest: What else the aggregate depends on: graph and reduction.
    """
    found: _Kept | None = CACHE.find(x, ("aggregate", rest))
    if (
        found is None
        or found.out._version != found.version
        or found.out.requires_grad
        or found.factor is not factor
        or (factor is not None and factor._version != found.factor_version)
        or _fingerprint(x) != found.fingerprint
    ):
        return None
    return found.out


def keep(x: Tensor, factor: Tensor | None, rest: Hashable, out: Tensor) -> None:
    """Keeps an aggregate, unless it is of no use outside inference mode."""
    if out.is_inference():
        return
    version = 0 if factor is None else factor._version
    CACHE.store(x, ("aggregate", rest), _Kept(out, out._version, factor, version, _fingerprint(x)))


def _fingerprint(x: Tensor) -> int:
    return native.extension.fingerprint(x.data_ptr(), x.nbytes, torch.get_num_threads())
