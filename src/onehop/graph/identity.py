"""The memory of what was made from tensors: it is found again while the tensors are unchanged.

:func:`remembered` finds a value or makes it. Code that only finds, or only stores, uses :data:`CACHE`.

A tensor is recognised by identity, never by its address: a freed tensor's memory is reused at once, with the
same address and the same version. An untouched copy of a cached tensor counts as that tensor
(:mod:`onehop.graph.lending`).

A write is noticed by the tensor's version, or by its contents (:mod:`onehop.graph.contents`). A value is kept
under the state that its tensors had before it was made (:class:`.Noted`). So a write by another thread while
it is made has the effect of one afterwards: the value is not found again.
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
# Number of lookups before the bytes of the entries found are counted again.
_RECOUNT_AFTER = 32
# Views of one tensor, such as mini-batches, live as long as it does, and few of them are used again. At most
# this many different views of one tensor are remembered.
_MOST_VIEWS = 8
_nothing = contextlib.nullcontext()

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """State of the cache of recognised tensors.

    Attributes:
        entries: Graphs and derived tensors held.
        bytes: Bytes of all of them in the host's memory.
        limit_bytes: The bound (``ONEHOP_CACHE_BYTES``).
        device_bytes: Their bytes on every other device, by its name.
        device_limit_bytes: The bounds (``ONEHOP_DEVICE_CACHE_BYTES``), by the same names.
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
        """Bytes on every device."""
        return bytes_held((self.value, [state.contents for state in self.noted.states]))


class IdentityCache:
    """An LRU cache of values, each bound to the state of one or several tensors; bounded on every device.

    The key is the tensors (or their bases if they are views), in order, with their storages, shapes, strides,
    offsets and dtypes, and the caller's addition (sizes, flow). The entry is dropped when one of the storages
    is freed: a weak reference to the tensor itself would keep ``torch.utils.swap_tensors`` from exchanging
    it. The entry also holds each tensor's version counter, address and a sample of its contents; a lookup
    that finds others drops the entry. Inference tensors have no version counter and are never recognised. Of
    the views of one tensor, those that were stored last are remembered.

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
        self._stale_counts: set[_Entry] = set()
        self._bytes: dict[torch.device, int] = {_HOST: 0}
        self._hits = self._misses = self._evictions = 0
        self._itself = weakref.ref(self)
        # Reentrant: dropping a value may free a tensor, whose callback drops another entry.
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
        """Returns what is made from some tensors: found again while all of them are unchanged, else made.

        For example, the edges of each relation, which are made from two tensors::

            def relations_of(edge_index, edge_type, count):
                return remembered(
                    edge_index,
                    edge_type,
                    key=("relations", count),
                    make=lambda: divide(edge_index, edge_type, count),
                )

        After a write to one of the tensors, or with other tensors or another order, the value is made anew.
        It is dropped when one of the tensors is freed, or when the cache is full.

        Args:
            *tensors: What the value is made from; at least one. What is made from tensors of inference mode
                is not kept.
            key: What is made, and of what besides the tensors. Begin it with a name of its own.
            make: Makes the value, outside of inference mode and without gradients, because what inference
                mode makes cannot be used outside it. See :meth:`store` for what it may be. A result of None
                is not kept. Without ``make``, a value is found if one was stored, and never made.
            any_owner: As for :class:`Noted`.
            whole: As for :class:`Noted`. A value that was stored so is always compared so.

        Returns:
            The kept value itself, or None. Lend its tensors to users (:func:`.lend`): they may write to them.
        """
        # The hot path of every patched layer: few function calls, and no loop over generators.
        names: tuple[Name, ...] = ()
        compared: tuple[Tensor | None, ...] = tensors
        recognised, changeable = True, False
        for tensor in tensors:
            source = tensor
            if not tensor.is_cpu or is_shared(tensor):
                source = original(tensor)
                if source is not tensor:
                    # A cached tensor has no other owner, so it cannot have been written to.
                    compared = (*compared[: len(names)], None, *compared[len(names) + 1 :])
            changeable = changeable or source is tensor
            recognised = recognised and not source.is_inference()
            base = source._base
            view = (int(source.storage_offset()), source.shape, source.stride(), source.dtype)
            owner = 0 if any_owner else id(source if base is None else base)
            names = (*names, (id(source.untyped_storage()), owner, view))
        if recognised:
            place = key, names
            # Contents are compared outside the lock, which other threads would wait for.
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
        # Outside of inference mode, to leave it costs more than no_grad alone.
        with torch.inference_mode(False) if torch.is_inference_mode_enabled() else _nothing, torch.no_grad():
            value = make()
        if value is not None and noted is not None:
            self.store(noted, key, value)
        return value

    def find(self, tensors: Tensor | tuple[Tensor, ...], rest: Hashable, any_owner: bool = False) -> Any:
        """Returns the value stored for these tensors and ``rest``; None if there is none, or one changed."""
        if isinstance(tensors, Tensor):
            tensors = (tensors,)
        return self.remembered(*tensors, key=rest, any_owner=any_owner)

    def store(self, noted: Noted, rest: Hashable, value: Any) -> None:
        """Keeps a value for tensors, as long as all live in the noted state and the bound allows.

        Args:
            noted: The tensors, noted before the value was made.
            rest: The caller's part of the key.
            value: Anything but None: a tensor, a graph, a number, or a tuple, dictionary or dataclass of
                such. :func:`.bytes_held` counts its bytes, which may grow. It must not hold one of the
                tensors, which would then never be freed.
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
        """The current state."""
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
        """Notes an entry of a view, and drops the entries of the view that was stored longest ago."""
        storage, _, view = name
        views = self._views.setdefault(storage, OrderedDict())
        keys = views.setdefault(view, [])
        if key not in keys:
            keys.append(key)
        views.move_to_end(view)
        if len(views) > _MOST_VIEWS:
            for old in list(next(iter(views.values()))):
                # An entry may be of more views than that.
                if old != key:
                    self._drop(old)

    def _forget(self, key: _Key, dead: "weakref.ref[torch.UntypedStorage]") -> None:
        with self._lock:
            entry = self._entries.get(key)
            # A newer tensor may have the same id, and so the same key.
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
            # Counting may run the garbage collector, which may drop entries, this one too.
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
"""The process's cache: graphs made from edge_index tensors, and tensors derived from them."""

remembered = CACHE.remembered
"""The memory of the process: see :meth:`IdentityCache.remembered`."""

# Without this, a child forked while another thread holds the lock would wait for ever.
os.register_at_fork(before=CACHE.hold, after_in_parent=CACHE.release, after_in_child=CACHE.release)


def cache_info() -> CacheInfo:
    """State of the cache of graphs and derived tensors, with its hits and misses.

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
    """Drops every graph and derived tensor, and returns all cached memory to the system.

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
