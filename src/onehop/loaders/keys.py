"""Keys of batches: what the random numbers of a batch depend on.

A batch's key is made of what every process of a loader knows alike: the loader's seed of this epoch, the
number of epochs it has begun, and the batch's own seeds. So the neighbours of a batch do not depend on which
worker draws it, nor on how many there are.
"""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from onehop import native
from onehop.graph.contents import fingerprint


class Course:
    """The epochs of the loaders that draw from one sampler, known in all of their workers.

    ``base`` is the seed of the epoch under way in this process, None where no loader has begun one.
    """

    def __init__(self) -> None:
        self.base: int | None = None
        self._epochs = torch.zeros(1, dtype=torch.int64, device="cpu")
        # How often a batch was drawn in this epoch: the same seeds again have other neighbours.
        self._met: dict[int, int] = {}
        self._met_in = 0
        self._around: int | None = None

    def begin(self, shared: bool) -> None:
        """Notes that an epoch begins; if ``shared``, workers see it."""
        if shared:
            self._epochs.share_memory_()
        self._epochs += 1
        self.base = None

    def key(self, contents: int) -> int | None:
        """The key of a batch with this fingerprint of its seeds; None where no epoch is under way."""
        if self._around is not None:
            return mixed(self._around, contents)
        worker = get_worker_info()
        base = self.base if worker is None else worker.seed - worker.id
        epoch = int(self._epochs)
        if base is None or epoch == 0:
            return None
        if self._met_in != epoch:
            self._met, self._met_in = {}, epoch
        times = self._met[contents] = self._met.get(contents, -1) + 1
        return mixed(base, epoch, contents, times)

    def enter(self, key: int | None) -> int | None:
        """Makes all keys depend on this one, and not on the epoch; None ends that. Returns the one before."""
        before, self._around = self._around, key
        return before


@contextlib.contextmanager
def drawing_edges(contents: Sequence[Tensor], seed: int | None, course: Course | None) -> Iterator[None]:
    """Makes all that is drawn for some edges depend on their ends, and not on the set of these.

    Inside the block torch's generator, which draws negative edges, depends on the sampler's seed or the
    epoch, as in :func:`batch_key`, and on the contents; afterwards it is as before. Where there is neither,
    it is left alone.
    """
    key = _key(contents, seed, course)
    if key is None:
        yield
        return
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(key >> 1)
    outside = None if course is None else course.enter(key)
    try:
        yield
    finally:
        if course is not None:
            course.enter(outside)
        torch.set_rng_state(before)


def batch_key(contents: Sequence[Tensor], seed: int | None, course: Course | None) -> int:
    """The key of a batch, made of its seeds and of everything else that it depends on.

    With the sampler's seed, the key depends on it and the contents alone. With None it depends on the epoch,
    or, where no loader says when epochs begin, on a number from torch's generator.
    """
    key = _key(contents, seed, course)
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_()) if key is None else key


def _key(contents: Sequence[Tensor], seed: int | None, course: Course | None) -> int | None:
    found = fingerprint_of(contents)
    if seed is not None:
        return mixed(seed, found)
    return None if course is None else course.key(found)


def fingerprint_of(contents: Sequence[Tensor]) -> int:
    """A number of 64 bits that depends on the contents of tensors."""
    plain = [each.to(device="cpu", dtype=torch.int64).contiguous() for each in contents]
    return mixed(*(word for each in plain for word in (each.numel(), fingerprint(each))))


def mixed(*words: int) -> int:
    """A number of 64 bits that depends on each of the words."""
    array = np.array([word & 0xFFFFFFFFFFFFFFFF for word in words], dtype=np.uint64)
    return native.extension.fingerprint(array.ctypes.data, array.nbytes, 1)
