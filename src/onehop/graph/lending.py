"""Lending of cached tensors: each user gets a separate copy, which costs nothing until it is written to.

Users must never write to a cached tensor, and two users must not get the same tensor. A real copy at every
use would often cost more than the cache saves. PyTorch's copy-on-write tensors share memory until the first
write: a write to one of them, in any way that torch detects (in place, through a view, ``.data``,
``.numpy()``, DLPack), gives that tensor its own memory. So an untouched copy is recognised by its memory, and
counts as the tensor from which it was made.
"""

import weakref
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

# Cached tensors by the address of their memory. While they exist, no other tensor can have the address.
_lent: "weakref.WeakValueDictionary[int, Tensor]" = weakref.WeakValueDictionary()

_cloned = WeakIdKeyDictionary()
_sources = WeakIdKeyDictionary()

is_shared: Callable[[Tensor], bool] = torch._C._is_cow_tensor  # type: ignore[attr-defined]
"""Return whether a tensor on the CPU or a GPU is a copy that shares memory until a write."""

_storage_address: Callable[[Tensor], int] = torch._C._data_address  # type: ignore[attr-defined]


def read_address(tensor: Tensor) -> int:
    """Return the address of a tensor's first entry, for reading; ``data_ptr()`` would count as a write."""
    if not is_shared(tensor):
        return tensor.data_ptr()
    return _storage_address(tensor) + int(tensor.storage_offset()) * tensor.element_size()


def lend(cached: Tensor) -> Tensor:
    """Return a copy of ``cached`` that the caller may modify.

    Only the cache may refer to ``cached``, which owns its memory and needs no gradient.
    """
    if not (cached.is_cpu or cached.is_cuda):
        # Other devices may not support sharing, so this is a real copy; its version shows whether it is
        # untouched.
        copy = cached.clone()
        _cloned[copy] = cached, copy._version
        return copy
    copy = torch._lazy_clone(cached)
    # The address is computed as in read_address, because the memory is shared now.
    _lent[_storage_address(cached) + int(cached.storage_offset()) * cached.element_size()] = cached
    return copy


def original(tensor: Tensor) -> Tensor:
    """Return the cached tensor if ``tensor`` is an untouched copy of one; else ``tensor`` itself."""
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
        # Its data_ptr() was read, so it has other memory now.
        or _storage_address(cached) + int(cached.storage_offset()) * cached.element_size() != address
        or cached.shape != tensor.shape
        or cached.stride() != tensor.stride()
        or cached.dtype is not tensor.dtype
    ):
        return tensor
    return cached


def readable(tensor: Tensor) -> Tensor:
    """Return the tensor itself, or a clone if it is an untouched lent copy, for native code.

    Native code reads an address by ``data_ptr()``, which counts as a write: the lent copy would get other
    memory, and not be recognised again.
    """
    return tensor if original(tensor) is tensor else tensor.clone()


def note_copy(copy: Tensor, source: Tensor) -> None:
    """Notes that a tensor is a copy of another one, with memory of its own."""
    _sources[copy.untyped_storage()] = weakref.ref(source)


def source_of(tensor: Tensor) -> Tensor:
    """Return the tensor of which this one was noted as a copy; else the tensor itself.

    Either may have been written to since then, so the caller compares contents.
    """
    reference = _sources.get(tensor.untyped_storage()) if _sources else None
    source: Tensor | None = None if reference is None else reference()
    if source is None or source.shape != tensor.shape or source.dtype is not tensor.dtype:
        return tensor
    return source
