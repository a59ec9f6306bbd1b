"""A cache of aggregates of constant features, such as the first layer's in full-batch training.

Features that need no gradient, and the graph, are marked at their first use, and their aggregate is kept at
the second. Later calls get copies of it, which share its memory until one of them is written to
(:mod:`onehop.graph.lending`). The aggregate is valid while neither the features nor the weights have been
written to. This is checked by their version counters, and by fingerprints of their contents, which detect
writes that bypass the counters.

A kept aggregate equals the computed one, bit for bit. This does not hold for the order of a layer's linear
step and aggregation: A (X W) and (A X) W are rounded differently, and save different tensors for the backward
pass. So that repeated forward passes give the same result, the order changes only after a backward pass,
which shows that the features will be used again.
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

# Features may take at most one part in this many of the cache, so that their aggregates do not evict graphs.
_LARGEST_SHARE = 8
OVER = "features were aggregated"
"""A key among the results derived from a graph; it marks that the graph was used before."""
_AGGREGATES, _MET, _TRAINED = (f"constant features, {what}" for what in ("aggregated", "met", "trained on"))


class _Aggregate(NamedTuple):
    """A cached aggregate, and what identifies the operands that it was made from.

    Attributes:
        out: The aggregate; only the cache refers to it.
        graph: The graph.
        contents: The fingerprint of the features.
        factor: The fingerprint and the dtype of the weights or scales; None without any.
    """

    out: Tensor
    graph: "weakref.ref[Graph]"
    contents: int
    factor: tuple[int, torch.dtype] | None


def constant(x: Tensor, factor: Tensor | None, edges: int) -> bool:
    """Return whether an aggregate of these features may be cached; only features on the CPU are cached.

    Args:
        x: [N, F], the features.
        factor: The weights or scales, or None.
        edges: The number of edges.
    """
    return (
        not x.requires_grad
        and session.now.settings.reuse
        and x.is_cpu  # fingerprints are computed on the CPU
        and x.dim() == 2
        and edges * x.size(1) >= thresholds.now.kept_work
        and (factor is None or (factor.is_contiguous() and not factor.requires_grad))
        and x.nbytes * _LARGEST_SHARE <= config.graph_cache_bytes()
        and x.is_contiguous()
        and not x.is_inference()
        and not saving_is_watched()
    )


def trained_on(x: Tensor) -> bool:
    """Return whether a backward pass ran through a layer of these features, and they are unchanged since."""
    return thresholds.now.meetings <= 1 or remembered(x, key=_TRAINED) is not None


def note_training(x: Tensor) -> None:
    """Notes that a backward pass ran through a layer of these features."""
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

    The aggregate is cached if features and graph were used before. It belongs to the contents that the
    features have now: a write to them while the aggregate is computed counts as a later write.
    """
    new = thresholds.now.meetings > 1 and OVER not in graph.derived
    graph.derived[OVER] = True
    if not _met_before(x) or new:
        return None
    noted, contents, of_factor = Noted(x), fingerprint(x), _of_factor(factor)

    def keep(out: Tensor) -> None:
        before: dict[tuple[int, str], _Aggregate] = remembered(x, key=_AGGREGATES) or {}
        # Aggregates of freed graphs, such as those of mini-batches, are dropped.
        living = {at: aggregate for at, aggregate in before.items() if aggregate.graph() is not None}
        # A copy made in inference mode could not be used outside of it.
        with torch.inference_mode(False):
            aggregate = _Aggregate(out.detach().clone(), weakref.ref(graph), contents, of_factor)
        CACHE.store(noted, _AGGREGATES, {**living, (graph.number, reduce): aggregate})

    return keep


def _met_before(x: Tensor) -> bool:
    """Return whether these features were used before and are unchanged since; mark them if not."""
    if trained_on(x) or remembered(x, key=_MET) is not None:
        return True
    CACHE.store(Noted(x), _MET, True)
    return False


def _of_factor(factor: Tensor | None) -> tuple[int, torch.dtype] | None:
    return None if factor is None else (fingerprint(factor), factor.dtype)
