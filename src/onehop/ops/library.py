"""The torch.library namespace ``onehop``, and what its operators share.

An operator takes its graph as a number (``Graph.number``), so that compiled programs can hold it. Each has
three parts: a kernel for real tensors (key CompositeExplicitAutograd: any device, the backend decides), a
fake kernel that knows shapes alone, and a way to record an autograd ``Function`` when a gradient is wanted.
Backward passes call the operators again, so that they can be differentiated too.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import forward_ad, profiler

from onehop.errors import BackendError
from onehop.graph import Graph, by_number
from onehop.ops.batching import Dims, in_older_vmap, one_by_one, over_older_batch

# By one name each, for every call asks.
_length_of_modes = torch._C._len_torch_dispatch_stack
_transforms_are_active = torch._C._are_functorch_transforms_active

LIBRARY = torch.library.Library("onehop", "DEF")


class Function(torch.autograd.function._SingleLevelFunction):
    """What records an operator: ``torch.autograd.Function`` but for its care for transforms of torch.func.

    It costs every call a microsecond, which small graphs notice, and an Operator refuses those itself.
    """

    apply: ClassVar[Callable[..., Any]]


class Operator:
    """A registered operator, and how to call it.

    Plain tensors go straight to the kernel, for the dispatcher's turns would cost a small graph more than its
    sums. Whatever a mode, a transform, a compiler or a profiler watches goes through the dispatcher.

    Args:
        schema: As torch.library takes it.
        kernel: For real tensors.
        fake: For shapes alone.
        record: Runs the operator as an autograd ``Function`` where a gradient is wanted, and returns None
            where none is; None if the operator is never differentiated.
        fold: Runs the operator for a whole batch at once: gets the operator, the size of the batch, its
            dimension in each argument and the arguments, and returns what the operator does with the batch as
            first dimension, or None where it cannot; None if every batch is run one by one.
    """

    def __init__(
        self,
        schema: str,
        kernel: Callable[..., Any],
        fake: Callable[..., Any],
        record: Callable[..., Any] | None = None,
        fold: Callable[..., Any] | None = None,
    ) -> None:
        name = schema[: schema.index("(")]
        LIBRARY.define(schema)
        LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"onehop::{name}", fake, lib=LIBRARY)
        LIBRARY.impl(name, self._autograd, "Autograd")
        LIBRARY.impl(name, self._in_older_vmap, "Batched")
        torch.library.register_vmap(f"onehop::{name}", self._in_vmap, lib=LIBRARY)
        self._kernel, self._record, self._fold = kernel, record, fold
        self._dispatched: Callable[..., Any] = getattr(torch.ops.onehop, name).default

    def __call__(self, x: Tensor, *args: Any) -> Any:
        """The operator's result, recorded if a gradient is wanted."""
        # In the older vmap any argument may stand for a batch. Asked last: torch.compile cannot trace it.
        if not _is_plain(x) or in_older_vmap():
            return self._dispatched(x, *args)
        if self._record is not None and torch.is_grad_enabled():
            recorded = self._record(x, *args)
            if recorded is not None:
                return recorded
        return self._kernel(x, *args)

    def unrecorded(self, x: Tensor, *args: Any) -> Any:
        """The operator's result: what a ``Function`` records, which never has a batch among its arguments."""
        if _is_plain(x):
            return self._kernel(x, *args)
        with torch._C._AutoDispatchBelowAutograd():
            return self._dispatched(x, *args)

    def _autograd(self, x: Tensor, *args: Any) -> Any:
        self._refuse_transforms(x, *filter(torch.is_tensor, args))
        recorded = self._record(x, *args) if self._record is not None else None
        return self.unrecorded(x, *args) if recorded is None else recorded

    def _in_older_vmap(self, *args: Any) -> Any:
        return over_older_batch(self._over_batch, args)

    def _in_vmap(self, info: Any, in_dims: Sequence[Any], *args: Any) -> tuple[Any, Any]:
        # For a list of flags torch gives a list of dimensions, all None.
        dims = [dim if isinstance(dim, int) else None for dim in in_dims]
        found = self._over_batch(info.batch_size, dims, args)
        return found, 0 if isinstance(found, Tensor) else (0,) * len(found)

    def _over_batch(self, size: int, dims: Dims, args: Sequence[Any]) -> Any:
        folded = None if self._fold is None else self._fold(self._dispatched, size, dims, args)
        return one_by_one(self._dispatched, size, dims, args) if folded is None else folded

    def _refuse_transforms(self, *tensors: Tensor) -> None:
        """Raises where a derivative is asked for that would be left out."""
        if torch._C._are_functorch_transforms_active() and needs_grad(*tensors):
            what = "gradients of torch.func (grad, vjp, jacrev)"
        elif forward_ad._current_level >= 0 and any(
            forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors
        ):
            what = "derivatives in forward mode (torch.func.jvp, dual tensors)"
        else:
            return
        raise BackendError(
            f"{self._dispatched}: {what} do not go through onehop's operators; take torch.autograd.grad or "
            "backward()."
        )


def _is_plain(x: Tensor) -> bool:
    return not (
        torch.compiler.is_compiling()
        or (type(x) is not Tensor and type(x) is not torch.nn.Parameter)
        or _length_of_modes()
        or _transforms_are_active()
        or forward_ad._current_level >= 0
        or profiler._is_profiler_enabled
    )


def needs_grad(*tensors: Tensor | None) -> bool:
    """Whether a gradient to any of these is wanted now."""
    # A loop, for a generator takes twice as long, and small graphs notice.
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def keep_alive(number: int) -> Graph | None:
    """The graph, for a recorded operation to hold until its backward pass; None while a program is traced."""
    return by_number(number) if type(number) is int else None
