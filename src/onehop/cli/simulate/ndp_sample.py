"""Estimates of ``onehop simulate ndp --sample``: graphs too large to be simulated whole."""

from typing import Any

from rich.console import Console

from onehop import datasets
from onehop.bench import tables
from onehop.cli.console import Bar
from onehop.cli.simulate.shared import graph_facts, load_graph
from onehop.datasets.implicit_graph import ImplicitGraph
from onehop.datasets.twins import too_large
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.self_loops import with_self_loops
from onehop.machines.ndp import Machine, NdpPlan, Sample, sampled_report

TWIN = "twin:"


def by_rows(source: str, scale: float) -> bool:
    """Return whether a graph is taken by rows: a twin that is too large to be made whole."""
    return source.startswith(TWIN) and scale == 1 and too_large(source.removeprefix(TWIN))


def load(
    source: str, seed: int, scale: float, self_loops: bool, bar: Bar
) -> tuple[Graph | ImplicitGraph, str, int, int]:
    """The graph that ``--graph`` names, its name, and its features and classes, 0 where it has none."""
    if by_rows(source, scale):
        bar.describe("drawing communities")
        name = source.removeprefix(TWIN)
        graph = datasets.implicit(name, seed, self_loops=self_loops)
        return graph, source, datasets.num_features(name), 0
    loaded = load_graph(source, seed, scale, bar)
    structure = with_self_loops(loaded.graph) if self_loops else loaded.graph
    return structure, loaded.name, loaded.num_features, loaded.num_classes


def run(
    hardware: Machine,
    graph: Graph | ImplicitGraph,
    widths: list[int],
    plan: NdpPlan,
    sample: Sample,
    called: tuple[str, str],
    bar: Bar,
) -> dict[str, Any]:
    """The estimates, ready for JSON; ``called`` is what ``--graph`` said, and the graph's name."""
    found = hardware.sampled(graph, widths, plan, sample, bar.share)
    content = sampled_report(found)
    nodes = graph.num_dst if isinstance(graph, Graph) else graph.num_nodes
    edges = {key: value for key, value in content["layers"][0].items() if key.startswith("edges")}
    facts = {**graph_facts(*called, nodes, edges["edges"]), **edges}
    return {**content, "graph": facts, "machine": hardware.config.to_toml()}


def refuse(asked: dict[str, bool]) -> None:
    """Refuses options that need the whole graph.

    Args:
        asked: By option, whether it was given.

    Raises:
        ArgumentError: One was.
    """
    for option, given in asked.items():
        if given:
            raise ArgumentError(
                f"sample, {option}: a sample estimates times, gains and shared reads, and {option} needs the "
                f"whole graph; leave --{option} or --sample away."
            )


def show(console: Console, hardware: Machine, content: dict[str, Any]) -> None:
    """Prints the estimates, a line for each mapping of each layer."""
    graph, sample = content["graph"], content["sample"]
    console.print(hardware.describe())
    known = "" if graph["edges_low"] == graph["edges_high"] else "about "
    console.print(f"{graph['nodes']:,} nodes, {known}{round(graph['edges']):,} edges")
    table = tables.table(
        f"Milliseconds, from {sample['runs']} runs of windows; {100 * sample['confidence']:g} % intervals"
    )
    for heading in (
        "layer",
        "width",
        "mapping",
        "order",
        "time",
        "interval",
        "bound",
        "windows",
        "simulated",
    ):
        table.add_column(heading, justify="right")
    for number, layer in enumerate(content["layers"], start=1):
        for name, each in layer["candidates"].items():
            table.add_row(
                str(number),
                str(layer["width"]),
                f"[bold]{name}[/bold]" if name == layer["mapping"] else name,
                each["host_order"],
                f"{each['time_ms']:.3f}",
                f"{each['time_ms_low']:.3f} to {each['time_ms_high']:.3f}",
                f"{each['bound_ms']:.3f}",
                f"{each['windows']:,}",
                f"{each['simulated']:,}",
            )
    console.print(table)
    console.print(f"time                 {_ends(content, 'time_ms', 3)} ms")
    console.print(f"over the host        {_ends(content, 'speedup_over_baseline', 3)}")
    console.print(f"over the best prior  {_ends(content, 'speedup_over_prior', 3)}")
    for number, layer in enumerate(content["layers"], start=1):
        shared = _ends(layer, "read_reduction_percent", 4)
        console.print(f"reads that tiles save in layer {number}: {shared} %")


def _ends(content: dict[str, Any], name: str, digits: int) -> str:
    value, low, high = (content[name + end] for end in ("", "_low", "_high"))
    return f"{value:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"
