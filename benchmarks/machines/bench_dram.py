"""The DRAM simulator beside Ramulator 2.1, case by case, and how many requests it serves in a second.

    python benchmarks/machines/bench_dram.py [--rounds 5] [--cases NAMES] [--json FILE]

``dram_cases.csv`` holds what Ramulator 2.1 (commit c5b1c3a4) gave for its preset DDR5_4800AN, 16Gb_x8,
one channel: 200,000 bursts of 64 B, queues of 32 unless the case says otherwise, open rows, all-bank refresh.
It ends when its queue takes the last request, so ours is compared at that clock, by clocks a burst. Random
runs are drawn anew: the traces were not kept, and Ramulator itself moves by up to 0.1 % between two seeds.

Reads must be within 1 % at the command level, writes within 3 %; what the strictest limit of reads comes to
(``Memory.limits``, an explanation and no level of simulation) within 3 %.

Speed is of the command level alone, on one core, with the requests made before; median of the rounds.
"""

import csv
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from onehop.bench import command
from onehop.bench.timing import timed
from onehop.machines.dram import Access, Memory, preset
from onehop.tables import Column, Table

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


def read_cases() -> list[Case]:
    """Every line of the table."""
    cases = []
    with CASES.open() as file:
        for row in csv.DictReader(file):
            clocks = dict(pair.split("=") for pair in row["timing"].split(";") if pair)
            dram = preset("DDR5_4800AN").with_timing(**{name: int(value) for name, value in clocks.items()})
            memory = Memory(
                dram,
                int(row["ranks"]),
                row["layout"],
                int(row["queue"]),
                row["refresh"] == "1",
                row["scheduler"],
            )
            rows = (int(row["row_hits"]), int(row["row_misses"]), int(row["row_conflicts"]))
            access = Access(row["pattern"], int(row["run_bytes"]), row["op"])
            cases.append(Case(row["name"], memory, access, int(row["cycles"]) / int(row["served"]), rows))
    return cases


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """One case at the command level, with its speed, and its strictest limit."""
    requests = case.memory.requests(case.access, REQUESTS, seed=1)
    times = timed(lambda: case.memory.commands(requests, log=False), rounds)
    run = case.memory.commands(requests, log=False)
    clocks = run.accepted.cycles / run.accepted.served
    closed = case.memory.limits(case.access).cycles
    writes = case.access.op == "write"
    errors = {
        name: 100 * (clocks / case.clocks - 1) for name, clocks in (("command", clocks), ("closed", closed))
    }
    rates = sorted(REQUESTS / seconds for seconds in times.seconds)
    return {
        "name": case.name,
        "reference_clocks": case.clocks,
        "command_clocks": clocks,
        "closed_clocks": closed,
        "command_error_percent": errors["command"],
        "closed_error_percent": errors["closed"],
        "command_within": abs(errors["command"]) <= (WRITES_PERCENT if writes else READS_PERCENT),
        "closed_within": None if writes else abs(errors["closed"]) <= CLOSED_PERCENT,
        "reference_rows": case.rows,
        "command_rows": (run.counts.row_hits, run.counts.row_misses, run.counts.row_conflicts),
        "requests_per_s": {"median": statistics.median(rates), "min": rates[0], "max": rates[-1]},
    }


COLUMNS = (
    Column("case", "name", left=True, wraps=False),
    Column("Ramulator", "reference_clocks", "{:.3f}"),
    Column("command", "command_clocks", "{:.3f}"),
    Column("%", lambda r: f"{r['command_error_percent']:+.3f}" + " !" * (not r["command_within"])),
    Column("limit", "closed_clocks", "{:.3f}"),
    Column(
        "%", lambda r: f"{r['closed_error_percent']:+.2f}" + (" !" if r["closed_within"] is False else "")
    ),
    Column("M requests/s", lambda r: r["requests_per_s"]["median"] / 1e6, "{:.1f}"),
)


def main() -> None:
    """Runs the cases, prints a table, and writes JSON where asked; ends with 1 where a bound is missed."""
    parser = command.parser(__doc__, rounds=5)
    parser.add_argument("--cases", default="", help="parts of names, with commas")
    options = command.read(parser)
    parts = options.cases.split(",")
    results = [
        measure(case, options.rounds) for case in read_cases() if any(part in case.name for part in parts)
    ]
    if not results:
        parser.error(f"--cases: no case has any of {options.cases} in its name.")
    reads = [r for r in results if r["closed_within"] is not None]
    writes = [r for r in results if r["closed_within"] is None]
    summary = {
        "worst_read_command_percent": max((abs(r["command_error_percent"]) for r in reads), default=None),
        "worst_read_closed_percent": max((abs(r["closed_error_percent"]) for r in reads), default=None),
        "worst_write_command_percent": max((abs(r["command_error_percent"]) for r in writes), default=None),
        "same_clock": [r["name"] for r in results if r["command_error_percent"] == 0],
        "requests_per_s": {
            "median_case": statistics.median(r["requests_per_s"]["median"] for r in results),
            "slowest_case": min(r["requests_per_s"]["median"] for r in results),
            "fastest_case": max(r["requests_per_s"]["median"] for r in results),
            "below_5_million": [r["name"] for r in results if r["requests_per_s"]["median"] < 5e6],
        },
        "all_within": all(r["command_within"] and r["closed_within"] is not False for r in results),
    }
    Console().print(Table(COLUMNS, results, "Clocks for 64 B"))
    print(json.dumps(summary, indent=2))
    command.write(options, "bench_dram", {"summary": summary, "cases": results})
    raise SystemExit(not summary["all_within"])


if __name__ == "__main__":
    main()
