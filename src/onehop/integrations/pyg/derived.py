"""What the rewrites of an edge_index share: when they may be remembered, and how."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.graph.identity import CACHE
from onehop.integrations.contexts import context_reason


@dataclass(frozen=True, slots=True)
class Derived:
    """Tensors that were made from an edge_index, and how they were when they were made.

    PyG hands derived tensors to its users, who may write to them: a version that has changed, or a tensor
    that was told to require a gradient, ends the entry.

    Attributes:
        tensors: The tensors; None stands for the edge_index itself, which the cache must not hold.
        versions: Of the tensors.
    """

    tensors: tuple[Tensor | None, ...]
    versions: tuple[int, ...]

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
        and context_reason() is None
    )


def remembered(edge_index: Tensor, rest: Hashable) -> tuple[Tensor, ...] | None:
    """The tensors made from this edge_index before, if nobody has written to them since."""
    found: Derived | None = CACHE.find(edge_index, rest)
    if found is None:
        return None
    tensors = tuple(edge_index if tensor is None else tensor for tensor in found.tensors)
    for tensor, version in zip(tensors, found.versions, strict=True):
        if tensor._version != version or tensor.requires_grad:
            return None
    return tensors


def remember(edge_index: Tensor, rest: Hashable, tensors: tuple[Tensor, ...]) -> None:
    """Keeps the tensors made from this edge_index."""
    kept = tuple(None if tensor is edge_index else tensor for tensor in tensors)
    CACHE.store(edge_index, rest, Derived(kept, tuple(tensor._version for tensor in tensors)))
