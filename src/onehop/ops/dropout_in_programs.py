"""Dropout as an operator of compiled programs: torch's eager random numbers, and one saved bit per element.

Inductor would draw from its own random stream, one element at a time. These operators draw the same numbers
as the layer in eager mode, and leave torch's generator in the same state.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._guards import TracingContext
from torch.utils._python_dispatch import _disable_current_modes

from onehop import native
from onehop.kernels.cpu import dropout as kernels
from onehop.native import DTYPE_CODES
from onehop.ops.namespace import LIBRARY
from onehop.ops.torch_stream import agrees, draw_from, draw_with_torch

# Two calls must draw two masks, and a backward pass must not draw again; compilers neither merge nor repeat
# operators with this tag.
LIBRARY.define("dropout(Tensor x, float p) -> (Tensor, Tensor)", tags=(torch.Tag.nondeterministic_seeded,))
LIBRARY.define("dropout_grad(Tensor grad, Tensor kept, float p) -> Tensor")


def applies(x: Tensor, p: float) -> bool:
    """Return whether a program is traced in which :func:`dropout` can replace torch's, in training."""
    if type(p) is not float or not 0 < p < 1:
        return False
    line_by_line = torch.compiler.is_dynamo_compiling()
    if not line_by_line and TracingContext.try_get() is None:
        return False
    if not x.is_cpu or x.dtype not in DTYPE_CODES or x.layout is not torch.strided:
        return False
    if not x.is_contiguous():
        return False
    if line_by_line:
        # Dynamo traces this function, but cannot trace the comparison of random numbers. The operator
        # compares them.
        return True
    # The comparison draws numbers, which must not be traced.
    with _disable_current_modes():
        return agrees()


def dropout(x: Tensor, p: float) -> Tensor:
    """Set some elements of ``x`` to 0 and divide the others by 1 - p, in a program.

    Args:
        x: A contiguous CPU tensor of any shape, float32, float64, bfloat16 or float16. Differentiable.
        p: The probability of 0, between 0 and 1.
    """
    out: Tensor = torch.ops.onehop.dropout(x, p)[0]
    return out


@torch.library.impl(LIBRARY, "dropout", "CPU")
def _drawn(x: Tensor, p: float) -> tuple[Tensor, Tensor]:
    x, source = x.contiguous(), torch.default_generator
    out, mask = native.empty(x.shape, x.dtype), kernels.empty_mask(x.numel())
    if x.numel() and not (agrees() and draw_from(source, p, x, out, mask)):
        factors = torch.empty_like(x)
        draw_with_torch(source, p, factors)
        return x * factors, _bits(factors, mask)
    return out, mask


def _bits(factors: Tensor, mask: Tensor) -> Tensor:
    """Write the mask of factors to ``mask``: a bit is 1 if the factor is not 0."""
    packed = np.packbits((factors != 0).flatten().numpy(), bitorder="little")
    mask.zero_().view(torch.uint8)[: len(packed)] = torch.from_numpy(packed)
    return mask


def _like_drawn(x: Tensor, p: float) -> tuple[Tensor, Tensor]:
    words = (x.numel() + kernels.MASK_BITS - 1) // kernels.MASK_BITS
    return x.new_empty(x.shape), x.new_empty((words,), dtype=torch.int64)


@torch.library.impl(LIBRARY, "dropout_grad", "CPU")
def _multiplied(grad: Tensor, mask: Tensor, p: float) -> Tensor:
    grad = grad.contiguous()
    out = native.empty(grad.shape, grad.dtype)
    if grad.numel():
        kernels.apply(p, grad, out, mask)
    return out


def _like_multiplied(grad: Tensor, mask: Tensor, p: float) -> Tensor:
    return grad.new_empty(grad.shape)


def _keep_mask(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.p = inputs[1]
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor, None]:
    return torch.ops.onehop.dropout_grad(grad, ctx.saved_tensors[0], ctx.p), None


def _keep_operands(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])
    ctx.p = inputs[2]


def _backward_of_grad(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    return torch.ops.onehop.dropout_grad(grad, ctx.saved_tensors[0], ctx.p), None, None


torch.library.register_fake("onehop::dropout", _like_drawn, lib=LIBRARY)
torch.library.register_fake("onehop::dropout_grad", _like_multiplied, lib=LIBRARY)
torch.library.register_autograd("onehop::dropout", _backward, setup_context=_keep_mask, lib=LIBRARY)
torch.library.register_autograd(
    "onehop::dropout_grad", _backward_of_grad, setup_context=_keep_operands, lib=LIBRARY
)
