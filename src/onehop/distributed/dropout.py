"""Dropout that every process draws for itself, also where all were seeded alike."""

import torch
from torch import Tensor

from onehop.distributed.streams import seed_of


def dropout(x: Tensor, p: float, rank: int) -> Tensor:
    """``x`` with some entries 0 and the rest multiplied by 1 / (1 - p).

    Processes that were seeded alike drop different positions, and the same ones when seeded so again.

    Args:
        x: Any shape, of a floating-point dtype. Differentiable.
        p: The probability of 0, from 0 to 1.
        rank: Of this process.
    """
    # One number from the stream that the program seeds, so that seeding it repeats this too.
    drawn = int(torch.randint(2**62, (), device="cpu"))
    generator = torch.Generator(x.device).manual_seed(seed_of(drawn, rank))
    kept = torch.empty_like(x, requires_grad=False).bernoulli_(1 - p, generator=generator)
    return x * (kept if p == 1 else kept.div_(1 - p))
