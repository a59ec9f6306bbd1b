"""What the system says of this processor."""

from functools import lru_cache
from pathlib import Path

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@lru_cache
def last_level_cache_bytes() -> int:
    """Size of the largest cache that the first core reads through; 0 where the system does not say."""
    return max((_bytes(path.read_text().strip()) for path in _CACHES.glob("index*/size")), default=0)


def _bytes(text: str) -> int:
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1:] in _UNITS else int(text)
