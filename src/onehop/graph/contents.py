"""Detection of writes to tensors, by version counter and by contents.

Some writes bypass PyTorch's version counter: through ``tensor.data``, ``tensor.numpy()`` or the NumPy array
that a tensor was made from, DLPack, ``untyped_storage()``. So contents are compared too: all contents of a
tensor up to 256 KiB, and 256 samples of a larger tensor; there, a write that changes few entries can go
unnoticed. With ``ONEHOP_CHECK=full``, all contents are compared at every use. A hash of all contents is also
compared for values that were cached with ``whole=True``.
"""

import weakref

import torch
from torch import Tensor

from onehop import config, native
from onehop.graph.lending import is_shared, original, read_address


class State:
    """The state of a tensor at one moment.

    Args:
        tensor: The tensor.
        counts_writes: Whether its version counter is compared.
        whole: Whether to compare a hash of all contents instead of a sample.
    """

    __slots__ = ("address", "contents", "sample", "storage", "version", "whole")

    def __init__(self, tensor: Tensor, counts_writes: bool, whole: bool) -> None:
        # The version is read before the contents, so that after a write in between the state never matches
        # again.
        self.version = tensor._version if counts_writes else None
        self.storage = weakref.ref(tensor.untyped_storage())
        self.address = read_address(tensor)
        self.whole = whole
        self.sample = sample_of(tensor, whole)
        self.contents = tensor.detach().clone() if config.full_check() else None


Name = tuple[int, int, tuple[int, torch.Size, tuple[int, ...], torch.dtype]]
"""The name of a tensor in a key; it is a plain tuple, because the hot path makes one in every call.

It has the id of the storage; the id of the tensor or, for a view, of its base, because every ``t[0]`` is a
new object; and the part of the storage that the tensor uses. The second entry distinguishes ``t`` from
``t.data``, which share a storage but have separate version counters. It is 0 if the name represents any
tensor with this part of the storage.
"""


class Noted:
    """Some tensors and their current state; a value made from them afterwards is cached for this state.

    Args:
        *tensors: The tensors, in an order that the caller chooses.
        any_owner: Whether each represents every tensor with the same part of the same storage, such as the
            index arrays of two sparse matrices. These have separate version counters, so the counters are
            ignored, and the caller has to check the contents.
        whole: Whether to compare all contents at each lookup, by a hash, instead of a sample.
    """

    __slots__ = ("are_views", "names", "recognised", "states")

    def __init__(self, *tensors: Tensor, any_owner: bool = False, whole: bool = False) -> None:
        originals = tuple(map(original, tensors))
        self.recognised = not any(tensor.is_inference() for tensor in originals)
        """Whether all of the tensors have a version counter."""
        names: tuple[Name, ...] = ()
        for tensor in originals:
            base = tensor._base
            view = (int(tensor.storage_offset()), tensor.shape, tensor.stride(), tensor.dtype)
            owner = 0 if any_owner else id(tensor if base is None else base)
            names = (*names, (id(tensor.untyped_storage()), owner, view))
        self.names = names
        self.are_views = tuple(tensor._base is not None for tensor in originals)
        self.states = (
            tuple(State(tensor, not any_owner, whole) for tensor in originals) if self.recognised else ()
        )

    def and_of(self, other: "Noted") -> "Noted":
        """Return the tensors of both, in this order."""
        both = Noted()
        both.recognised = self.recognised and other.recognised
        both.names, both.states = self.names + other.names, self.states + other.states
        both.are_views = self.are_views + other.are_views
        return both

    def is_of(self, *tensors: Tensor | None) -> bool:
        """Return whether tensors are unchanged, as far as the settings check this; None is not checked."""
        full = config.full_check()
        for tensor, state in zip(tensors, self.states, strict=True):
            if tensor is None:
                continue
            if state.version is not None and state.version != tensor._version:
                return False
            if tensor.is_cpu and not state.whole and not is_shared(tensor) and tensor.is_contiguous():
                address = tensor.data_ptr()
                sample = native.extension.sampled_fingerprint(address, tensor.nbytes)
            else:
                address, sample = read_address(tensor), sample_of(tensor, state.whole)
            if (
                state.storage() is not tensor.untyped_storage()
                or state.address != address
                or state.sample != sample
                or (full and (state.contents is None or not torch.equal(state.contents, tensor)))
            ):
                return False
        return True


def fingerprint(tensor: Tensor) -> int:
    """Return a hash of all contents of a contiguous tensor in CPU memory."""
    return native.extension.fingerprint(read_address(tensor), tensor.nbytes, native.threads())


def sample_of(tensor: Tensor, whole: bool = False) -> int:
    """Return a hash of a sample of the contents, or of all contents; 0 if they are not in CPU memory."""
    if not tensor.is_cpu:
        return 0
    if whole:
        return native.extension.fingerprint(read_address(tensor), _span_bytes(tensor), native.threads())
    return native.extension.sampled_fingerprint(read_address(tensor), _span_bytes(tensor))


def _span_bytes(tensor: Tensor) -> int:
    """Return the bytes from the first entry to the last, including gaps."""
    if not tensor.numel():
        return 0
    if tensor.is_contiguous():
        return tensor.nbytes
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()
