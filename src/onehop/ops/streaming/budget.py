"""The default memory budget of a streamed aggregation."""

import os
import resource
from pathlib import Path
from typing import NamedTuple, SupportsIndex

from onehop.errors import integer

# The share of free memory; the rest is for threads, memory that the allocator keeps, the page cache and
# others.
_SHARE = 0.6


class _Hierarchy(NamedTuple):
    """The files that describe the memory of a control group.

    Attributes:
        root: The folder where control groups are mounted.
        controller: The controller's name in /proc/self/cgroup.
        limit: The file with the limit in bytes, or "max".
        used: The file with the bytes in use, including the page cache.
        prefix: The prefix of the names in memory.stat that count a group and all groups below it.
        mapped: The name in memory.stat, after the prefix, for mapped files such as libraries.
    """

    root: str
    controller: str
    limit: str
    used: str
    prefix: str
    mapped: str


_HIERARCHIES = (
    # Control groups version 2, and version 1.
    _Hierarchy("/sys/fs/cgroup", "", "memory.max", "memory.current", "", "file_mapped"),
    _Hierarchy(
        *("/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
        *("total_", "mapped_file"),
    ),
)


def budget_bytes(memory: SupportsIndex | None) -> int:
    """Return the bytes of an argument ``memory``; None means :func:`default_bytes`."""
    return default_bytes() if memory is None else integer("memory", memory, None)


def default_bytes() -> int:
    """Return six tenths of the memory that this process may still use.

    This considers the free memory, the limits of the process's control group and its parent groups, and the
    process's own limits.
    """
    free = [_available()]
    for hierarchy in _HIERARCHIES:
        root = Path(hierarchy.root)
        group = root / _own_cgroup(hierarchy.controller).lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                free += _left(folder, hierarchy)
    for kind, now in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most_bytes = resource.getrlimit(kind)[0]
        if most_bytes != resource.RLIM_INFINITY:
            free.append(most_bytes - _status(now))
    return max(int(min(free) * _SHARE), 0)


def _left(group: Path, hierarchy: _Hierarchy) -> list[int]:
    """Return the bytes that a control group may still use; an empty list if it has no limit.

    The page cache counts as free: it contains what a run has read and written, and the system frees it when
    the group needs memory. Mapped files do not count as free, because libraries would have to be read again
    and again.
    """
    if not (group / hierarchy.limit).exists() or not (group / hierarchy.used).exists():
        return []
    most = (group / hierarchy.limit).read_text().strip()
    if most == "max":
        return []
    counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    cached, mapped = (
        sum(int(counts.get(hierarchy.prefix + name, 0)) for name in names)
        for names in (("inactive_file", "active_file"), (hierarchy.mapped,))
    )
    return [int(most) - int((group / hierarchy.used).read_text()) + max(cached - mapped, 0)]


def _available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return 0


def _own_cgroup(controller: str) -> str:
    """Return the path of this process's control group."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.rstrip("/")
    return ""
