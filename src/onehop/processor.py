"""Properties of this processor, as the system reports them."""

import platform
from functools import lru_cache
from pathlib import Path

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_DESCRIPTION = Path("/proc/cpuinfo")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@lru_cache
def name() -> str:
    """Return the processor's name as reported by the system; else the architecture."""
    return _described("model name") or platform.processor() or platform.machine()


@lru_cache
def features() -> str:
    """Return the supported instructions, by the system's names; empty if they are not reported."""
    return _described("flags") or _described("Features")


@lru_cache
def caches() -> dict[int, int]:
    """Return the bytes of the first core's data caches, by level; empty if they are not reported."""
    sizes = {}
    for folder in _CACHES.glob("index*"):
        if (folder / "type").read_text().strip() != "Instruction":
            sizes[int((folder / "level").read_text())] = _bytes((folder / "size").read_text().strip())
    return dict(sorted(sizes.items()))


@lru_cache
def last_level_cache_bytes() -> int:
    """Return the size of the first core's largest cache; 0 if the system does not report it."""
    return max(caches().values(), default=0)


def _described(field: str) -> str:
    """Return a field of the system's description of the first core; empty if it is missing."""
    if _DESCRIPTION.exists():
        with _DESCRIPTION.open() as lines:
            # The file is read line by line, because on machines with many cores the whole file takes
            # milliseconds.
            for line in lines:
                if line.startswith(field):
                    return line.split(":", 1)[1].strip()
    return ""


def _bytes(text: str) -> int:
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1:] in _UNITS else int(text)
