"""``onehop simulate gpu``: sectors that a GPU fetches from memory for the gathers of a sum."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import typer

from onehop.bench import sources
from onehop.cli.console import progress
from onehop.cli.options import command
from onehop.cli.simulate.experiment import Experiment, Shared, graph_facts, load_graph
from onehop.cli.simulate.values import Values, changed, kinds_of
from onehop.errors import ArgumentError, check_choice
from onehop.graph import Graph
from onehop.machines.gpu import MAPPINGS, ORDERS, Gpu, Kernel, gather, in_order, load, presets
from onehop.tables import Column, Table

_ITEM_BYTES = 4
_FIGURES = (
    Column("sectors fetched", "fetched", "{:,}"),
    Column("read", "read", "{:,}"),
    Column("different ones", "distinct", "{:,}"),
    Column("least time, us", "floor_us", "{:,.1f}"),
)


@dataclass(frozen=True, slots=True)
class _Case:
    """A kernel on a GPU; both mappings are run."""

    gpu: Gpu
    kernel: Kernel


@dataclass(frozen=True)
class Options(Shared):
    """Options of ``simulate gpu``."""

    graph: Annotated[str, typer.Option(help=sources.GRAPH_HELP)] = "twin:arxiv-communities"
    gpu: Annotated[str, typer.Option(help=f"{', '.join(presets())}, or a TOML file.")] = "a100_80gb"
    order: Annotated[str, typer.Option(help=f"Order of the nodes: one of {', '.join(ORDERS)}.")] = "own"


@command
def gpu(options: Options) -> None:
    """Count the sectors that a sum's gathers fetch from memory on a GPU, for both mappings of its lanes."""
    check_choice("order", options.order, ORDERS)
    if options.trace is not None:
        raise ArgumentError("trace: sectors are counted, and have no timeline; leave --trace away.")
    case = _Case(load(options.gpu), Kernel(MAPPINGS[0]))
    kinds = {name: kind for name, kind in kinds_of(case).items() if name != "mapping"}
    experiment = Experiment("gpu", case, kinds, changed, options)
    with progress(what="reading the graph") as bar:
        loaded = load_graph(options.graph, options, bar)
        bar.describe("ordering nodes")
        graph = in_order(loaded.graph, options.order)
        lines = list(_lines(experiment.case, graph, options.width))

        def swept(case: _Case, _: Values) -> dict[str, Any]:
            return {line.pop("mapping"): line for line in _lines(case, graph, options.width)}

        varied = experiment.sweep(swept, bar)
    title = f"{experiment.case.gpu.name}, {loaded.name}, {options.order} order, width {options.width}"
    content = {
        "graph": graph_facts(loaded),
        "asked": {"width": options.width, "order": options.order, **asdict(experiment.case)},
        "mappings": {line["mapping"]: line for line in lines},
        **varied,
    }
    columns = [Column(mapping, _fetched(mapping), "{:,}") for mapping in MAPPINGS]
    shown = Table([Column("mapping", "mapping", left=True), *_FIGURES], lines, title)
    experiment.finish([shown, *experiment.tables(content, columns)], content)


def _fetched(mapping: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda line: line[mapping]["fetched"]


def _lines(case: _Case, graph: Graph, width: int) -> Iterator[dict[str, Any]]:
    """Yield the figures of each mapping."""
    for mapping in MAPPINGS:
        kernel = replace(case.kernel, mapping=mapping)
        found = gather(graph, width * _ITEM_BYTES, kernel, case.gpu)
        yield {"mapping": mapping, **asdict(found), "floor_us": case.gpu.floor_us(found.fetched)}
