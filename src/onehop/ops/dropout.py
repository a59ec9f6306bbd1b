"""Dropout with torch's own random numbers.

Dropout has no graph and runs only on the CPU, so it is not an operator of :mod:`onehop.ops.library`. Under a
mode, a transform, a compiler or forward-mode autograd, torch's own function runs, which supports all of
these.
"""

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import dropout as _torchs

from onehop import native, thresholds
from onehop.kernels.cpu import dropout as kernels
from onehop.native import DTYPE_CODES
from onehop.ops.contexts import has_memory
from onehop.ops.torch_stream import agrees, draw_from, draw_with_torch

# Bound to names of this module, because for small tensors each lookup takes noticeable time.
_is_compiling = torch.compiler.is_compiling
_grad_is_enabled = torch.is_grad_enabled


def dropout(
    x: Tensor, p: float = 0.5, training: bool = True, generator: torch.Generator | None = None
) -> Tensor:
    """Set some elements of ``x`` to 0 and divide the others by 1 - p, with torch's random numbers.

    The result, its gradients and the generator's state afterwards equal those of
    ``torch.nn.functional.dropout``, bit for bit and for any number of threads; infinity and NaN times 0 are
    NaN. The backward pass needs one bit per element instead of one number. torch's own function runs for
    tensors of other devices, dtypes or classes, for small tensors, inside transforms, modes and compilers,
    and on processors where torch draws other numbers (``onehop info`` shows whether this is one).

    Args:
        x: A tensor of any shape, float32, float64, bfloat16 or float16. Differentiable any number of times.
        p: The probability of 0, from 0 to 1.
        training: False returns ``x`` itself.
        generator: A CPU generator to draw from; None means torch's default one.

    Returns:
        A tensor with the same shape, dtype and strides as in torch; ``x`` itself if ``p`` is 0 or ``x`` is
        empty.

    Raises:
        ValueError: ``p`` is not between 0 and 1 (torch's own error).
        RuntimeError: ``x`` has integers, or ``generator`` is on another device (torch's own errors).

    Examples:
        >>> import onehop, torch
        >>> x = torch.ones(200_000)
        >>> _ = torch.manual_seed(0)
        >>> ours = onehop.dropout(x, p=0.5)
        >>> ours.unique()  # dropped, or divided by 1 - p
        tensor([0., 2.])
        >>> _ = torch.manual_seed(0)
        >>> torch.equal(ours, torch.nn.functional.dropout(x, p=0.5))
        True
    """
    if training and serves(x, p) and (generator is None or generator.device.type == "cpu"):
        return dropped(x, p, generator)
    if generator is None or not training or not 0 < p < 1 or x.numel() == 0:
        # In these cases, no numbers are drawn from a given generator.
        return _torchs(x, p, training)
    return x * torch.empty_like(x, requires_grad=False).bernoulli_(1 - p, generator=generator).div_(1 - p)


def serves(x: Tensor, p: float) -> bool:
    """Return whether the fast path takes a tensor now, in training; the context is checked first."""
    if type(p) is not float or not 0 < p < 1 or _is_compiling():
        return False
    if not isinstance(x, Tensor) or x.dtype not in DTYPE_CODES:
        return False
    elements, bounds = x.numel(), thresholds.now
    recorded = x.requires_grad and _grad_is_enabled()
    enough = bounds.dropout_recorded_elements if recorded else bounds.dropout_elements
    return elements >= enough and elements > 0 and has_memory(x) and agrees()


def dropped(x: Tensor, p: float, generator: torch.Generator | None = None) -> Tensor:
    """Run :func:`dropout` on a tensor for which :func:`serves` holds."""
    if _grad_is_enabled() and x.requires_grad:
        out: Tensor = _Dropped.apply(x, p, generator)
    else:
        out, _ = _draw(x, p, generator, with_multiplier=False)
    return out


def factors(out: Tensor, p: float, generator: torch.Generator | None = None) -> Tensor:
    """Fill a tensor with the factors of dropout: 0, or 1 / (1 - p).

    Args:
        out: A tensor without gaps for which :func:`serves` holds. It is filled in memory order, like
            ``torch.empty_like(x)`` when torch drops elements of ``x``.
        p: The probability of 0, between 0 and 1.
        generator: See :func:`dropout`.

    Returns:
        ``out``.
    """
    source = torch.default_generator if generator is None else generator
    if not draw_from(source, p, None, out, None):
        draw_with_torch(source, p, out)
    return out


def _draw(
    x: Tensor, p: float, generator: torch.Generator | None, *, with_multiplier: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the result and, ``with_multiplier``, what a backward pass multiplies by: bits, or factors."""
    out = _empty_beside(x)
    if out is None:
        factor = factors(torch.empty_like(x, requires_grad=False), p, generator)
        return x * factor, factor
    mask = kernels.empty_mask(x.numel()) if with_multiplier else None
    source = torch.default_generator if generator is None else generator
    if draw_from(source, p, x, out, mask):
        return out, mask
    factor = torch.empty_like(x, requires_grad=False)
    draw_with_torch(source, p, factor)
    return x * factor, factor


def _empty_beside(x: Tensor) -> Tensor | None:
    """Return an uninitialised tensor with the memory layout of ``x``; None if ``x`` has gaps."""
    if x.is_contiguous() and x.dim():
        return native.empty(x.shape, x.dtype)
    out = torch.empty_like(x, requires_grad=False)
    return out if out.stride() == x.stride() else None


class _Mask(NamedTuple):
    """The description of a mask for a backward pass, without its bits.

    Attributes:
        p: The probability of 0.
        shape: The shape of the operand.
        strides: The strides of the operand; the bits are in the operand's memory order.
        contiguous: Whether the operand is contiguous; then dimensions of size 1 may have any strides.
    """

    p: float
    shape: torch.Size
    strides: tuple[int, ...]
    contiguous: bool

    def fits(self, grad: Tensor) -> bool:
        """Return whether a gradient has the same memory order, and no gaps."""
        return grad.is_contiguous() if self.contiguous else grad.stride() == self.strides


class _Dropped(torch.autograd.function._SingleLevelFunction):
    """The autograd function of dropout; it saves one bit per element."""

    apply: ClassVar[Any]

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
        out, multiplier = _draw(x, p, generator, with_multiplier=True)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(multiplier)
        ctx.mask = _Mask(p, x.shape, x.stride(), x.is_contiguous())
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, None, None]:
        return _times(grad, ctx.saved_tensors[0], ctx.mask), None, None


class _Masked(torch.autograd.function._SingleLevelFunction):
    """The autograd function of the backward pass, which is linear in the gradient and uses the same mask."""

    apply: ClassVar[Any]

    @staticmethod
    def forward(ctx: Any, grad: Tensor, multiplier: Tensor, mask: _Mask) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(multiplier)
        ctx.mask = mask
        return _product(grad, multiplier, mask)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, None, None]:
        return _times(grad, ctx.saved_tensors[0], ctx.mask), None, None


def _times(grad: Tensor | None, multiplier: Tensor, mask: _Mask) -> Tensor | None:
    """Return a gradient times the factors; differentiable; None if there is no gradient."""
    if grad is None:
        return None
    if multiplier.is_floating_point():
        return grad * multiplier
    if not has_memory(grad) or not mask.fits(grad):
        # torch's own product handles strides, batches and transforms.
        factor = torch.empty_strided(mask.shape, mask.strides, dtype=grad.dtype, device=native.CPU)
        kernels.apply(mask.p, None, factor, multiplier)
        return grad * factor
    if _grad_is_enabled() and grad.requires_grad:
        product: Tensor = _Masked.apply(grad, multiplier, mask)
        return product
    return _product(grad, multiplier, mask)


def _product(grad: Tensor, multiplier: Tensor, mask: _Mask) -> Tensor:
    dense = grad.is_contiguous() and grad.dim()
    out = native.empty(grad.shape, grad.dtype) if dense else torch.empty_like(grad)
    kernels.apply(mask.p, grad, out, multiplier)
    return out
