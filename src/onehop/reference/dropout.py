"""Dropout as torch draws it, and the attention operators' mask, a hash of seed, edge and head."""

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF
# 2^32 divided by the golden ratio, rounded to an odd number; it separates heads and the two rounds.
_STEP = 0x9E3779B9


def dropout(
    x: Tensor, p: float = 0.5, training: bool = True, generator: torch.Generator | None = None
) -> Tensor:
    """Return ``x`` with some elements set to 0 and the others divided by 1 - p, drawn by torch.

    Args:
        x: Tensor of any shape, of a floating-point dtype.
        p: The probability of an element to become 0, from 0 to 1.
        training: False returns ``x`` itself.
        generator: The generator to use; None means torch's default generator.
    """
    if generator is None:
        # The patch replaces torch.nn.functional.dropout, but not this function.
        return torch.dropout(x, p, training)
    if not training or p == 0 or x.numel() == 0:
        return x
    if p == 1:
        return x * torch.zeros((), dtype=x.dtype, device=x.device)
    return x * torch.empty_like(x, requires_grad=False).bernoulli_(1 - p, generator=generator).div_(1 - p)


def mix(x: Tensor) -> Tensor:
    """Apply a bijection of 32-bit words in which every output bit depends on every input bit.

    This is the function ``lowbias32`` of Chris Wellons, "Prospecting for Hash Functions" (2018), which he
    released into the public domain.

    Args:
        x: int64, values in [0, 2^32).
    """
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & _WORD
    x = x ^ (x >> 15)
    x = (x * 0x846CA68B) & _WORD
    return x ^ (x >> 16)


def dropout_mask(
    edges: int | Tensor, heads: int, probability: float, seed: int, dtype: torch.dtype
) -> Tensor:
    """Return the factor of each edge's weight: 0, or 1 / (1 - probability).

    With the halves (low, high) of 64-bit numbers: ``base = mix(mix(seed.low) ^ seed.high)``; for head h
    ``first = mix(base + h * step)`` and ``second = mix(first + step)``; edge e is kept if ``mix(mix(e.low ^
    first) + (second ^ e.high))`` is at least ``probability * 2^32``. All operations are modulo 2^32.

    Args:
        edges: Number of edges; an edge's number is its position in the caller's order. Or the edge numbers
            themselves, [E], int64, for a subset of a graph's edges.
        heads: Number of heads.
        probability: Probability of being dropped, in [0, 1).
        seed: The seed, in [0, 2^63).
        dtype: Dtype of the result.

    Returns:
        [E, H], the factors.
    """
    numbers = edges if isinstance(edges, Tensor) else torch.arange(edges, device="cpu")
    word = torch.tensor([seed & _WORD, seed >> 32], device=numbers.device)
    base = mix(mix(word[:1]) ^ word[1:])
    first = mix((base + torch.arange(heads, device=numbers.device) * _STEP) & _WORD)
    second = mix((first + _STEP) & _WORD)
    edge = numbers.unsqueeze(1)
    noise = mix((mix((edge & _WORD) ^ first) + (second ^ (edge >> 32))) & _WORD)
    return (noise >= int(probability * 2**32)).to(dtype) / (1 - probability)
