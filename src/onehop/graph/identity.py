"""The cache of values that were made from tensors; a value is found while its tensors are unchanged.

:func:`remembered` finds a value or makes it. Code that only finds, or only stores, uses :data:`CACHE`.

A tensor is recognised by identity, never by its address, because a freed tensor's memory is reused at once,
with the same address and the same version. An untouched lent copy of a cached tensor counts as that tensor
(:mod:`onehop.graph.lending`). A write is detected by the tensor's version, or by its contents
(:mod:`onehop.graph.contents`). A value is stored under the state that its tensors had before it was made
(:class:`.Noted`). So a write by another thread while it is made has the same effect as a later write: the
value is not found again.
"""

import contextlib
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import torch
from torch import Tensor

from onehop import config, native
from onehop.graph.contents import Name, Noted
from onehop.graph.held import bytes_held
from onehop.graph.lending import is_shared, original

_HOST = torch.device("cpu")
# Number of lookups after which the bytes of the entries that were found are counted again.
_RECOUNT_AFTER = 32
# At most this many different views of one tensor are remembered, because views such as mini-batches live as
# long as the tensor, and few of them are used again.
_MOST_VIEWS = 8
_nothing = contextlib.nullcontext()

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """The state of the cache of graphs and derived tensors.

    Attributes:
        entries: Number of cached graphs and derived tensors.
        bytes: Their bytes in the host's memory.
        limit_bytes: The limit of these bytes (``ONEHOP_CACHE_BYTES``).
        device_bytes: Their bytes on every other device, by device name.
        device_limit_bytes: The limits of these bytes (``ONEHOP_DEVICE_CACHE_BYTES``), by device name.
        hits: Lookups that found an entry.
        misses: Lookups that found no entry.
        evictions: Entries that were evicted to stay within the limit.
    """

    entries: int
    bytes: int
    limit_bytes: int
    device_bytes: dict[str, int]
    device_limit_bytes: dict[str, int]
    hits: int
    misses: int
    evictions: int


_Key = tuple[Hashable, tuple[Name, ...]]
"""The key of an entry: the caller's part, and the tensors in order."""


class _Entry:
    __slots__ = ("counted", "noted", "storages", "value")

    def __init__(
        self, noted: Noted, value: Any, forget: Callable[["weakref.ref[torch.UntypedStorage]"], None]
    ) -> None:
        self.noted, self.value = noted, value
        living = (state.storage() for state in noted.states)
        self.storages = [weakref.ref(storage, forget) for storage in living if storage is not None]
        self.counted: dict[torch.device, int] = {}

    def nbytes(self) -> dict[torch.device, int]:
        """The bytes on every device."""
        return bytes_held((self.value, [state.contents for state in self.noted.states]))


class IdentityCache:
    """An LRU cache of values that are bound to the state of tensors, with a limit for every device.

    The key consists of the tensors (or their bases if they are views), in order, with their storages, shapes,
    strides, offsets and dtypes, and of the caller's part (sizes, flow). The entry is dropped when one of the
    storages is freed; a weak reference to the tensor itself would prevent ``torch.utils.swap_tensors`` from
    exchanging it. The entry also has each tensor's version counter, its address and a sample of its contents;
    a lookup that finds other values drops the entry. Inference tensors have no version counter and are never
    recognised. Of the views of one tensor, only the last stored ones are remembered.

    Args:
        limit_bytes: Returns the limit for the host's memory; called on every store.
        device_limit_bytes: Returns the limit for another device.
    """

    def __init__(
        self,
        limit_bytes: Callable[[], int],
        device_limit_bytes: Callable[[torch.device], int] = config.device_cache_bytes,
    ) -> None:
        self._limit_bytes, self._device_limit_bytes = limit_bytes, device_limit_bytes
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        # For each storage: its views, with the keys of their entries; the view stored longest ago comes
        # first.
        self._views: dict[int, OrderedDict[Hashable, list[_Key]]] = {}
        # Entries that were found since their bytes were counted; they may have grown, for example by a
        # graph's transpose.
        self._stale_counts: set[_Entry] = set()
        self._bytes: dict[torch.device, int] = {_HOST: 0}
        self._hits = self._misses = self._evictions = 0
        self._itself = weakref.ref(self)
        # The lock is reentrant, because dropping a value may free a tensor, whose callback drops another
        # entry.
        self._lock = threading.RLock()

    @overload
    def remembered(self, *tensors: Tensor, key: Hashable, any_owner: bool = False) -> Any: ...

    @overload
    def remembered(
        self, *tensors: Tensor, key: Hashable, make: Callable[[], Made], whole: bool = False
    ) -> Made: ...

    def remembered(
        self,
        *tensors: Tensor,
        key: Hashable,
        make: Callable[[], Any] | None = None,
        any_owner: bool = False,
        whole: bool = False,
    ) -> Any:
        """Returns a value made from some tensors; it is cached while all tensors are unchanged.

        For example, the edges of each relation are made from two tensors::

            def relations_of(edge_index, edge_type, count):
                return remembered(
                    edge_index,
                    edge_type,
                    key=("relations", count),
                    make=lambda: divide(edge_index, edge_type, count),
                )

        After a write to one of the tensors, or with other tensors or another order, the value is made again.
        It is dropped when one of the tensors is freed, or when the cache is full.

        Args:
            *tensors: The tensors from which the value is made; at least one. Values made from inference
                tensors are not cached.
            key: Identifies the value, and everything it depends on besides the tensors. Begin it with a
                unique name.
            make: Makes the value, outside of inference mode and without gradients, because tensors made in
                inference mode cannot be used outside of it. See :meth:`store` for allowed values. A result of
                None is not cached. Without ``make``, a stored value is found, but none is made.
            any_owner: See :class:`Noted`.
            whole: See :class:`Noted`. A value that was stored with ``whole`` is always compared as a whole.

        Returns:
            The cached value itself, or None. Pass its tensors to users only by :func:`.lend`, because users
            may write to them.
        """
        # This is the hot path of every patched layer, so it has few function calls, and no loop over
        # generators.
        names: tuple[Name, ...] = ()
        compared: tuple[Tensor | None, ...] = tensors
        recognised, changeable = True, False
        for tensor in tensors:
            source = tensor
            if not tensor.is_cpu or is_shared(tensor):
                source = original(tensor)
                if source is not tensor:
                    # Only the cache refers to a cached tensor, so it cannot have been written to.
                    compared = (*compared[: len(names)], None, *compared[len(names) + 1 :])
            changeable = changeable or source is tensor
            recognised = recognised and not source.is_inference()
            base = source._base
            view = (int(source.storage_offset()), source.shape, source.stride(), source.dtype)
            owner = 0 if any_owner else id(source if base is None else base)
            names = (*names, (id(source.untyped_storage()), owner, view))
        if recognised:
            place = key, names
            # Contents are compared without the lock, so that other threads need not wait.
            entry = self._entries.get(place)
            holds = entry is not None and (not changeable or entry.noted.is_of(*compared))
            with self._lock:
                if entry is not None and self._entries.get(place) is entry:
                    if holds:
                        self._entries.move_to_end(place)
                        self._hits += 1
                        self._stale_counts.add(entry)
                        if len(self._stale_counts) >= _RECOUNT_AFTER:
                            self._enforce_limit()
                        return entry.value
                    self._drop(place)
                self._misses += 1
        if make is None:
            return None
        noted = Noted(*tensors, any_owner=any_owner, whole=whole) if recognised else None
        # inference_mode(False) is entered only if needed, because it costs more than no_grad alone.
        with torch.inference_mode(False) if torch.is_inference_mode_enabled() else _nothing, torch.no_grad():
            value = make()
        if value is not None and noted is not None:
            self.store(noted, key, value)
        return value

    def find(self, tensors: Tensor | tuple[Tensor, ...], rest: Hashable, any_owner: bool = False) -> Any:
        """Returns the value stored for these tensors and ``rest``; None if missing or if a tensor changed."""
        if isinstance(tensors, Tensor):
            tensors = (tensors,)
        return self.remembered(*tensors, key=rest, any_owner=any_owner)

    def store(self, noted: Noted, rest: Hashable, value: Any) -> None:
        """Stores a value for tensors, while all of them exist in the noted state and the limit allows it.

        Args:
            noted: The tensors, noted before the value was made.
            rest: The caller's part of the key.
            value: Any value except None: a tensor, a graph, a number, or a tuple, dictionary or dataclass of
                these. :func:`.bytes_held` counts its bytes, which may grow. It must not refer to one of the
                tensors, because the tensor would then never be freed.
        """
        if not noted.recognised:
            return
        key = (rest, noted.names)
        itself = self._itself

        def forget(dead: "weakref.ref[torch.UntypedStorage]") -> None:
            cache = itself()
            if cache is not None:
                cache._forget(key, dead)

        entry = _Entry(noted, value, forget)
        if len(entry.storages) < len(noted.states):
            return  # one of the tensors was freed meanwhile
        with self._lock:
            self._drop(key)
            self._entries[key] = entry
            self._stale_counts.add(entry)
            for name, is_view in zip(noted.names, noted.are_views, strict=True):
                if is_view:
                    self._note_view(name, key)
            self._enforce_limit()

    def info(self) -> CacheInfo:
        """Return the current state of the cache."""
        with self._lock:
            self._stale_counts.update(self._entries.values())
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

    def _note_view(self, name: Name, key: _Key) -> None:
        """Notes an entry of a view; with too many views, drops the entries of the oldest one."""
        storage, _, view = name
        views = self._views.setdefault(storage, OrderedDict())
        keys = views.setdefault(view, [])
        if key not in keys:
            keys.append(key)
        views.move_to_end(view)
        if len(views) > _MOST_VIEWS:
            for old in list(next(iter(views.values()))):
                # An entry may also belong to other views.
                if old != key:
                    self._drop(old)

    def _forget(self, key: _Key, dead: "weakref.ref[torch.UntypedStorage]") -> None:
        with self._lock:
            entry = self._entries.get(key)
            # A newer tensor may have the same id, and therefore the same key.
            if entry is not None and any(storage is dead for storage in entry.storages):
                self._drop(key)

    def _drop(self, key: _Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        for storage, _, view in key[1] if self._views else ():
            views = self._views.get(storage)
            if views is not None and key in views.get(view, ()):
                views[view].remove(key)
                if not views[view]:
                    del views[view]
                if not views:
                    del self._views[storage]
        self._stale_counts.discard(entry)
        self._count(entry, {})

    def _recount(self) -> None:
        for entry in list(self._stale_counts):
            now = entry.nbytes()
            # Counting may run the garbage collector, which may drop entries, including this one.
            if entry in self._stale_counts:
                self._count(entry, now)
        self._stale_counts.clear()

    def _count(self, entry: _Entry, now: dict[torch.device, int]) -> None:
        """Notes the bytes that an entry has on every device."""
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


CACHE = IdentityCache(config.graph_cache_bytes)
"""The process's cache of graphs made from edge_index tensors, and of tensors derived from them."""

remembered = CACHE.remembered
"""Finds or makes a value in the process's cache; see :meth:`IdentityCache.remembered`."""

# Without this, a child forked while another thread holds the lock would wait forever.
os.register_at_fork(before=CACHE.hold, after_in_parent=CACHE.release, after_in_child=CACHE.release)


def cache_info() -> CacheInfo:
    """Return the state of the cache of graphs and derived tensors, with its hits and misses.

    Examples:
        >>> import onehop, torch
        >>> onehop.clear_cache()
        >>> index = torch.tensor([2, 0, 2])
        >>> out = onehop.scatter(torch.ones(3), index)  # makes a graph of the index, and keeps it
        >>> info = onehop.cache_info()
        >>> info.entries
        1
    """
    return CACHE.info()


def clear_cache() -> None:
    """Drop every cached graph and derived tensor, and return all cached memory to the system.

    Examples:
        >>> import onehop, torch
        >>> index = torch.tensor([2, 0, 2])
        >>> out = onehop.scatter(torch.ones(3), index)  # makes a graph of the index, and keeps it
        >>> onehop.clear_cache()
        >>> onehop.cache_info().entries, onehop.cache_info().bytes
        (0, 0)
    """
    CACHE.clear()
    native.let_go()
