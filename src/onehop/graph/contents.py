"""Recognises a write to a tensor, by its version counter and by its contents.

Some writes bypass PyTorch's version counter: through ``tensor.data``, ``tensor.numpy()`` or the NumPy array
that a tensor was made from, DLPack, ``untyped_storage()``. So contents are compared too: all of a tensor of
up to 256 KiB, and 256 samples of a larger one, where a write that changes few entries can go unnoticed. With
``ONEHOP_CHECK=full`` all of the contents are compared at every use, and where the maker of a value asks for
it, a hash of all of them.
"""

import weakref

from torch import Tensor

from onehop import config, native
from onehop.graph.lending import read_address


class State:
    """The state of a tensor at a moment.

    Args:
        tensor: The tensor.
        counts_writes: Whether its version counter counts.
        whole: Whether a hash of all contents is compared, not of a sample.
    """

    __slots__ = ("address", "contents", "sample", "storage", "version", "whole")

    def __init__(self, tensor: Tensor, counts_writes: bool, whole: bool) -> None:
        # Before the contents are read: a write meanwhile makes the state one that is never met again.
        self.version = tensor._version if counts_writes else None
        self.storage = weakref.ref(tensor.untyped_storage())
        self.address = read_address(tensor)
        self.whole = whole
        self.sample = sample_of(tensor, whole)
        self.contents = tensor.detach().clone() if config.full_check() else None


def fingerprint(tensor: Tensor) -> int:
    """Return a hash of all contents of a contiguous tensor in CPU memory."""
    return native.extension.fingerprint(read_address(tensor), tensor.nbytes, native.threads())


def sample_of(tensor: Tensor, whole: bool = False) -> int:
    """A fingerprint of a sample of the contents, or of all of them; 0 if they are not in CPU memory."""
    if not tensor.is_cpu:
        return 0
    if whole:
        return native.extension.fingerprint(read_address(tensor), _span_bytes(tensor), native.threads())
    return native.extension.sampled_fingerprint(read_address(tensor), _span_bytes(tensor))


def _span_bytes(tensor: Tensor) -> int:
    """Bytes from the first entry to the last, including gaps."""
    if not tensor.numel():
        return 0
    if tensor.is_contiguous():
        return tensor.nbytes
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()
