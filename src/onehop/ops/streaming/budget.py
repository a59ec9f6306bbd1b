"""The default memory budget of a streamed aggregation."""

import os
import resource
from pathlib import Path
from typing import NamedTuple, SupportsIndex

from onehop.errors import integer

# Of what is free; the rest is for threads, what the allocator keeps back, the page cache and others.
_SHARE = 0.6


class _Hierarchy(NamedTuple):
    """The files of a control group that tell of its memory.

    Attributes:
        root: Where groups are mounted.
        controller: The name in /proc/self/cgroup.
        limit: The file of the most bytes, or "max".
        used: The file of the bytes that are taken now, the page cache among them.
        prefix: Of the names in memory.stat that count a group and all below it.
        mapped: The name there, behind the prefix, of files that are mapped, as libraries are.
    """

    root: str
    controller: str
    limit: str
    used: str
    prefix: str
    mapped: str


_HIERARCHIES = (
    # Version 2, and version 1.
    _Hierarchy("/sys/fs/cgroup", "", "memory.max", "memory.current", "", "file_mapped"),
    _Hierarchy(
        *("/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
        *("total_", "mapped_file"),
    ),
)


def budget_bytes(memory: SupportsIndex | None) -> int:
    """The bytes of an argument ``memory``; None means :func:`default_bytes`."""
    return default_bytes() if memory is None else integer("memory", memory, None)


def default_bytes() -> int:
    """Six tenths of what this process may still take.

    By the free memory, the limits of its control group and of those around it, and its own limits.
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
    """Bytes that a control group may still take; nothing where it has no limit.

    The page cache counts as free: what a run has read and written is in it, and the system lets go of it when
    the group needs the memory. Files that are mapped are not: libraries would be read again and again.
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
    """The path of this process's control group."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.rstrip("/")
    return ""
