"""The DRAM simulator beside Ramulator 2.1, case by case, and how many requests it serves in a second.

    python -m benchmarks.machines.bench_dram [--rounds 5] [--cases NAMES] [--json FILE]

``dram_cases.csv`` holds what Ramulator 2.1 (commit c5b1c3a4) gave for its preset DDR5_4800AN, 16Gb_x8,
one channel: 200,000 bursts of 64 B, queues of 32 unless the case says otherwise, open rows, all-bank refresh.
It ends when its queue takes the last request, so ours is compared at that clock, by clocks a burst. Random
runs are drawn anew: the traces were not kept, and Ramulator itself moves by up to 0.1 % between two seeds.

Reads must be within 1 % at the command level, writes within 3 %; what the strictest limit of reads comes to
(``Memory.limits``, an explanation and no level of simulation) within 3 %. The exit code is 1 where a bound is
missed.

Speed is of the command level alone, on one core, with the requests made before; median of the rounds.
"""

import csv
import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import columns
from benchmarks.harness import Benchmark, Option, Options, Row
from onehop.bench.timing import timed
from onehop.machines.dram import Access, Memory, preset
from onehop.tables import Column

CASES = Path(__file__).with_name("dram_cases.csv")
REQUESTS = 200_000
READS_PERCENT, CLOSED_PERCENT, WRITES_PERCENT = 1.0, 3.0, 3.0


@dataclass(frozen=True)
class Case:
    """A run of Ramulator's."""

    name: str
    memory: Memory
    access: Access
    clocks: float
    rows: tuple[int, int, int]


def read_cases() -> Iterator[Case]:
    """Every line of the table."""
    with CASES.open() as file:
        for row in csv.DictReader(file):
            clocks = dict(pair.split("=") for pair in row["timing"].split(";") if pair)
            dram = preset("DDR5_4800AN").with_timing(**{name: int(value) for name, value in clocks.items()})
            refreshes = row["refresh"] == "1"
            memory = Memory(
                dram, int(row["ranks"]), row["layout"], int(row["queue"]), refreshes, row["scheduler"]
            )
            rows = (int(row["row_hits"]), int(row["row_misses"]), int(row["row_conflicts"]))
            access = Access(row["pattern"], int(row["run_bytes"]), row["op"])
            yield Case(row["name"], memory, access, int(row["cycles"]) / int(row["served"]), rows)


def measure(case: Case, rounds: int) -> Row:
    """One case at the command level, with its speed, and its strictest limit."""
    requests = case.memory.requests(case.access, REQUESTS, seed=1)
    times = timed(lambda: case.memory.commands(requests, log=False), rounds)
    run = case.memory.commands(requests, log=False)
    clocks = run.accepted.cycles / run.accepted.served
    closed = case.memory.limits(case.access).cycles
    writes = case.access.op == "write"
    error, closed_error = (100 * (found / case.clocks - 1) for found in (clocks, closed))
    rates = sorted(REQUESTS / seconds for seconds in times.seconds)
    return {
        "name": case.name,
        "reference_clocks": case.clocks,
        "command_clocks": clocks,
        "closed_clocks": closed,
        "command_error_percent": error,
        "closed_error_percent": closed_error,
        "command_within": abs(error) <= (WRITES_PERCENT if writes else READS_PERCENT),
        "closed_within": None if writes else abs(closed_error) <= CLOSED_PERCENT,
        "reference_rows": case.rows,
        "command_rows": (run.counts.row_hits, run.counts.row_misses, run.counts.row_conflicts),
        "requests_per_s": {"median": statistics.median(rates), "min": rates[0], "max": rates[-1]},
    }


def rows(options: Options) -> Iterator[Row]:
    """Measures the cases."""
    chosen = [case for case in read_cases() if any(part in case.name for part in options.cases)]
    if not chosen:
        raise SystemExit(f"--cases: no case has any of {','.join(options.cases)} in its name.")
    for case in chosen:
        yield measure(case, options.rounds)


def summary(options: Options, rows: list[Row]) -> Row:
    """The worst errors, and the speeds."""
    reads = [row for row in rows if row["closed_within"] is not None]
    writes = [row for row in rows if row["closed_within"] is None]
    rates = [row["requests_per_s"]["median"] for row in rows]

    def worst(of: list[Row], error: str) -> float | None:
        return max((abs(row[error]) for row in of), default=None)

    found = {
        "worst_read_command_percent": worst(reads, "command_error_percent"),
        "worst_read_closed_percent": worst(reads, "closed_error_percent"),
        "worst_write_command_percent": worst(writes, "command_error_percent"),
        "same_clock": [row["name"] for row in rows if row["command_error_percent"] == 0],
        "requests_per_s": {
            "median_case": statistics.median(rates),
            "slowest_case": min(rates),
            "fastest_case": max(rates),
            "below_5_million": [row["name"] for row in rows if row["requests_per_s"]["median"] < 5e6],
        },
        "all_within": all(row["command_within"] and row["closed_within"] is not False for row in rows),
    }
    return {"summary": found}


BENCHMARK = Benchmark(
    "bench_dram",
    rows,
    columns.of(
        "case | name; Ramulator | reference_clocks | {:.3f}; command | command_clocks | {:.3f};"
        "% | command_error_percent | {:+.3f}; limit | closed_clocks | {:.3f}; "
        "% | closed_error_percent | {:+.2f}; M requests/s | requests_per_s/median | {:.3g}",
        Column("missed", lambda r: "!" * (not r["command_within"] or r["closed_within"] is False)),
    ),
    {"cases": Option(("",), "parts of names")},
    key="cases",
    rounds=5,
    threads=False,
    more=summary,
    notes=lambda options, rows: [json.dumps(summary(options, rows)["summary"], indent=2)],
)

if __name__ == "__main__":
    found = BENCHMARK.main()
    raise SystemExit(not all(row["command_within"] and row["closed_within"] is not False for row in found))
