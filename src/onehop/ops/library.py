"""The torch.library namespace ``onehop``, and what its operators share.

An operator takes its graph as a number (``Graph.number``), so that compiled programs can hold it. Each has
three parts: a kernel for real tensors (key CompositeExplicitAutograd: any device, the backend decides), a
fake kernel that knows shapes alone, and a kernel for the Autograd key that records an autograd ``Function``
when a gradient is wanted. Backward passes call the operators again, so that they can be differentiated too.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop.graph import Graph, by_number

LIBRARY = torch.library.Library("onehop", "DEF")


def define(
    schema: str, kernel: Callable[..., Any], fake: Callable[..., Any], autograd: Callable[..., Any]
) -> Callable[..., Any]:
    """Registers an operator and returns how to call it.

    Plain tensors go straight to the Autograd kernel, for the dispatcher's turns would cost a small graph more
    than its sums. Whatever a mode, a transform, a compiler or a profiler watches goes through the dispatcher.
    """
    name = schema[: schema.index("(")]
    LIBRARY.define(schema)
    LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"onehop::{name}", fake, lib=LIBRARY)
    LIBRARY.impl(name, autograd, "Autograd")
    operator: Callable[..., Any] = getattr(torch.ops.onehop, name).default

    def call(x: Tensor, *args: Any) -> Any:
        return autograd(x, *args) if _is_plain(x) else operator(x, *args)

    return call


def below_autograd(operator: Callable[..., Any], kernel: Callable[..., Any], x: Tensor, *args: Any) -> Any:
    """The operator's result, unrecorded: what an Autograd kernel goes on with."""
    if _is_plain(x):
        return kernel(x, *args)
    with torch._C._AutoDispatchBelowAutograd():
        return operator(x, *args)


def _is_plain(x: Tensor) -> bool:
    return not (
        torch.compiler.is_compiling()
        or (type(x) is not Tensor and type(x) is not torch.nn.Parameter)
        or torch._C._len_torch_dispatch_stack()
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.profiler._is_profiler_enabled
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
