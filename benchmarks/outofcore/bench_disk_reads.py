"""What a disk's reading past the page cache depends on: requests, how many at a time, and the memory's pages.

    python -m benchmarks.outofcore.bench_disk_reads --file FILE [--bytes 536870912] [--json FILE]

FILE has at least 16 times as many bytes as are read at a time; it is read in 16 places side by side, as the
columns of a panel are, and in order through the page cache for comparison.
"""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Benchmark, Option, Options, Row
from benchmarks.outofcore import disk

STREAMS = 16
ROUNDS = 3
# Bytes of a request, requests at a time, large pages.
CASES = [(size << 10, 3, True) for size in (32, 64, 128, 256, 512, 1024, 2048)] + [
    (1 << 20, 1, True),
    (1 << 20, 2, True),
    (1 << 20, 6, True),
    (1 << 20, 3, False),
]


def rows(options: Options) -> Iterator[Row]:
    """Measures every case, after the page cache."""
    if options.file is None:
        raise SystemExit("--file is needed: a file to read")
    size = options.file.stat().st_size
    disk.forget([options.file])
    buffered = [size / disk.read_buffered([options.file]) / 1e9 for _ in range(ROUNDS)]
    options.noted |= {
        "file_bytes": size,
        "buffered_gbps": statistics.median(buffered),
        "buffered_gbps_spread": [min(buffered), max(buffered)],
    }
    for request, at_a_time, large_pages in CASES:
        apart = size // STREAMS // disk.BLOCK * disk.BLOCK
        count = min(options.bytes // STREAMS, apart) // request
        places = [stream * apart + row * request for row in range(count) for stream in range(STREAMS)]
        rooms = [disk.memory(request, large_pages) for _ in range(at_a_time)]
        rates = []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            read = disk.direct(options.file, places, rooms)
            rates.append(read / (time.perf_counter() - begin) / 1e9)
        yield {
            "request_bytes": request,
            "at_a_time": at_a_time,
            "large_pages": large_pages,
            "gbps": statistics.median(rates),
            "gbps_spread": [min(rates), max(rates)],
        }


BENCHMARK = Benchmark(
    "bench disk reads",
    rows,
    "request, bytes | request_bytes; at a time | at_a_time; large pages | large_pages; GB/s | gbps | {:.2f}",
    {"file": Option(None, "the file", kind=Path), "bytes": Option(1 << 29, "to read in each case")},
    key="cases",
    threads=False,
    kept=("bytes",),
    notes=lambda options, rows: [
        f"through the page cache, in order: {options.noted['buffered_gbps']:.2f} GB/s"
    ],
)

if __name__ == "__main__":
    BENCHMARK.main()
