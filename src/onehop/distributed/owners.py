"""The ranks that own nodes, as callers give them."""

import torch
from torch import Tensor

from onehop.errors import ArgumentError


def checked_owner(owner: object, nodes: int, parts: int) -> Tensor:
    """Return [N], int32: the rank that owns each node.

    Raises:
        ArgumentError: It is not such a tensor, or names ranks that there are not.
    """
    if (
        not isinstance(owner, Tensor)
        or owner.shape != (nodes,)
        or owner.dtype not in (torch.int32, torch.int64)
    ):
        raise ArgumentError(f"owner: expected an int32 or int64 tensor [{nodes}], a rank for each node.")
    if nodes and (int(owner.min()) < 0 or int(owner.max()) >= parts):
        raise ArgumentError(
            f"owner: expected ranks from 0 to {parts - 1}, got {int(owner.min())} to {int(owner.max())}."
        )
    return owner.int()
