"""The cache that recognises tensors: what was made from a tensor is found while the tensor is unchanged.

A tensor is recognised by identity, never by its address: a freed tensor's memory is reused at once, with the
same address and the same version. A lookup costs the same whatever the size of the tensor. Two writes escape
it, as they escape PyTorch's own version counter: ``tensor.data[...] = ...`` and writes through
``tensor.numpy()``. With ``ONEHOP_CHECK=full`` the contents are compared at every use, which finds those too.
"""

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from onehop import config, native

# So many lookups may pass before the bytes of what was looked up are counted anew.
_RECOUNT_AFTER = 32


class Sized(Protocol):
    """What the cache can keep: it knows how many bytes it holds, and that number may grow."""

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        ...


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What the cache of recognised tensors holds.

    Attributes:
        entries: Graphs and derived tensors held.
        bytes: Bytes of all of them.
        limit_bytes: The bound (``ONEHOP_CACHE_BYTES``).
        hits: Lookups that found something.
        misses: Lookups that did not.
        evictions: Entries given up to stay within the bound.
    """

    entries: int
    bytes: int
    limit_bytes: int
    hits: int
    misses: int
    evictions: int


class _Entry:
    __slots__ = ("address", "contents", "counted", "owner", "value", "version")

    def __init__(
        self, owner: "weakref.ref[Tensor]", version: int, address: int, contents: Tensor | None, value: Sized
    ) -> None:
        self.owner = owner
        self.version = version
        self.address = address
        self.contents = contents
        self.value = value
        self.counted = 0

    def nbytes(self) -> int:
        copied = 0 if self.contents is None else self.contents.nbytes
        return self.value.nbytes + copied


class IdentityCache:
    """Least-recently-used values, each bound to a tensor as it was, bounded in bytes.

    The key is the tensor (a weak reference to it, or to its base if it is a view, whose death drops the
    entry), shape, stride, offset, dtype and device, and what the caller adds (sizes, flow). The entry also
    remembers the version counter and the address; a lookup that finds another version or address drops the
    entry. Left out of the key: the contents, for they are what the version stands for. Inference tensors have
    no version counter and are never recognised.

    Args:
        limit_bytes: Gives the bound, asked whenever something is stored.
    """

    def __init__(self, limit_bytes: Callable[[], int]) -> None:
        self._limit_bytes = limit_bytes
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        # Entries that were handed out since their bytes were counted: a graph's transpose appears later.
        self._stale_counts: set[Hashable] = set()
        self._bytes = 0
        self._hits = self._misses = self._evictions = 0
        # Reentrant: dropping a value may free a tensor, whose callback drops another entry.
        self._lock = threading.RLock()

    def find(self, tensor: Tensor, rest: Hashable) -> Any | None:
        """What was stored for this tensor and ``rest``; None if nothing was, or the tensor has changed."""
        if tensor.is_inference():
            return None
        owner = _owner(tensor)
        key = _key(tensor, owner, rest)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            if (
                entry.owner() is not owner
                or entry.version != tensor._version
                or entry.address != tensor.data_ptr()
                or (
                    config.full_check()
                    and (entry.contents is None or not torch.equal(entry.contents, tensor))
                )
            ):
                self._drop(key)
                self._misses += 1
                return None
            self._entries.move_to_end(key)
            self._hits += 1
            self._stale_counts.add(key)
            if len(self._stale_counts) >= _RECOUNT_AFTER:
                self._enforce_limit()
            return entry.value

    def store(self, tensor: Tensor, rest: Hashable, value: Sized) -> None:
        """Keeps ``value`` for this tensor, as long as the tensor lives unchanged and the bound allows.

        The value must not hold the tensor, or neither would ever be freed.
        """
        if tensor.is_inference():
            return
        owner = _owner(tensor)
        key = _key(tensor, owner, rest)
        contents = tensor.detach().clone() if config.full_check() else None
        itself = weakref.ref(self)

        def forget(dead: "weakref.ref[Tensor]") -> None:
            cache = itself()
            if cache is not None:
                cache._forget(key, dead)

        entry = _Entry(weakref.ref(owner, forget), tensor._version, tensor.data_ptr(), contents, value)
        with self._lock:
            self._drop(key)
            self._entries[key] = entry
            self._stale_counts.add(key)
            self._enforce_limit()

    def info(self) -> CacheInfo:
        """What it holds now."""
        with self._lock:
            self._stale_counts.update(self._entries)
            self._recount()
            return CacheInfo(
                entries=len(self._entries),
                bytes=self._bytes,
                limit_bytes=self._limit_bytes(),
                hits=self._hits,
                misses=self._misses,
                evictions=self._evictions,
            )

    def clear(self) -> None:
        """Drops everything."""
        with self._lock:
            dropped = self._entries
            self._entries = OrderedDict()
            self._stale_counts.clear()
            self._bytes = 0
        del dropped

    def _forget(self, key: Hashable, dead: "weakref.ref[Tensor]") -> None:
        with self._lock:
            entry = self._entries.get(key)
            # A newer tensor may have taken the same id, and so the same key.
            if entry is not None and entry.owner is dead:
                self._drop(key)

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        self._stale_counts.discard(key)
        if entry is not None:
            self._bytes -= entry.counted

    def _recount(self) -> None:
        for key in list(self._stale_counts):
            entry = self._entries.get(key)
            if entry is not None:
                now = entry.nbytes()
                self._bytes += now - entry.counted
                entry.counted = now
        self._stale_counts.clear()

    def _enforce_limit(self) -> None:
        self._recount()
        limit = self._limit_bytes()
        while self._bytes > limit and self._entries:
            self._drop(next(iter(self._entries)))
            self._evictions += 1

    def hold(self) -> None:
        """Stops other threads from changing it, before a fork."""
        self._lock.acquire()

    def release(self) -> None:
        """Ends :meth:`hold`, in the parent and in the child."""
        self._lock.release()


def _owner(tensor: Tensor) -> Tensor:
    # Every t[0] is a new object; what stays the same is the tensor that it is a view of.
    base = tensor._base
    return tensor if base is None else base


def _key(tensor: Tensor, owner: Tensor, rest: Hashable) -> Hashable:
    return (
        id(owner),
        tensor.storage_offset(),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.device,
        rest,
    )


CACHE = IdentityCache(config.graph_cache_bytes)
"""The process's cache: graphs made from edge_index tensors, and tensors derived from them."""

# Without this, a child forked while another thread is inside would wait for that thread for ever.
os.register_at_fork(before=CACHE.hold, after_in_parent=CACHE.release, after_in_child=CACHE.release)


def cache_info() -> CacheInfo:
    """What the cache of graphs and derived tensors holds, and how often it was hit."""
    return CACHE.info()


def clear_cache() -> None:
    """Forgets every graph and derived tensor, and gives all kept memory back to the system."""
    CACHE.clear()
    native.extension.pool_clear()
    native.extension.trim_memory()
