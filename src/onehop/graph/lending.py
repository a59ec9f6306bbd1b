"""Lending of cached tensors: each borrower gets its own copy, which costs nothing until it is written to.

A cached tensor must never be written to by its users, and two of them must not get one tensor. A real copy at
every use would cost more than much of the caching saves. PyTorch's copy-on-write tensors share memory until
the first write: a write to one of them, by any way that torch detects (in place, through a view, ``.data``,
``.numpy()``, DLPack), gives that one its own memory.

So an untouched copy is recognised by its memory, and counts as the tensor that it was made of.
"""

import weakref
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

# Cached tensors by the address of their memory. They hold it, so no other tensor can have the address.
_lent: "weakref.WeakValueDictionary[int, Tensor]" = weakref.WeakValueDictionary()

_cloned = WeakIdKeyDictionary()

is_shared: Callable[[Tensor], bool] = torch._C._is_cow_tensor  # type: ignore[attr-defined]
"""Return whether a tensor on the CPU or a GPU is a copy that shares memory until a write."""

_storage_address: Callable[[Tensor], int] = torch._C._data_address  # type: ignore[attr-defined]


def read_address(tensor: Tensor) -> int:
    """The place of a tensor's first entry, for reading: a call of ``data_ptr()`` counts as a write."""
    if not is_shared(tensor):
        return tensor.data_ptr()
    return _storage_address(tensor) + int(tensor.storage_offset()) * tensor.element_size()


def lend(cached: Tensor) -> Tensor:
    """A copy of ``cached`` that the caller may modify.

    Only the cache holds ``cached``, which owns its memory and needs no gradient.
    """
    if not (cached.is_cpu or cached.is_cuda):
        # Other devices may not support sharing: a real copy, whose version shows if it is untouched.
        copy = cached.clone()
        _cloned[copy] = cached, copy._version
        return copy
    copy = torch._lazy_clone(cached)
    # As read_address computes it, because the memory is shared by now.
    _lent[_storage_address(cached) + int(cached.storage_offset()) * cached.element_size()] = cached
    return copy


def original(tensor: Tensor) -> Tensor:
    """The cached tensor that ``tensor`` is an untouched copy of; else ``tensor`` itself."""
    if not (tensor.is_cpu or tensor.is_cuda):
        source, version = _cloned.get(tensor, (tensor, tensor._version))
        return source if version == tensor._version else tensor
    if not is_shared(tensor):
        return tensor
    address = _storage_address(tensor) + int(tensor.storage_offset()) * tensor.element_size()
    cached = _lent.get(address)
    if (
        cached is None
        or not is_shared(cached)
        # It was read natively, and so has other memory by now.
        or _storage_address(cached) + int(cached.storage_offset()) * cached.element_size() != address
        or cached.shape != tensor.shape
        or cached.stride() != tensor.stride()
        or cached.dtype is not tensor.dtype
    ):
        return tensor
    return cached


def readable(tensor: Tensor) -> Tensor:
    """The tensor itself, or a clone of an untouched copy, for native code.

    Native code takes an address, which counts as a write: the copy would have other memory from then on, and
    not be recognised again.
    """
    return tensor if original(tensor) is tensor else tensor.clone()
