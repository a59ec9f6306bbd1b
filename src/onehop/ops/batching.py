"""Batched gradients: several gradients that torch passes to a backward pass at once.

``torch.autograd.grad(is_grads_batched=True)``, and with it the vectorized Jacobian and Hessian of
``torch.autograd.functional``, uses the older of torch's two vmaps; ``torch.vmap`` over
``torch.autograd.grad`` uses the newer one. In both, a tensor of a backward pass represents a batch of tensors
and has no memory of its own. Here the batch becomes a dimension again, over which kernels can run.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from onehop.errors import BackendError

_is_batched = torch._C._functorch.is_legacy_batchedtensor
# The maximal nesting of batches; kVmapNumLevels in torch's LegacyBatchedTensorImpl.h.
_MOST_LEVELS = 64

Dims = Sequence[int | None]
"""The batch dimension of each argument; None if the argument is the same for all members."""

# This is not a Python function, because every operator call uses it, which takes noticeable time on small
# graphs.
in_older_vmap: Callable[[], bool] = partial(
    torch._C._dispatch_tls_is_dispatch_key_included, torch._C._dispatch_key_parse("VmapMode")
)
"""Return whether the older vmap is running, so that any tensor may represent a batch."""


def one_by_one(call: Callable[..., Any], size: int, dims: Dims, args: Sequence[Any]) -> Any:
    """Call a function for every member of a batch.

    Args:
        call: The function; it returns a tensor or a tuple of tensors.
        size: The size of the batch.
        dims: The batch dimension of each argument.
        args: Tensors with a batch dimension, and arguments that are the same for all members.

    Returns:
        The results of ``call``, with the batch as first dimension.
    """
    if size == 0:
        # An empty batch has no member that shows the shapes of results, so a dummy member is used.
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
    """Run a function over the innermost batch of the older vmap.

    Args:
        over: Takes the size of the batch, its dimension in each argument, and the arguments with that
            dimension; returns tensors with the batch as first dimension.
        args: The arguments; at least one of them represents a batch.

    Returns:
        The results of ``over``, as tensors that represent batches again.
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
    """Return the number of the innermost batch that a tensor stands for; 0 for an ordinary tensor."""
    level = 0
    while _is_batched(tensor):
        level += 1
        if level > _MOST_LEVELS:
            raise BackendError(
                "a batch of no gradients: torch's older vmap needs one at least; take torch.vmap."
            )
        # For a tensor of another batch, the result would have the size given here, 0, which no batch has.
        opened = torch._remove_batch_dim(tensor, level, 0, 0)
        if opened.size(0):
            tensor = opened
    return level


def for_each(function: Callable[..., tuple[Tensor, ...]], *args: Any) -> tuple[Tensor, ...]:
    """Call a function of plain tensors, for batches member by member; autograd records nothing.

    Args:
        function: The function, which reads and writes memory itself.
        args: Tensors, which may represent batches, or None.
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
    """The autograd function that splits a batch of the newer vmap into its members."""

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
