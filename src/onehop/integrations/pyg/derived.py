"""Memory of the rewrites of an edge_index."""

import weakref
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop import thresholds
from onehop.graph import Graph
from onehop.graph.identity import CACHE
from onehop.graph.lending import lend
from onehop.ops.contexts import context_reason, in_older_vmap, is_wrapped, wraps

_HOST = torch.device("cpu")


@dataclass(slots=True)
class Derived:
    """Tensors that were made from an edge_index, which nobody else has.

    Attributes:
        tensors: The tensors; None stands for the edge_index itself, which the cache must not hold.
        scale: [N], numbers whose products over the ends of the edges the second tensor is; None where it is
            none, or they are not known.
        graph: The graph of the first tensor, once a layer has aggregated over it. The cache of graphs holds
            it.
    """

    tensors: tuple[Tensor | None, ...]
    scale: Tensor | None = None
    graph: "weakref.ref[Graph] | None" = None

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return next((each.device for each in (*self.tensors, self.scale) if each is not None), _HOST)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(each.nbytes for each in (*self.tensors, self.scale) if each is not None)


def can_remember(edge_index: Any, least: int | None = None) -> bool:
    """Return whether tensors that are made from this edge_index may be remembered.

    Args:
        edge_index: What is to be recognised.
        least: The fewest numbers in it; None means as many as it is worth it for, since few edges are
            rewritten as fast as they are recognised (:func:`.sizes.is_too_small`).
    """
    return (
        type(edge_index) is Tensor
        and edge_index.numel() >= (2 * thresholds.now.few_edges if least is None else least)
        and context_reason() is None
        and edge_index.layout is torch.strided
        and not edge_index.is_meta
        and not edge_index.is_inference()
        and not is_wrapped(edge_index)
        and not (in_older_vmap() and wraps(edge_index))
    )


def remembered(edge_index: Tensor, rest: Hashable) -> tuple[Tensor, ...] | None:
    """Copies of the tensors made from this edge_index before; PyG may hand them to its users."""
    found: Derived | None = CACHE.find(edge_index, rest)
    if found is None:
        return None
    lent: tuple[Tensor, ...] = ()
    for tensor in found.tensors:
        lent += (edge_index if tensor is None else lend(tensor),)
    return lent


def remember(
    edge_index: Tensor, rest: Hashable, tensors: tuple[Tensor, ...], scale: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Keeps the tensors made from this edge_index, and returns copies.

    Args:
        edge_index: The edge_index.
        rest: What else they were made from.
        tensors: The tensors.
        scale: [N], numbers whose products the second tensor is, or None.
    """
    made = Derived(tuple(None if tensor is edge_index else tensor for tensor in tensors), scale)
    CACHE.store(edge_index, rest, made)
    return tuple([edge_index if tensor is None else lend(tensor) for tensor in made.tensors])
