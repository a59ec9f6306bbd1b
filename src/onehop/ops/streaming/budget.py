"""The default memory budget of a streamed aggregation."""

import os
import resource
from pathlib import Path

# Of what is free; the rest is for threads, what the allocator keeps back, the page cache and others.
_SHARE = 0.6
_CGROUPS = (
    # Version 2, and version 1.
    ("/sys/fs/cgroup", "", "memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def default_bytes() -> int:
    """Six tenths of what this process may still take.

    By the free memory, the limit of its control group, and its own limits.
    """
    free = [_available()]
    for folder, controller, limit, used in _CGROUPS:
        group = Path(folder + _own_cgroup(controller))
        if (group / limit).exists() and (group / used).exists():
            most = (group / limit).read_text().strip()
            if most != "max":
                free.append(int(most) - int((group / used).read_text()))
    for kind, now in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most_bytes = resource.getrlimit(kind)[0]
        if most_bytes != resource.RLIM_INFINITY:
            free.append(most_bytes - _status(now))
    return max(int(min(free) * _SHARE), 0)


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
