"""Draws the pictures of docs/machines anew, from what was measured.

    python -m benchmarks.machines.render_pictures

Reads ndp_{map,orders,retiling}.json and pim_design_*.json in benchmarks/results/machines, as the programs
beside this file write them.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.machines import bench_ndp_map, bench_ndp_orders, bench_ndp_retiling
from benchmarks.pages import ROOT
from onehop.machines.common.report import plot_phases

NDP = {"map": bench_ndp_map.draw, "orders": bench_ndp_orders.draw, "retiling": bench_ndp_retiling.draw}
DESIGNS = ("arxiv", "proteins")


def draw_design(content: dict[str, Any], path: Path) -> None:
    """A bar of phases for each value of the machine."""
    bars = {
        f"{entry['name']}={entry['value']:g}": {name: ms * 1e6 for name, ms in entry["phases_ms"].items()}
        for entry in content["sweep"]
        if "phases_ms" in entry
    }
    machine = next(entry["machine"] for entry in content["sweep"] if "phases_ms" in entry)
    title = (
        f"{content['graph']['name']}, width {content['width']}, {content['dtype']}, published kernels: "
        "time of each phase, one value changed at a time"
    )
    plot_phases(bars, title, f"simulated: {machine}", path)


def main(root: Path = ROOT) -> None:
    """Reads and draws."""
    results, images = root / "benchmarks" / "results" / "machines", root / "docs" / "images"
    for name, draw in NDP.items():
        draw(json.loads((results / f"ndp_{name}.json").read_text()), images / f"ndp_{name}.png")
    for name in DESIGNS:
        content = json.loads((results / f"pim_design_{name}.json").read_text())
        draw_design(content, images / f"pim_design_{name}.png")


if __name__ == "__main__":
    main()
