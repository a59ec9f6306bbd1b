"""How fast a disk reads and writes, by itself."""

import mmap
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import numpy as np

BLOCK = 8 << 20
HUGE = 2 << 20


def forget(files: list[Path]) -> None:
    """Writes out what is waiting, and empties the page cache of the files."""
    for file in files:
        if file.exists():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
                os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_buffered(files: list[Path]) -> float:
    """Seconds of reading all of the files in order, through the page cache, which is emptied before."""
    forget(files)
    buffer = bytearray(BLOCK)
    begin = time.perf_counter()
    for file in files:
        with file.open("rb", buffering=0) as handle:
            place = 0
            while count := handle.readinto(buffer):
                os.posix_fadvise(handle.fileno(), place, count, os.POSIX_FADV_DONTNEED)
                place += count
    return time.perf_counter() - begin


def read_direct(files: list[Path]) -> float:
    """Seconds of the same past the page cache, two requests at a time, into large pages."""
    forget(files)
    rooms = memory(2 * BLOCK, large_pages=True).reshape(2, BLOCK)
    begin = time.perf_counter()
    for file in files:
        direct(file, range(0, file.stat().st_size, BLOCK), list(rooms))
    return time.perf_counter() - begin


def direct(file: Path, places: Iterable[int], rooms: list[np.ndarray]) -> int:
    """Bytes read with O_DIRECT: at each place what a room holds, as many at a time as there are rooms."""
    free: SimpleQueue[np.ndarray] = SimpleQueue()
    for room in rooms:
        free.put(room)
    handle = os.open(file, os.O_RDONLY | os.O_DIRECT)

    def one(place: int) -> int:
        room = free.get()
        count = os.preadv(handle, [room.data], place)
        free.put(room)
        return count

    try:
        with ThreadPoolExecutor(len(rooms)) as readers:
            return sum(readers.map(one, places))
    finally:
        os.close(handle)


def memory(size: int, large_pages: bool) -> np.ndarray:
    """[size], uint8, at the border of a large page; touched."""
    room = mmap.mmap(-1, -(-size // HUGE) * HUGE + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    room.madvise(mmap.MADV_HUGEPAGE if large_pages else mmap.MADV_NOHUGEPAGE)
    whole = np.frombuffer(room, dtype=np.uint8)
    begin = -whole.ctypes.data % HUGE
    whole[begin : begin + size : mmap.PAGESIZE] = 1
    return whole[begin : begin + size]


def write_once(file: Path, size: int) -> float:
    """Seconds of writing so many bytes, until they are on the disk."""
    block = os.urandom(BLOCK)
    begin = time.perf_counter()
    with file.open("wb", buffering=0) as handle:
        for _ in range(-(-size // BLOCK)):
            handle.write(block)
        os.fsync(handle.fileno())
    seconds = time.perf_counter() - begin
    file.unlink()
    return seconds


def machine_bytes() -> int:
    """Bytes of memory that the machine has."""
    return os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE
