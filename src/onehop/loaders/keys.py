"""Keys of batches: numbers from which the random numbers of a batch are derived.

A loader uses :func:`drawing_at` to say where a batch is drawn: the loader's seed, its epoch and the number of
the batch, which all of its processes know. So batches do not depend on the number of workers, and the same
seeds in another batch have other neighbours, whichever worker draws it.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from onehop import native
from onehop.graph.contents import fingerprint


class _Place:
    """A block: words on which all draws in it depend, and the number of draws so far."""

    def __init__(self, words: tuple[int, ...]) -> None:
        self._words, self._drawn = words, 0

    def next(self, contents: int) -> int:
        """Return the key of the next draw, for a batch with this fingerprint of its seeds."""
        self._drawn += 1
        return mixed(*self._words, self._drawn, contents)


class _Here(threading.local):
    """The place where this thread draws; None if none was set."""

    place: _Place | None = None


_here = _Here()


@contextlib.contextmanager
def drawing_at(*words: int) -> Iterator[None]:
    """Make all that this thread draws inside the block depend on the words."""
    before, _here.place = _here.place, _Place(words)
    try:
        yield
    finally:
        _here.place = before


@contextlib.contextmanager
def drawing_edges(contents: Sequence[Tensor], seed: int | None) -> Iterator[None]:
    """Make all random draws for some edges depend on the edges' ends, not only on the set of end nodes.

    Inside the block, torch's generator, which draws negative edges, depends on the sampler's seed or the
    place, as in :func:`batch_key`, and on the contents. Afterwards the generator has its previous state.
    Without a seed and a place, the generator is not changed.
    """
    key = _key(contents, seed)
    if key is None:
        yield
        return
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(key >> 1)
    try:
        with drawing_at(key):
            yield
    finally:
        torch.set_rng_state(before)


def batch_key(contents: Sequence[Tensor], seed: int | None = None) -> int:
    """Return the key of a batch, derived from its seeds and everything else that it depends on.

    With the sampler's seed, the key depends only on this seed and the contents. With None, it depends on the
    place of :func:`drawing_at` or, outside of its block, on a number from torch's generator.
    """
    key = _key(contents, seed)
    return drawn_key() if key is None else key


def drawn_key() -> int:
    """Return a key from torch's generator."""
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_())


def _key(contents: Sequence[Tensor], seed: int | None) -> int | None:
    if seed is not None:
        return mixed(seed, fingerprint_of(contents))
    return None if _here.place is None else _here.place.next(fingerprint_of(contents))


def fingerprint_of(contents: Sequence[Tensor]) -> int:
    """Return a 64-bit number that depends on the contents of tensors."""
    plain = [each.to(device="cpu", dtype=torch.int64).contiguous() for each in contents]
    return mixed(*(word for each in plain for word in (each.numel(), fingerprint(each))))


def mixed(*words: int) -> int:
    """Return a 64-bit number that depends on each of the words."""
    array = np.array([word & 0xFFFFFFFFFFFFFFFF for word in words], dtype=np.uint64)
    return native.extension.fingerprint(array.ctypes.data, array.nbytes, 1)
