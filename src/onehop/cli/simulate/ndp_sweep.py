"""Sweeps of ``onehop simulate ndp``: tiles, or a value of the machine."""

from dataclasses import fields, replace
from typing import Any

from rich.table import Table

from onehop.cli.console import Bar
from onehop.cli.simulate.shared import Points, sweep_table, whole
from onehop.graph import Graph
from onehop.machines.ndp import LayerOutcome, Machine
from onehop.machines.ndp.outcome import gain
from onehop.machines.ndp.sections import Control, Host, Module, Topology
from onehop.plans.ndp import NdpPlan

_SECTIONS = {"topology": Topology, "module": Module, "host": Host, "control": Control}
# The section of each key of the machine that is a number, and its type.
_KEYS = {
    entry.name: (section, entry.type)
    for section, kind in _SECTIONS.items()
    for entry in fields(kind)
    if entry.type in (int, float)
}
NAMES = ("tile", *_KEYS)


def machines(hardware: Machine, points: Points) -> dict[tuple[str, float], Machine]:
    """The machines of a sweep; made first, so that a bad value is told before anything runs.

    Raises:
        ArgumentError: A value that has to be an integer is none.
        ConfigurationError: A value is out of range.
    """
    made = {}
    for name, values in points:
        for value in values:
            if name in _KEYS:
                section, kind = _KEYS[name]
                made[name, value] = hardware.change(
                    **{section: {name: whole(name, value) if kind is int else value}}
                )
            else:
                replace(NdpPlan(), tile=whole(name, value))
    return made


def run(
    hardware: Machine, graph: Graph, widths: list[int], plan: NdpPlan, points: Points, bar: Bar
) -> list[dict[str, Any]]:
    """A line for each value; of a tile four: re-tiled and not, with and without broadcasting."""
    changed = machines(hardware, points)
    lines: list[dict[str, Any]] = []
    total = sum(len(values) for _, values in points)
    for name, values in points:
        for value in values:
            bar.share(f"sweeping {name}", min(len(lines) / total, 1))
            if name == "tile":
                continue
            found = changed[name, value].layers(graph, widths, plan, record=0)
            lines.append({"name": name, "value": value, **_figures(found)})
        if name == "tile":
            lines += _tiles(hardware, graph, widths, plan, [int(value) for value in values], bar)
    return lines


def table(lines: list[dict[str, Any]]) -> Table:
    """The lines as they are printed: the milliseconds of every mapping, and of the chosen ones."""
    mappings = list(dict.fromkeys(name for line in lines for name in line["candidates_ms"]))
    return sweep_table(
        ("tiles", "broadcast", "reads saved", *mappings, "chosen", "over the host", "over prior"),
        ((line["name"], line["value"], _cells(line, mappings)) for line in lines),
    )


def _cells(line: dict[str, Any], mappings: list[str]) -> list[str]:
    """The cells of a line; those of tiles are empty where these are not varied."""
    tiles = ["", "", ""]
    if line["name"] == "tile":
        broadcast = "on" if line["broadcast"] else "off"
        tiles = [line["retile"], broadcast, f"{line['read_reduction_percent']:.2f} %"]
    times = line["candidates_ms"]
    every = [f"{times[name]:.3f}" if name in times else "-" for name in mappings]
    gains = [f"{line[f'speedup_over_{name}']:.2f}x" for name in ("baseline", "prior")]
    return [*tiles, *every, f"{line['time_ms']:.3f}", *gains]


def _tiles(
    hardware: Machine, graph: Graph, widths: list[int], plan: NdpPlan, tiles: list[int], bar: Bar
) -> list[dict[str, Any]]:
    """Times of all mappings over tiles, orders and broadcasting, and what tiling saves."""
    lines = []
    for retile in ("index", "rows"):
        for number, tile in enumerate(tiles):
            bar.share(f"sweeping tiles, {retile}", number / len(tiles))
            reduction = hardware.workload(graph, replace(plan, retile=retile)).read_reduction_percent(tile)
            for broadcast in (True, False):
                tried = replace(plan, retile=retile, tile=tile, broadcast=broadcast, mapping="adaptive")
                found = hardware.layers(graph, widths, tried, record=0)
                lines.append(
                    {
                        "name": "tile",
                        "value": tile,
                        "retile": retile,
                        "tile": tile,
                        "broadcast": broadcast,
                        "read_reduction_percent": reduction,
                        **_figures(found),
                    }
                )
    return lines


def _figures(found: list[LayerOutcome]) -> dict[str, Any]:
    """Times over all layers."""
    times: dict[str, float] = {}
    for one in found:
        for name, time in one.candidates_ms().items():
            times[name] = times.get(name, 0.0) + time
    total = sum(one.time_ns for one in found)
    return {
        "time_ms": total / 1e6,
        "mappings": [one.run.mapping for one in found],
        "candidates_ms": times,
        "speedup_over_baseline": gain(sum(one.baseline.time_ns for one in found), total),
        "speedup_over_prior": gain(sum(one.best_prior.serial_ns for one in found), total),
    }
