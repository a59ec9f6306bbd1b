"""Estimates of ``onehop simulate ndp --sample``, for graphs too large to be simulated as a whole."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rich.console import RenderableType

from onehop import datasets
from onehop.bench.graph_names import TWIN
from onehop.cli.arguments.experiment import OfGraphs
from onehop.cli.console import Bar
from onehop.cli.simulate.experiment import Loaded, graph_facts, load_graph
from onehop.datasets.implicit_graph import ImplicitGraph
from onehop.datasets.twins import too_large
from onehop.graph import Graph
from onehop.graph.self_loops import with_self_loops
from onehop.machines.ndp import Machine, NdpPlan, Sample, sampled_report
from onehop.tables import Column, Table


def by_rows(options: OfGraphs) -> bool:
    """Return whether a graph is computed row by row: a twin that is too large to be generated as a whole."""
    source = options.graph
    return source.startswith(TWIN) and options.scale == 1 and too_large(source.removeprefix(TWIN))


def load(options: OfGraphs, self_loops: bool, bar: Bar) -> Loaded[Graph | ImplicitGraph]:
    """Load the graph that ``--graph`` names."""
    if by_rows(options):
        bar.describe("drawing communities")
        name = options.graph.removeprefix(TWIN)
        graph = datasets.implicit(name, options.seed, self_loops=self_loops)
        return Loaded(graph, options.graph, options.graph, datasets.num_features(name), 0)
    loaded = load_graph(options.graph, options, bar)
    return replace(loaded, graph=with_self_loops(loaded.graph)) if self_loops else loaded


def run(
    hardware: Machine,
    loaded: Loaded[Graph | ImplicitGraph],
    widths: list[int],
    plan: NdpPlan,
    sample: Sample,
    bar: Bar,
) -> dict[str, Any]:
    """Return the estimates, ready for JSON."""
    content = sampled_report(hardware.sampled(loaded.graph, widths, plan, sample, bar.share))
    edges = {key: value for key, value in content["layers"][0].items() if key.startswith("edges")}
    facts = {**graph_facts(loaded, edges["edges"]), **edges}
    return {**content, "graph": facts, "machine": hardware.config.to_toml()}


def shown(hardware: Machine, content: dict[str, Any]) -> Iterator[RenderableType]:
    """Yield the estimates for printing: a line for each mapping of each layer, and then all layers."""
    graph, sample, layers = content["graph"], content["sample"], content["layers"]
    known = "" if graph["edges_low"] == graph["edges_high"] else "about "
    yield hardware.describe()
    yield f"{graph['nodes']:,} nodes, {known}{round(graph['edges']):,} edges"
    rows = [
        {"number": number, "layer": layer, "name": name, **candidate}
        for number, layer in enumerate(layers, start=1)
        for name, candidate in layer["candidates"].items()
    ]
    title = f"Milliseconds, from {sample['runs']} runs of windows; {100 * sample['confidence']:g} % intervals"
    yield Table(_COLUMNS, rows, title)
    yield f"time                 {_ends(content, 'time_ms', 3)} ms"
    yield f"over the host        {_ends(content, 'speedup_over_baseline', 3)}"
    yield f"over the best prior  {_ends(content, 'speedup_over_prior', 3)}"
    for number, layer in enumerate(layers, start=1):
        yield f"reads that tiles save in layer {number}: {_ends(layer, 'read_reduction_percent', 4)} %"


_COLUMNS = (
    Column("layer", "number"),
    Column("width", lambda row: row["layer"]["width"]),
    Column("mapping", "name", style=lambda row: "bold" if row["name"] == row["layer"]["mapping"] else ""),
    Column("order", "host_order"),
    Column("time", "time_ms", "{:.3f}"),
    Column("interval", lambda row: f"{row['time_ms_low']:.3f} to {row['time_ms_high']:.3f}"),
    Column("bound", "bound_ms", "{:.3f}"),
    Column("windows", "windows", "{:,}"),
    Column("simulated", "simulated", "{:,}"),
)


def _ends(content: dict[str, Any], name: str, digits: int) -> str:
    value, low, high = (content[name + end] for end in ("", "_low", "_high"))
    return f"{value:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"
