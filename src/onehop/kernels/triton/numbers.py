"""Numbers in the 32 bits that kernels take."""

import ctypes

from onehop.calls import Attention

_WORD = 2**32


def two_parts(number: float) -> tuple[float, float]:
    """A number as the sum of two 32-bit ones, which kernels take; together they have 48 bits."""
    high = ctypes.c_float(number).value
    return high, number - high


def dropout_words(operands: Attention) -> dict[str, int]:
    """``base`` and ``threshold`` of :func:`onehop.kernels.triton.attention_parts.multipliers`.

    The base is the part of :func:`onehop.reference.dropout.dropout_mask` that depends on the seed only.
    """
    base = _mix(_mix(operands.seed % _WORD) ^ (operands.seed // _WORD))
    return {"base": _signed(base), "threshold": _signed(int(operands.dropout * _WORD))}


def _signed(word: int) -> int:
    """An unsigned word of 32 bits as the signed number of the same bits, so that its type is always int32."""
    return word - _WORD if word >= _WORD // 2 else word


def _mix(x: int) -> int:
    x = ((x ^ (x >> 16)) * 0x7FEB352D) % _WORD
    x = ((x ^ (x >> 15)) * 0x846CA68B) % _WORD
    return x ^ (x >> 16)
