"""The random numbers of torch's CPU generator, drawn by onehop's kernels and compared with torch's first.

torch draws ``bernoulli_`` with its own generator on most processors, and with MKL's generator on some Intel
processors; another release may draw differently. So at first use, a thousand numbers are drawn both ways and
compared.
"""

import os
import threading
from functools import lru_cache

import torch
from torch import Tensor

from onehop.kernels.cpu.dropout import draw
from onehop.native import CPU

# Test cases: how many 32-bit numbers are drawn before, and how many elements. They lie around the borders of
# the generator's blocks of 624 numbers.
_PROOFS = ((0, 1), (1, 311), (3, 312), (620, 7), (7, 400))
_PROBABILITIES = (0.5, 0.1)
_SEED = 20261122

_ATTEMPTS = 3

_exchanging = threading.Lock()


def _renew_lock() -> None:
    global _exchanging
    _exchanging = threading.Lock()


# In a forked process, the thread that held the lock does not exist.
os.register_at_fork(after_in_child=_renew_lock)


@lru_cache
def agrees() -> bool:
    """Return whether our kernels draw the same numbers as torch; tested once, with private generators."""
    with torch.no_grad():
        return all(_same(before, count, p) for before, count in _PROOFS for p in _PROBABILITIES)


def _same(before: int, count: int, p: float) -> bool:
    """Return whether factors and generator states agree after some numbers were drawn."""
    theirs, ours = (torch.Generator(CPU).manual_seed(_SEED) for _ in range(2))
    for generator in (theirs, ours):
        torch.empty(before, dtype=torch.int32, device=CPU).random_(generator=generator)
    expected = torch.empty(count, device=CPU).bernoulli_(1 - p, generator=theirs).div_(1 - p)
    drawn = torch.empty(count, device=CPU)
    return (
        draw_from(ours, p, None, drawn, None)
        and torch.equal(drawn, expected)
        and torch.equal(ours.get_state(), theirs.get_state())
    )


def draw_from(
    generator: torch.Generator, p: float, x: Tensor | None, out: Tensor, mask: Tensor | None
) -> bool:
    """Draw by :func:`onehop.kernels.cpu.dropout.draw`, and advance the generator.

    If another thread draws from the generator meanwhile, our numbers are drawn again after its numbers, so
    that no number is used twice.

    Returns:
        False, with nothing drawn, if the layout of the generator's state is unknown, or if other threads draw
        so often that all attempts failed; then :func:`draw_with_torch` has to run.
    """
    for _ in range(_ATTEMPTS):
        before = generator.get_state()
        after = before.clone()
        if not draw(after, p, x, out, mask):
            return False
        with _exchanging:
            if torch.equal(generator.get_state(), before):
                generator.set_state(after)
                return True
    return False


def draw_with_torch(generator: torch.Generator, p: float, out: Tensor) -> None:
    """Fill a tensor with the factors of a dropout, drawn by torch's own code.

    torch locks its generator, but not against our exchange of the state, which could use a number twice; so
    our lock is held too.
    """
    with _exchanging:
        out.bernoulli_(1 - p, generator=generator)
    out.div_(1 - p)
