"""Batched gradients: vectors of gradients that torch hands to a backward pass all at once.

``torch.autograd.grad(is_grads_batched=True)``, and with it the vectorized Jacobian and Hessian of
``torch.autograd.functional``, runs the older of torch's two vmaps, and ``torch.vmap`` over
``torch.autograd.grad`` the newer. Under either, a tensor of a backward pass stands for a batch of tensors and
has no memory of its own. Here the batch becomes a dimension again, for the kernels to go over.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from onehop.errors import BackendError

_is_batched = torch._C._functorch.is_legacy_batchedtensor
# Of batches within batches; kVmapNumLevels in torch's LegacyBatchedTensorImpl.h.
_MOST_LEVELS = 64

Dims = Sequence[int | None]
"""For each argument the dimension that is the batch; None where it is the same for all."""

# Not a function of ours: every call of an operator calls it, and small graphs notice.
in_older_vmap: Callable[[], bool] = partial(
    torch._C._dispatch_tls_is_dispatch_key_included, torch._C._dispatch_key_parse("VmapMode")
)
"""Whether the older vmap is at work, so that any tensor may stand for a batch: its key is switched on."""


def one_by_one(call: Callable[..., Any], size: int, dims: Dims, args: Sequence[Any]) -> Any:
    """Calls for every member of a batch.

    Args:
        call: Returns a tensor or a tuple of tensors.
        size: Of the batch.
        dims: Of the batch, in each argument.
        args: Tensors with the batch as a dimension, and what is the same for all.

    Returns:
        What ``call`` returns, with the batch as first dimension.
    """
    if size == 0:
        # No member shows the shapes; a made-up one does.
        made_up = [
            arg if dim is None else arg.new_zeros((*arg.shape[:dim], 1, *arg.shape[dim + 1 :]))
            for arg, dim in zip(args, dims, strict=True)
        ]
        one = one_by_one(call, 1, dims, made_up)
        return one[:0] if isinstance(one, Tensor) else tuple(part[:0] for part in one)
    results = [
        call(*(arg if dim is None else arg.select(dim, member) for arg, dim in zip(args, dims, strict=True)))
        for member in range(size)
    ]
    if isinstance(results[0], Tensor):
        return torch.stack(results)
    return tuple(torch.stack(parts) for parts in zip(*results, strict=True))


def over_older_batch(over: Callable[[int, Dims, Sequence[Any]], Any], args: Sequence[Any]) -> Any:
    """Goes over the innermost batch of the older vmap.

    Args:
        over: Gets the size of the batch, its dimension in each argument, and the arguments with that
            dimension; returns tensors with the batch as first dimension.
        args: Of which one at least stands for a batch.

    Returns:
        What ``over`` returns, standing for batches again.
    """
    levels = [_innermost_level(arg) if isinstance(arg, Tensor) else 0 for arg in args]
    innermost = max(levels)
    dims = [0 if level == innermost else None for level in levels]
    opened = [
        arg if dim is None else torch._remove_batch_dim(arg, innermost, 0, 0)
        for arg, dim in zip(args, dims, strict=True)
    ]
    size = opened[dims.index(0)].size(0)
    results = over(size, dims, opened)
    if isinstance(results, Tensor):
        return torch._add_batch_dim(results, 0, innermost)
    return tuple(torch._add_batch_dim(part, 0, innermost) for part in results)


def _innermost_level(tensor: Tensor) -> int:
    """The number of the innermost batch that a tensor stands for; 0 if it is an ordinary one."""
    level = 0
    while _is_batched(tensor):
        level += 1
        if level > _MOST_LEVELS:
            raise BackendError(
                "a batch of no gradients: torch's older vmap needs one at least; take torch.vmap."
            )
        # Of another batch it makes one of the size given here, of which there is none.
        opened = torch._remove_batch_dim(tensor, level, 0, 0)
        if opened.size(0):
            tensor = opened
    return level


def for_each(function: Callable[..., tuple[Tensor, ...]], *args: Any) -> tuple[Tensor, ...]:
    """Calls a function of plain tensors, one by one for batches; nothing is recorded for autograd.

    Args:
        function: Reads and writes memory itself.
        args: Tensors, which may stand for batches, and None.
    """
    results: tuple[Tensor, ...]
    if torch._C._are_functorch_transforms_active():
        results = _ForEach.apply(function, *args)  # type: ignore[no-untyped-call]
    elif in_older_vmap() and any(isinstance(arg, Tensor) and _is_batched(arg) for arg in args):
        results = over_older_batch(partial(one_by_one, partial(for_each, function)), args)
    else:
        results = function(*args)
    return results


class _ForEach(torch.autograd.Function):
    """The way to the members of a batch of the newer vmap."""

    @staticmethod
    def forward(function: Callable[..., tuple[Tensor, ...]], *args: Any) -> tuple[Tensor, ...]:
        return function(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], function: Callable[..., tuple[Tensor, ...]], *args: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        results = one_by_one(partial(for_each, function), info.batch_size, in_dims[1:], args)
        return results, (0,) * len(results)
