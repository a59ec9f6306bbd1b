"""What a disk's reading past the page cache depends on: requests, how many at a time, and the memory's pages.

    python benchmarks/outofcore/bench_disk_reads.py --file FILE [--bytes 536870912] [--json FILE]

FILE has at least 16 times as many bytes as are read at a time; it is read in 16 places side by side, as the
columns of a panel are, and in order through the page cache for comparison.
"""

import statistics
import time
from pathlib import Path

import disk

from onehop.bench import command
from onehop.bench.stamp import machine_line

STREAMS = 16
ROUNDS = 3
# Bytes of a request, requests at a time, large pages.
CASES = [(size << 10, 3, True) for size in (32, 64, 128, 256, 512, 1024, 2048)] + [
    (1 << 20, 1, True),
    (1 << 20, 2, True),
    (1 << 20, 6, True),
    (1 << 20, 3, False),
]


def main() -> None:
    """Measures, prints, writes."""
    parser = command.parser(__doc__)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--bytes", type=int, default=1 << 29, help="to read in each case")
    options = command.read(parser)
    size = options.file.stat().st_size
    print(machine_line())
    disk.forget([options.file])
    buffered = [size / disk.read_buffered([options.file]) / 1e9 for _ in range(ROUNDS)]
    print(f"{'through the page cache, in order':40} {statistics.median(buffered):6.2f} GB/s", flush=True)
    cases = []
    for request, at_a_time, large_pages in CASES:
        apart = size // STREAMS // disk.BLOCK * disk.BLOCK
        rows = min(options.bytes // STREAMS, apart) // request
        places = [stream * apart + row * request for row in range(rows) for stream in range(STREAMS)]
        rooms = [disk.memory(request, large_pages) for _ in range(at_a_time)]
        rates = []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            count = disk.direct(options.file, places, rooms)
            rates.append(count / (time.perf_counter() - begin) / 1e9)
        pages = "large" if large_pages else "small"
        what = f"{request >> 10} KiB, {at_a_time} at a time, {pages} pages"
        print(f"{what:40} {statistics.median(rates):6.2f} GB/s", flush=True)
        cases.append(
            {
                "request_bytes": request,
                "at_a_time": at_a_time,
                "large_pages": large_pages,
                "gbps": statistics.median(rates),
                "gbps_spread": [min(rates), max(rates)],
            }
        )
    command.write(
        options,
        "bench disk reads",
        {
            "file_bytes": size,
            "bytes": options.bytes,
            "buffered_gbps": statistics.median(buffered),
            "buffered_gbps_spread": [min(buffered), max(buffered)],
            "cases": cases,
        },
    )


if __name__ == "__main__":
    main()
