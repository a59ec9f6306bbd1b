"""Draws sweeps that ``onehop simulate pim --sweep ... --json FILE`` wrote, those of one graph in one picture.

    python benchmarks/machines/bench_pim_design.py SWEEP.json [SWEEP.json ...] --json FILE --plot FILE

The JSON file holds all entries, as the command wrote them.
"""

import argparse
import json
from pathlib import Path

from onehop.bench.report import write_json
from onehop.machines.report import Report, plot_phases


def main() -> None:
    """Reads, joins, draws."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweeps", type=Path, nargs="+")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--plot", type=Path, required=True)
    options = parser.parse_args()
    found = [json.loads(path.read_text()) for path in options.sweeps]
    entries = [entry for each in found for entry in each["sweep"]]
    reports = {
        f"{entry['name']}={entry['value']:g}": Report(
            machine=entry["machine"],
            phases_ns={phase: ms * 1e6 for phase, ms in entry["phases_ms"].items()},
            bytes={},
            energy_nj={},
        )
        for entry in entries
        if "phases_ms" in entry
    }
    plot_phases(reports, options.plot)
    write_json(options.json, "onehop simulate pim --sweep", {**found[0], "sweep": entries})


if __name__ == "__main__":
    main()
