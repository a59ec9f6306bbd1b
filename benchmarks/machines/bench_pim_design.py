"""What would help near-bank hardware most: other values of the machine, one at a time.

    python -m benchmarks.machines.bench_pim_design [--graphs proteins,arxiv] [--scale 1]
        [--folder benchmarks/results/machines] [--plots docs/images]

Runs ``onehop simulate pim --published --sweep ...`` for each graph, with published kernels and plans that are
tuned anew for each machine; writes pim_design_GRAPH.json and a plot of the phases.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from onehop.bench import command
from onehop.bench.results import write_json

SWEEPS = (
    "cores=249:1992",
    "clock_mhz=350:1400",
    "multiply_instructions=1",
    "host_links=2,4,8",
    "merge_speed=2,4,16",
    "core_to_core_gbps=20,100",
)


def main() -> None:
    """Runs, and writes everything."""
    parser = command.parser(__doc__, json=False)
    parser.add_argument("--graphs", type=command.names, default="proteins,arxiv")
    parser.add_argument("--scale", default="1")
    parser.add_argument("--folder", type=Path, default=Path("benchmarks/results/machines"))
    parser.add_argument("--plots", type=Path, default=Path("docs/images"))
    options = command.read(parser)
    sweeps = [word for sweep in SWEEPS for word in ("--sweep", sweep)]
    for graph in options.graphs:
        plot = options.plots / f"pim_design_{graph}.png"
        asked = ["simulate", "pim", "--graph", f"twin:{graph}", "--scale", options.scale, "--published"]
        asked += sweeps
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "sweep.json"
            program = [sys.executable, "-m", "onehop", *asked, "--plot", str(plot), "--json", str(file)]
            subprocess.run(program, check=True)
            found = json.loads(file.read_text())
        write_json(options.folder / f"pim_design_{graph}.json", " ".join(["onehop", *asked]), found)


if __name__ == "__main__":
    main()
