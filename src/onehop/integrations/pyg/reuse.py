"""Caches aggregates of constant features: in full-batch training the first layer's are equal in all epochs.

Features that need no gradient are marked at their first use, as is the graph, and their aggregate is kept at
the second. From then on layers get copies of it, which share its memory until one of them is written to
(:mod:`onehop.graph.lending`). This holds while neither the features nor the weights have been written to: by
their version counters, and by fingerprints of their contents, which detect writes that bypass the counters.

A kept aggregate is what would be computed, bit for bit. The order of a layer's linear step is different:
A (X W) and (A X) W are rounded differently, and save different tensors for the backward pass. So that a
repeated forward pass gives the same result, the order changes only after a backward pass: features that a
layer was trained on are expected again.
"""

import weakref
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from onehop import config, thresholds
from onehop.graph import Graph
from onehop.graph.contents import Noted, fingerprint
from onehop.graph.identity import CACHE, remembered
from onehop.graph.lending import lend
from onehop.integrations import session
from onehop.ops.contexts import saving_is_watched

# Features may take at most one part in this many of the cache, so that their aggregates do not displace the
# graphs.
_LARGEST_SHARE = 8
OVER = "features were aggregated"
"""A key among the results derived from a graph. Most graphs of mini-batches are new in each step."""
_AGGREGATES, _MET, _TRAINED = (f"constant features, {what}" for what in ("aggregated", "met", "trained on"))


class _Aggregate(NamedTuple):
    """A cached aggregate, and the operands that it was made from.

    Attributes:
        out: The aggregate, which only the cache has.
        graph: The graph.
        contents: The fingerprint of the features.
        factor: The fingerprint and the dtype of the weights or scales; None without any.
    """

    out: Tensor
    graph: "weakref.ref[Graph]"
    contents: int
    factor: tuple[int, torch.dtype] | None


def constant(x: Tensor, factor: Tensor | None, edges: int) -> bool:
    """Return whether an aggregate of these features may be cached, which only those on the CPU may.

    Args:
        x: [N, F], the features.
        factor: The weights or scales, or None.
        edges: The number of edges.
    """
    return (
        not x.requires_grad
        and session.now.settings.reuse
        and x.is_cpu  # the fingerprint is taken there
        and x.dim() == 2
        and edges * x.size(1) >= thresholds.now.kept_work
        and (factor is None or (factor.is_contiguous() and not factor.requires_grad))
        and x.nbytes * _LARGEST_SHARE <= config.graph_cache_bytes()
        and x.is_contiguous()
        and not x.is_inference()
        and not saving_is_watched()
    )


def trained_on(x: Tensor) -> bool:
    """Return whether a backward pass has gone through a layer of these features, unchanged since."""
    return thresholds.now.meetings <= 1 or remembered(x, key=_TRAINED) is not None


def note_training(x: Tensor) -> None:
    """Notes that a backward pass goes through a layer of these features."""
    remembered(x, key=_TRAINED, make=lambda: True)


def find(x: Tensor, factor: Tensor | None, graph: Graph, reduce: str) -> Tensor | None:
    """Return a copy of the cached aggregate of these features; None without one.

    Args:
        x: [N, F], for which :func:`constant` holds.
        factor: The weights or scales, or None.
        graph: The graph.
        reduce: The reduction.
    """
    aggregates: dict[tuple[int, str], _Aggregate] = remembered(x, key=_AGGREGATES) or {}
    aggregate = aggregates.get((graph.number, reduce))
    if aggregate is None or aggregate.factor != _of_factor(factor) or aggregate.contents != fingerprint(x):
        return None
    return lend(aggregate.out)


def place_for(x: Tensor, factor: Tensor | None, graph: Graph, reduce: str) -> Callable[[Tensor], None] | None:
    """Return a function that caches a copy of the aggregate once it is computed; None if it is not cached.

    It is cached for features and a graph that were used before, and for the present contents of the features:
    a write to them while the aggregate is computed counts as a later one.
    """
    new = thresholds.now.meetings > 1 and OVER not in graph.derived
    graph.derived[OVER] = True
    if not _met_before(x) or new:
        return None
    noted, contents, of_factor = Noted(x), fingerprint(x), _of_factor(factor)

    def keep(out: Tensor) -> None:
        before: dict[tuple[int, str], _Aggregate] = remembered(x, key=_AGGREGATES) or {}
        # Graphs of mini-batches are not used again.
        living = {at: aggregate for at, aggregate in before.items() if aggregate.graph() is not None}
        # A copy made in inference mode could not be used outside of it.
        with torch.inference_mode(False):
            aggregate = _Aggregate(out.detach().clone(), weakref.ref(graph), contents, of_factor)
        CACHE.store(noted, _AGGREGATES, {**living, (graph.number, reduce): aggregate})

    return keep


def _met_before(x: Tensor) -> bool:
    """Return whether these features were used before, unchanged since; marks them if not."""
    if trained_on(x) or remembered(x, key=_MET) is not None:
        return True
    CACHE.store(Noted(x), _MET, True)
    return False


def _of_factor(factor: Tensor | None) -> tuple[int, torch.dtype] | None:
    return None if factor is None else (fingerprint(factor), factor.dtype)
