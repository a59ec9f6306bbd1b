"""The memory that a streamed aggregation takes for free."""

from pathlib import Path

from onehop.ops.streaming import budget


def available() -> int:
    """Bytes, as the system counts them for programs that start now."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    (kib,) = (int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return kib * 1024


def test_the_systems_free_memory_is_counted_in_bytes() -> None:
    before, found, after = available(), budget._available(), available()
    # Others take and give back memory meanwhile, but not a quarter of it.
    assert 0.75 * min(before, after) < found < 1.25 * max(before, after)
