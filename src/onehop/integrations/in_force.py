"""The stack of patches and pauses; the latest one is in force.

Each handle and each pause has an entry. Entries may be removed in any order and by any thread; after that,
the latest remaining entry is in force.
"""

import weakref
from typing import Any

from onehop.integrations import memory, releases, session
from onehop.integrations.session import Framework, Session


class Entry:
    """An entry of the stack: a session that is in force unless a later entry exists.

    Attributes:
        session: The session.
        is_left: Whether it was removed.
    """

    __slots__ = ("_owner", "is_left", "session")

    def __init__(self, coming: Session, owner: Any) -> None:
        self.session, self.is_left, self._owner = coming, False, weakref.ref(owner)

    def can_be_left(self) -> bool:
        """Return whether the owner still exists; only the owner can remove the entry."""
        return self._owner() is not None


_entries: list[Entry] = []


def enter(coming: Session, owner: Any) -> Entry:
    """Puts a session in force until its entry is removed. If this fails, nothing has changed.

    Args:
        coming: The session.
        owner: The object that will remove the entry. The entry can be removed while this object exists.
    """
    with session.lock:
        _put_in_force(coming)
        # Entries below one that can no longer be removed never come into force again. They are dropped, so
        # that the stack does not grow when patch() is called in a loop.
        stays = [place for place, earlier in enumerate(_entries) if not earlier.can_be_left()]
        if stays:
            _forget(_entries[: stays[-1]])
        entry = Entry(coming, owner)
        _entries.append(entry)
        return entry


def leave(entry: Entry) -> None:
    """Removes an entry; has no effect if it was removed before."""
    with session.lock:
        if not entry.is_left:
            _forget([entry])
            _put_in_force(_entries[-1].session if _entries else Session())


def end() -> None:
    """Removes all entries; has no effect if no patch is in force, for example in a pause."""
    with session.lock:
        if session.now.selection is not None:
            _forget(list(_entries))
            _put_in_force(Session())


def _forget(entries: list[Entry]) -> None:
    for entry in entries:
        entry.is_left = True
        _entries.remove(entry)


def _put_in_force(coming: Session) -> None:
    """Installs the frameworks that a session patches, and restores the others."""
    if coming is session.now:
        return
    before = session.now
    try:
        for framework in _frameworks(coming):
            with releases.supported(framework.name):
                framework.install(coming.settings)
    except BaseException:
        _restore(coming, before)
        for framework in _frameworks(before):
            framework.install(before.settings)
        raise
    session.enter(coming)
    if coming.selection is None or not coming.settings.keep_memory:
        memory.pause()
    else:
        memory.keep()
    _restore(before, coming)


def _restore(left: Session, remaining: Session) -> None:
    """Restores the frameworks that one session patches and another does not."""
    for framework in _frameworks(left):
        if framework not in _frameworks(remaining):
            framework.remove()


def _frameworks(one: Session) -> tuple[Framework, ...]:
    return () if one.selection is None else one.selection.frameworks
