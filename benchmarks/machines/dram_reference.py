"""Runs Ramulator 2.1 over the cases of ``dram_devices.csv`` and writes that file.

    python -m benchmarks.machines.dram_reference RAMULATOR [--cases NAMES] [--compare] [--output FILE]

RAMULATOR is the folder of a checkout that was built with its Python bindings (cmake -S . -B build; cmake
--build build), whose ``python`` folder then holds the module with the simulator in it. The file in the
repository is of commit c5b1c3a4. ``--compare`` writes nothing and ends with 1 where a case differs from the
file.

A case is 50,000 requests of our own generator, seed 1, one channel, or one pseudo-channel, of one rank;
queues of 32, FR-FCFS, rows first. They are handed over as byte addresses, for its other format merges writes.
The run ends when the last request is accepted. What differs from Ramulator's presets: DDR4's refresh
is 420 and 9,360 clocks (DRAMsim3), HBM1's distances of ACTs are 2, 3 and 15 clocks (gem5, DRAMsim3), HBM2
and HBM3 have one pseudo-channel.
"""

import argparse
import csv
import sys
import tempfile
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from onehop.machines.dram import Access, Memory, preset, write_trace

TABLE = Path(__file__).with_name("dram_devices.csv")
REQUESTS, SEED = 50_000, 1
RESULTS = ("cycles", "served", "row_hits", "row_misses", "row_conflicts")


@dataclass(frozen=True)
class Reference:
    """How Ramulator builds one of our devices."""

    standard: str
    organisation: str
    timing: str
    controller: str
    changed: tuple[tuple[str, int], ...] = ()
    bank_refresh: str = ""


_ONE_PSEUDO_CHANNEL = (("pseudochannel", 1),)
DEVICES = {
    "DDR4_2400": Reference(
        "DDR4", "DDR4_8Gb_x8", "DDR4_2400R", "GenericDDR", (("nRFC", 420), ("nREFI", 9360))
    ),
    "DDR3_1600K": Reference("DDR3", "DDR3_4Gb_x8", "DDR3_1600K", "GenericDDR"),
    "DDR5_4800AN": Reference("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", "GenericDDR"),
    "DDR5_6400AN": Reference("DDR5", "DDR5_16Gb_x8", "DDR5_6400AN", "GenericDDR"),
    "LPDDR5_6400": Reference("LPDDR5", "LPDDR5_16Gb_x16", "LPDDR5_6400", "LPDDR5", bank_refresh="PerBank"),
    "HBM1_1000": Reference(
        "HBM1", "HBM1_2Gb", "HBM1_1Gbps", "HBM12", (("nRRDS", 2), ("nRRDL", 3), ("nFAW", 15)), "PerBank"
    ),
    "HBM2_2000": Reference("HBM2", "HBM2_8Gb", "HBM2_2000Mbps", "HBM12", _ONE_PSEUDO_CHANNEL, "PerBank"),
    "HBM3_6400": Reference(
        "HBM3", "HBM3_4Gb", "HBM3_6400Mbps", "HBM34", _ONE_PSEUDO_CHANNEL, "HBM34PerBankRefresh"
    ),
}


@dataclass(frozen=True)
class Case:
    """A line of the file without its results; the fields are the first columns."""

    name: str
    device: str
    pattern: str
    run_bytes: int
    write_share: float
    refresh_mode: str
    close_after: int


def cases() -> list[Case]:
    """Every case, in the file's order."""
    found = []
    for device, reference in DEVICES.items():
        burst = preset(device).organisation.burst_bytes
        kinds: list[tuple[str, str, int, float, str, int]] = [
            ("seq", "sequential", burst, 0, "all_bank", 0),
            ("rand", "random", burst, 0, "all_bank", 0),
            ("rand256", "random", 256, 0, "all_bank", 0),
            ("rand1k", "random", 1024, 0, "all_bank", 0),
            ("wr_rand", "random", burst, 1, "all_bank", 0),
            ("wr_rand1k", "random", 1024, 1, "all_bank", 0),
            ("mixed30_rand", "random", burst, 0.3, "all_bank", 0),
            ("mixed30_rand256", "random", 256, 0.3, "all_bank", 0),
            ("mixed50_seq", "sequential", burst, 0.5, "all_bank", 0),
            ("closed_rand", "random", burst, 0, "all_bank", 1),
            ("closed_rand256", "random", 256, 0, "all_bank", 1),
            ("closed4_mixed30_rand256", "random", 256, 0.3, "all_bank", 4),
        ]
        if reference.bank_refresh:
            kinds += [
                ("samebank_rand", "random", burst, 0, "same_bank", 0),
                ("samebank_rand256", "random", 256, 0, "same_bank", 0),
                ("samebank_mixed30_rand256", "random", 256, 0.3, "same_bank", 0),
            ]
        found += [Case(f"{device}_{kind}", device, *rest) for kind, *rest in kinds]
    return found


def measure(ramulator: Any, case: Case) -> dict[str, int]:
    """Ramulator's results of a case.

    Args:
        ramulator: Its module.
        case: What to run.
    """
    memory = Memory(preset(case.device), refresh_mode=case.refresh_mode, close_after=case.close_after)
    access = Access(case.pattern, case.run_bytes, write_share=case.write_share)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "requests.trace"
        write_trace(trace, memory.requests(access, REQUESTS, SEED), memory)
        stats = _stats(ramulator, case, trace)
    served = stats["num_read_reqs_served"] + stats["num_write_reqs_served"]
    return {name: served if name == "served" else stats[name] for name in RESULTS}


def _stats(ramulator: Any, case: Case, trace: Path) -> dict[str, int]:
    """Statistics of the controller after the trace."""
    reference = DEVICES[case.device]
    dram = getattr(ramulator.dram, reference.standard)(
        org_preset=reference.organisation, timing_preset=reference.timing, **dict(reference.changed)
    )
    refresh = reference.bank_refresh if case.refresh_mode == "same_bank" else "AllBank"
    rows = ramulator.row_policy
    controller = getattr(ramulator.controller, reference.controller)(
        dram=dram,
        scheduler=ramulator.scheduler.FRFCFS(),
        refresh_manager=getattr(ramulator.refresh_manager, refresh)(),
        row_policy=rows.ClosedCAP(cap=case.close_after) if case.close_after else rows.Open(),
        addr_mapper=ramulator.addr_mapper.RoBaRaCoCh(),
    )
    system = ramulator.memory_system.GenericDRAM(
        clock_ratio=1,
        controllers=[controller],
        channel_mapper=ramulator.channel_mapper.CacheLineInterleave(),
    )
    simulation = ramulator.Simulation(
        ramulator.frontend.LoadStoreTrace(clock_ratio=1, path=str(trace)), system
    )
    simulation.run()
    stats: dict[str, int] = simulation.stats["memory_system"]["controller"]
    return stats


def line(case: Case, results: dict[str, int]) -> dict[str, str]:
    """The case's line of the file."""
    columns = [entry.name for entry in fields(Case)]
    named = dict(zip(columns, astuple(case), strict=True)) | results
    return {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in named.items()}


def main() -> None:
    """Runs the cases and writes or compares them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("ramulator", type=Path, help="folder of a built checkout of Ramulator 2.1")
    parser.add_argument("--cases", default="", help="parts of names, with commas")
    parser.add_argument("--compare", action="store_true", help="compare with the file, write nothing")
    parser.add_argument("--output", type=Path, default=TABLE, help="file to write")
    options = parser.parse_args()
    module = options.ramulator / "python"
    if not list(module.glob("ramulator/_ramulator*")):
        parser.error(f"ramulator: {module}/ramulator has no _ramulator module; build it with its bindings.")
    chosen = [case for case in cases() if any(part in case.name for part in options.cases.split(","))]
    if not chosen:
        parser.error(f"--cases: no case has any of {options.cases} in its name.")
    if len(chosen) < len(cases()) and not options.compare and options.output == TABLE:
        parser.error("--cases: some of the cases would replace the whole file; give --compare or --output.")
    sys.path.insert(0, str(module))
    import ramulator

    known = {row["name"]: row for row in csv.DictReader(TABLE.read_text().splitlines())}
    lines, different = [], 0
    for case in chosen:
        lines.append(line(case, measure(ramulator, case)))
        same = lines[-1] == known.get(case.name)
        different += not same
        print(f"{case.name}: {lines[-1]['cycles']} clocks, {'as' if same else 'not as'} in the file")
    print(f"{len(lines) - different} of {len(lines)} cases as in {TABLE.name}")
    if options.compare:
        raise SystemExit(different > 0)
    with options.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
