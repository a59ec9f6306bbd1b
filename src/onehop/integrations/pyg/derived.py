"""What the rewrites of an edge_index share: when they may be remembered, and how."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.graph.identity import CACHE
from onehop.graph.lending import lend
from onehop.integrations.contexts import context_reason, wraps


@dataclass(frozen=True, slots=True)
class Derived:
    """Tensors that were made from an edge_index, which nobody else has.

    Attributes:
        tensors: The tensors; None stands for the edge_index itself, which the cache must not hold.
    """

    tensors: tuple[Tensor | None, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(tensor.nbytes for tensor in self.tensors if tensor is not None)


def can_remember(edge_index: Any) -> bool:
    """Whether what is made from this edge_index may be remembered."""
    return (
        type(edge_index) is Tensor
        and edge_index.layout is torch.strided
        and not edge_index.is_meta
        and not edge_index.is_inference()
        and not wraps(edge_index)
        and context_reason() is None
    )


def remembered(edge_index: Tensor, rest: Hashable) -> tuple[Tensor, ...] | None:
    """Copies of the tensors made from this edge_index before; PyG may hand them to its users."""
    found: Derived | None = CACHE.find(edge_index, rest)
    return None if found is None else _lent(edge_index, found)


def remember(edge_index: Tensor, rest: Hashable, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Keeps the tensors made from this edge_index, and returns copies."""
    made = Derived(tuple(None if tensor is edge_index else tensor for tensor in tensors))
    CACHE.store(edge_index, rest, made)
    return _lent(edge_index, made)


def _lent(edge_index: Tensor, derived: Derived) -> tuple[Tensor, ...]:
    return tuple(edge_index if tensor is None else lend(tensor) for tensor in derived.tensors)
