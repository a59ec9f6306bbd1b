"""Dropout with a separate random stream on every process, even if all have the same seed."""

import torch
from torch import Tensor

from onehop.distributed.streams import seed_of
from onehop.ops.dropout import factors, serves


def dropout(x: Tensor, p: float, rank: int) -> Tensor:
    """``x`` with some entries 0 and the rest multiplied by 1 / (1 - p).

    Processes with the same seed drop different positions, and drop the same ones again with the same seed.

    Args:
        x: Any shape, of a floating-point dtype. Differentiable.
        p: The probability of 0, from 0 to 1.
        rank: Rank of this process.
    """
    # One number from the seeded stream, so that the seed makes this reproducible too.
    drawn = int(torch.randint(2**62, (), device="cpu"))
    generator = torch.Generator(x.device).manual_seed(seed_of(drawn, rank))
    kept = torch.empty_like(x, requires_grad=False)
    if serves(kept, p):
        return x * factors(kept, p, generator)
    kept.bernoulli_(1 - p, generator=generator)
    return x * (kept if p == 1 else kept.div_(1 - p))
