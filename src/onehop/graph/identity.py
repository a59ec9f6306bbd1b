"""The cache that recognises tensors: data derived from a tensor are found while the tensor is unchanged.

A tensor is recognised by identity, never by its address: a freed tensor's memory is reused at once, with the
same address and the same version. An untouched copy of a cached tensor counts as that tensor
(:mod:`onehop.graph.lending`).

Some writes bypass PyTorch's version counter: through ``tensor.data``, ``tensor.numpy()`` or the NumPy array
that a tensor was made from, DLPack, ``untyped_storage()``. So contents are compared too: all of a tensor of
up to 256 KiB, and 256 samples of a larger one, where a write that changes few entries can go unnoticed. With
``ONEHOP_CHECK=full`` all of the contents are compared at every use.
"""

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from onehop import config, native
from onehop.graph.lending import is_shared, original, read_address

_HOST = torch.device("cpu")
# Number of lookups before the bytes of the entries found are counted again.
_RECOUNT_AFTER = 32
# Views of one tensor, such as mini-batches, live as long as it does, and few of them are used again. At most
# this many different views of one tensor are remembered.
_MOST_VIEWS = 8


class Sized(Protocol):
    """A value that the cache can hold: it reports its bytes, and their number may grow.

    They are taken to be on its ``device`` if it has one, else on the host; a value on several devices says
    how many
    are on each, in ``nbytes_by_device``.
    """

    @property
    def nbytes(self) -> int:
        """Bytes currently held."""
        ...


@dataclass(frozen=True, slots=True)
class Mark:
    """A value that says no more than that it was stored, such as that features were met before."""

    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """State of the cache of recognised tensors.

    Attributes:
        entries: Graphs and derived tensors held.
        bytes: Bytes of all of them in the host's memory.
        limit_bytes: The bound (``ONEHOP_CACHE_BYTES``).
        device_bytes: Their bytes on every other device, by its name.
        device_limit_bytes: The bounds (``ONEHOP_DEVICE_CACHE_BYTES``), likewise.
        hits: Lookups that found an entry.
        misses: Lookups that did not.
        evictions: Entries evicted to stay within the bound.
    """

    entries: int
    bytes: int
    limit_bytes: int
    device_bytes: dict[str, int]
    device_limit_bytes: dict[str, int]
    hits: int
    misses: int
    evictions: int


class _Key(NamedTuple):
    """The key of an entry.

    Attributes:
        storage: The id of the tensor's storage.
        owner: The id of the tensor or, for a view, of its base: every ``t[0]`` is a new object. It
            distinguishes ``t`` from ``t.data``, which share a storage and have separate version counters.
            0 where any tensor with this part of the storage is meant.
        view: The part of the storage that the tensor is, and its base.
        rest: The caller's part of the key.
    """

    storage: int
    owner: int
    view: tuple[int, torch.Size, tuple[int, ...], torch.dtype]
    rest: Hashable


class _Entry:
    __slots__ = ("address", "contents", "counted", "sample", "storage", "value", "version")

    def __init__(
        self,
        storage: "weakref.ref[torch.UntypedStorage]",
        tensor: Tensor,
        contents: Tensor | None,
        value: Sized,
        counts_writes: bool,
    ) -> None:
        self.storage = storage
        self.version = tensor._version if counts_writes else None
        self.address = read_address(tensor)
        self.sample = _sample(tensor)
        self.contents = contents
        self.value = value
        self.counted: dict[torch.device, int] = {}

    def is_of(self, tensor: Tensor) -> bool:
        """Tell if the tensor is still what it was, as far as the settings have it looked at."""
        if tensor.is_cpu and not is_shared(tensor) and tensor.is_contiguous():
            address = tensor.data_ptr()
            sample = native.extension.sampled_fingerprint(address, tensor.nbytes)
        else:
            address, sample = read_address(tensor), _sample(tensor)
        return (
            self.storage() is tensor.untyped_storage()
            and (self.version is None or self.version == tensor._version)
            and self.address == address
            and self.sample == sample
            and not (
                config.full_check() and (self.contents is None or not torch.equal(self.contents, tensor))
            )
        )

    def nbytes(self) -> dict[torch.device, int]:
        """Bytes on every device."""
        value = self.value
        found: dict[torch.device, int] | None = getattr(value, "nbytes_by_device", None)
        if found is None:
            found = {getattr(value, "device", _HOST): value.nbytes}
        if self.contents is not None:
            device = self.contents.device
            found = {**found, device: found.get(device, 0) + self.contents.nbytes}
        return found


class IdentityCache:
    """An LRU cache of values, each bound to the state of a tensor; bounded in bytes on every device.

    The key is the tensor (or its base if it is a view) with its storage, shape, stride, offset and dtype, and
    the caller's addition (sizes, flow). The entry is dropped when the storage is freed: a weak reference to
    the tensor itself would keep ``torch.utils.swap_tensors`` from exchanging it. The entry also holds the
    version counter, the address and a sample of the contents; a lookup that finds others drops the entry.
    Inference tensors have no version counter and are never recognised. Of the views of one tensor, those that
    were stored last are remembered.

    Args:
        limit_bytes: Returns the bound in the host's memory; called on every store.
        device_limit_bytes: Returns that on another device.
    """

    def __init__(
        self,
        limit_bytes: Callable[[], int],
        device_limit_bytes: Callable[[torch.device], int] = config.device_cache_bytes,
    ) -> None:
        self._limit_bytes, self._device_limit_bytes = limit_bytes, device_limit_bytes
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        # For each storage: its views, the least recently stored first, with the keys of their entries.
        self._views: dict[int, OrderedDict[Hashable, list[_Key]]] = {}
        # Entries that were found since their bytes were counted: a graph's transpose is built later.
        self._stale_counts: set[_Key] = set()
        self._bytes: dict[torch.device, int] = {_HOST: 0}
        self._hits = self._misses = self._evictions = 0
        # Reentrant: dropping a value may free a tensor, whose callback drops another entry.
        self._lock = threading.RLock()

    def find(self, tensor: Tensor, rest: Hashable, any_owner: bool = False) -> Any | None:
        """The value stored for this tensor and ``rest``; None if nothing was, or the tensor has changed.

        Args:
            tensor: The tensor.
            rest: The caller's part of the key.
            any_owner: Whether the value was stored with ``any_owner``.
        """
        # Every call of a patched layer comes here: the usual tensor is asked without further calls.
        kept = tensor if tensor.is_cpu and not is_shared(tensor) else original(tensor)
        if kept.is_inference():
            return None
        base = kept._base
        view = (int(kept.storage_offset()), kept.shape, kept.stride(), kept.dtype)
        owner = 0 if any_owner else id(kept if base is None else base)
        key = _Key(id(kept.untyped_storage()), owner, view, rest)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            # A cached tensor has no other owner, so it cannot have been written to.
            if kept is tensor and not entry.is_of(tensor):
                self._drop(key)
                self._misses += 1
                return None
            self._entries.move_to_end(key)
            self._hits += 1
            self._stale_counts.add(key)
            if len(self._stale_counts) >= _RECOUNT_AFTER:
                self._enforce_limit()
            return entry.value

    def store(self, tensor: Tensor, rest: Hashable, value: Sized, any_owner: bool = False) -> None:
        """Keeps ``value`` for this tensor, as long as the tensor lives unchanged and the bound allows.

        The value must not hold the tensor, or neither would ever be freed.

        Args:
            tensor: The tensor.
            rest: The caller's part of the key.
            value: What is kept.
            any_owner: Whether the value is for every tensor that is the same part of the same storage, such
                as the index arrays of two sparse matrices. Each has a version counter of its own, so that
                none is looked at: whoever finds the value has to find out what was written.
        """
        tensor = original(tensor)
        if tensor.is_inference():
            return
        base = tensor._base
        view = (int(tensor.storage_offset()), tensor.shape, tensor.stride(), tensor.dtype)
        owner = 0 if any_owner else id(tensor if base is None else base)
        key = _Key(id(tensor.untyped_storage()), owner, view, rest)
        contents = tensor.detach().clone() if config.full_check() else None
        itself = weakref.ref(self)

        def forget(dead: "weakref.ref[torch.UntypedStorage]") -> None:
            cache = itself()
            if cache is not None:
                cache._forget(key, dead)

        dead = weakref.ref(tensor.untyped_storage(), forget)
        entry = _Entry(dead, tensor, contents, value, counts_writes=not any_owner)
        with self._lock:
            self._drop(key)
            self._entries[key] = entry
            self._stale_counts.add(key)
            if tensor._base is not None:
                self._note_view(key)
            self._enforce_limit()

    def info(self) -> CacheInfo:
        """The current state."""
        with self._lock:
            self._stale_counts.update(self._entries)
            self._recount()
            elsewhere = [each for each in self._bytes if each != _HOST]
            return CacheInfo(
                entries=len(self._entries),
                bytes=self._bytes[_HOST],
                limit_bytes=self._limit_bytes(),
                device_bytes={str(each): self._bytes[each] for each in elsewhere},
                device_limit_bytes={str(each): self._limit_of(each) for each in elsewhere},
                hits=self._hits,
                misses=self._misses,
                evictions=self._evictions,
            )

    def clear(self) -> None:
        """Drops all entries."""
        with self._lock:
            dropped = self._entries
            self._entries = OrderedDict()
            self._views = {}
            self._stale_counts.clear()
            self._bytes = {_HOST: 0}
        del dropped

    def _note_view(self, key: _Key) -> None:
        """Notes an entry of a view, and drops those of a view that was stored long ago."""
        views = self._views.setdefault(key.storage, OrderedDict())
        views.setdefault(key.view, []).append(key)
        views.move_to_end(key.view)
        if len(views) > _MOST_VIEWS:
            for old in list(next(iter(views.values()))):
                self._drop(old)

    def _forget(self, key: _Key, dead: "weakref.ref[torch.UntypedStorage]") -> None:
        with self._lock:
            entry = self._entries.get(key)
            # A newer tensor may have the same id, and so the same key.
            if entry is not None and entry.storage is dead:
                self._drop(key)

    def _drop(self, key: _Key) -> None:
        entry = self._entries.pop(key, None)
        self._stale_counts.discard(key)
        views = self._views.get(key.storage)
        if views is not None and key in views.get(key.view, ()):
            views[key.view].remove(key)
            if not views[key.view]:
                del views[key.view]
            if not views:
                del self._views[key.storage]
        if entry is not None:
            self._count(entry, {})

    def _recount(self) -> None:
        for key in list(self._stale_counts):
            entry = self._entries.get(key)
            if entry is not None:
                self._count(entry, entry.nbytes())
        self._stale_counts.clear()

    def _count(self, entry: _Entry, now: dict[torch.device, int]) -> None:
        """Notes that an entry has so many bytes on every device."""
        for device in {*entry.counted, *now}:
            more = now.get(device, 0) - entry.counted.get(device, 0)
            self._bytes[device] = self._bytes.get(device, 0) + more
        entry.counted = now

    def _limit_of(self, device: torch.device) -> int:
        return self._limit_bytes() if device == _HOST else self._device_limit_bytes(device)

    def _enforce_limit(self) -> None:
        self._recount()
        for device, held in list(self._bytes.items()):
            limit = self._limit_of(device)
            if held <= limit:
                continue
            for key, entry in list(self._entries.items()):
                if self._bytes[device] <= limit:
                    break
                if entry.counted.get(device):
                    self._drop(key)
                    self._evictions += 1

    def hold(self) -> None:
        """Locks the cache, before a fork."""
        self._lock.acquire()

    def release(self) -> None:
        """Ends :meth:`hold`, in the parent and in the child."""
        self._lock.release()


def _sample(tensor: Tensor) -> int:
    """A fingerprint of the contents, or of a sample of them; 0 if they are not in CPU memory."""
    if not tensor.is_cpu:
        return 0
    return native.extension.sampled_fingerprint(read_address(tensor), _span_bytes(tensor))


def _span_bytes(tensor: Tensor) -> int:
    """Bytes from the first entry to the last, including gaps."""
    if not tensor.numel():
        return 0
    if tensor.is_contiguous():
        return tensor.nbytes
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


CACHE = IdentityCache(config.graph_cache_bytes)
"""The process's cache: graphs made from edge_index tensors, and tensors derived from them."""

# Without this, a child forked while another thread holds the lock would wait for ever.
os.register_at_fork(before=CACHE.hold, after_in_parent=CACHE.release, after_in_child=CACHE.release)


def cache_info() -> CacheInfo:
    """State of the cache of graphs and derived tensors, with its hits and misses."""
    return CACHE.info()


def clear_cache() -> None:
    """Drops every graph and derived tensor, and returns all cached memory to the system."""
    CACHE.clear()
    native.let_go()
