"""``onehop simulate gpu``: sectors that a GPU fetches from memory for the gathers of a sum."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from onehop.cli.arguments.simulate import Gpu as Options
from onehop.cli.console import progress
from onehop.cli.simulate.experiment import Experiment, graph_facts, load_graph
from onehop.cli.simulate.values import Values, changed, kinds_of
from onehop.graph import Graph
from onehop.machines.gpu import MAPPINGS, Gpu, Kernel, gather, in_order, load
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


def gpu(options: Options) -> None:
    """Count the sectors of ``onehop simulate gpu``; see :class:`Options`."""
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
