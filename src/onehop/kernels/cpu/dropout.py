"""The kernels of dropout: drawing and multiplying in one pass, and products by a mask."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from onehop import native, processor, thresholds
from onehop.native import CPU, DTYPE_CODES, address, extension

MASK_BITS = 64
"""Number of elements in one word of a mask."""


def empty_mask(elements: int) -> Tensor:
    """Return an uninitialised mask, [ceil(elements / 64)], int64, with one bit per element, lowest first."""
    return torch.empty((elements + MASK_BITS - 1) // MASK_BITS, dtype=torch.int64, device=CPU)


def draw(state: Tensor, p: float, x: Tensor | None, out: Tensor, mask: Tensor | None) -> bool:
    """Draw a mask from a generator's state, and multiply: ``out = x * mask / (1 - p)``.

    Elements are processed in memory order; ``x`` and ``out`` must have the same strides and no gaps.

    Args:
        state: The result of ``torch.Generator.get_state``; it is advanced past the drawn numbers.
        p: The probability of 0, between 0 and 1.
        x: The operand; None means ones.
        out: The result, of the dtype of ``x``, which is one of the keys of :data:`onehop.native.DTYPE_CODES`.
        mask: A mask from :func:`empty_mask`, which gets 1 for each kept element; None if no mask is needed.

    Returns:
        False, with nothing done, if the layout of the state is unknown.
    """
    call = _call(p, x, out, mask)
    call.share = thresholds.now.dropout_share
    # torch keeps an element if its number i / 2^53 is below 1 - p.
    call.bound = math.ceil((1 - p) * 2**53)
    call.state, call.state_bytes = address(state), state.nbytes
    drawn: bool = extension.draw_dropout(call)
    return drawn


def apply(p: float, x: Tensor | None, out: Tensor, mask: Tensor) -> None:
    """Multiply by a mask that :func:`draw` made; the arguments are those of :func:`draw`."""
    extension.apply_dropout(_call(p, x, out, mask))


def _call(p: float, x: Tensor | None, out: Tensor, mask: Tensor | None) -> extension.DropoutCall:
    call = extension.DropoutCall()
    call.dtype, call.count, call.scale = DTYPE_CODES[out.dtype], out.numel(), _scale(p, out.dtype)
    call.threads = native.threads()
    call.nontemporal = out.nbytes > processor.last_level_cache_bytes()
    call.out = address(out)
    if x is not None:
        call.x = address(x)
    if mask is not None:
        call.kept = address(mask)
    return call


@lru_cache(maxsize=256)
def _scale(p: float, dtype: torch.dtype) -> float:
    """Return the factor of kept elements, rounded as in torch."""
    return torch.ones(1, dtype=dtype, device=CPU).div_(1 - p).item()
