"""Memory of the rewrites of an edge_index."""

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop import thresholds
from onehop.graph import Graph
from onehop.graph.identity import remembered
from onehop.graph.lending import lend
from onehop.ops.contexts import context_reason, in_older_vmap, is_wrapped, wraps


@dataclass(slots=True)
class Derived:
    """Tensors that were made from an edge_index, and that only the cache has.

    Attributes:
        tensors: The tensors; None is the edge_index itself, which the cache must not hold.
        scale: [N], numbers whose products over the ends of the edges the second tensor is; None if it is no
            such product, or they are not known.
        graph: The graph of the first tensor, once a layer has aggregated over it. The cache of graphs holds
            it.
    """

    tensors: tuple[Tensor | None, ...]
    scale: Tensor | None = None
    graph: "weakref.ref[Graph] | None" = None


def can_remember(edge_index: Any, least: int | None = None) -> bool:
    """Return whether tensors that are made from this edge_index may be remembered.

    Args:
        edge_index: What has to be recognised.
        least: The fewest numbers in it; None means as many as pay, since few edges are rewritten as fast as
            they are recognised (:func:`.sizes.is_too_small`).
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


def rewritten(
    edge_index: Tensor, key: Hashable, make: Callable[[], tuple[Tensor, ...] | Derived]
) -> tuple[Tensor, ...]:
    """Returns copies of the tensors made from this edge_index, from memory; PyG may give them to its users.

    Args:
        edge_index: The edge_index.
        key: What is made, and of what besides.
        make: Makes the tensors, as :func:`.remembered` calls it; the edge_index itself may be among them.
    """

    def derived() -> Derived:
        made = make()
        if not isinstance(made, Derived):
            made = Derived(made)
        made.tensors = tuple(None if tensor is edge_index else tensor for tensor in made.tensors)
        return made

    lent: tuple[Tensor, ...] = ()
    for tensor in remembered(edge_index, key=key, make=derived).tensors:
        lent += (edge_index if tensor is None else lend(tensor),)
    return lent
