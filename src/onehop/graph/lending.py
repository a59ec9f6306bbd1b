"""Kept tensors, handed out: each borrower gets a copy of its own, which costs nothing until somebody writes.

What a cache holds must never be written to by its users, and what two of them got must not be one tensor. A
real copy at every use would cost more than much of what is kept saves. PyTorch's copy-on-write tensors are
copies that share memory while nobody writes: the first write to one of them, by whatever way torch knows
(in place, through a view, ``.data``, ``.numpy()``, DLPack), gives that one memory of its own.

So an untouched copy can be told by its memory, and stands for the tensor it was made of.
"""

import weakref

import torch
from torch import Tensor

# Kept tensors by the address of their memory. They hold it, so no other tensor can have the address.
_lent: "weakref.WeakValueDictionary[int, Tensor]" = weakref.WeakValueDictionary()

_is_shared = torch._C._is_cow_tensor
# Asking for data_ptr() counts as a write.
_address = torch._C._data_address


def lend(kept: Tensor) -> Tensor:
    """A copy of ``kept``, for somebody who may do with it what they like.

    Args:
        kept: A tensor that nobody but its cache holds, that owns its memory and needs no gradient.
    """
    if not (kept.is_cpu or kept.is_cuda):
        return kept.clone()  # other devices need not know of sharing
    copy = torch._lazy_clone(kept)
    _lent[_address(kept)] = kept
    return copy


def original(tensor: Tensor) -> Tensor:
    """The kept tensor that ``tensor`` is an untouched copy of; ``tensor`` itself where it is none."""
    if not _is_shared(tensor):
        return tensor
    kept = _lent.get(_address(tensor))
    if (
        kept is None
        or _address(kept) != _address(tensor)  # it was read natively and so has other memory by now
        or kept.shape != tensor.shape
        or kept.stride() != tensor.stride()
        or kept.dtype is not tensor.dtype
    ):
        return tensor
    return kept
