"""The steps that all verbs of ``simulate`` share: values, the graph, the sweep, the results."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Generic, TypeVar

from rich.console import RenderableType

from onehop import datasets
from onehop.bench import graph_names, sources
from onehop.bench.results import write_json
from onehop.cli.arguments.experiment import OfGraphs, Shared
from onehop.cli.console import Bar, output, progress
from onehop.cli.simulate.values import Kinds, Values, assignment, told, variation
from onehop.errors import ArgumentError, ConfigurationError
from onehop.graph import Graph
from onehop.machines.common.report import plot_phases
from onehop.machines.common.trace import Trace
from onehop.tables import Column, Table

C = TypeVar("C")
G = TypeVar("G", covariant=True)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[G]):
    """A graph that a verb runs on.

    Attributes:
        graph: The graph's structure.
        source: The value of ``--graph``.
        name: The name of its data set.
        num_features: Columns of its own features; 0 if it has none.
        num_classes: Number of its classes; 0 if it has none.
    """

    graph: G
    source: str
    name: str
    num_features: int
    num_classes: int


def graph_facts(loaded: Loaded[Any], edges: float | None = None) -> dict[str, Any]:
    """Return ``graph`` for the JSON of every verb; ``edges`` is a sample's estimate, None for the count."""
    graph = loaded.graph
    nodes = graph.num_dst if isinstance(graph, Graph) else graph.num_nodes
    known = graph.num_edges if edges is None else edges
    return {"source": loaded.source, "name": loaded.name, "nodes": nodes, "edges": known}


def load_graph(source: str, options: Shared, bar: Bar) -> Loaded[Graph]:
    """Load the graph that ``--graph`` names; a twin's features are not generated.

    Raises:
        ArgumentError: The graph is unknown, or cannot be scaled.
    """
    found = sources.dataset(source, bar.share, options.seed, options.scale, features=False)
    columns = found.num_features
    if source.startswith(graph_names.TWIN):
        columns = datasets.num_features(source.removeprefix(graph_names.TWIN))
    bar.describe("building the graph")
    graph = Graph.from_edge_index(found.edge_index, num_nodes=found.num_nodes)
    return Loaded(graph, source, found.name, columns, found.num_classes)


def one_by_one(name: str, values: list[Any]) -> list[Values]:
    """Return the points of a sweep: one run per value."""
    return [{name: value} for value in values]


class Experiment(Generic[C]):
    """The cases that a verb runs, and the output of their results.

    Args:
        verb: The verb's name.
        case: The plan and the machine without ``--set``.
        kinds: The type of every value that can be set and varied, by name.
        change: Returns a case with other values.
        options: The options.
        points: Returns the points of a sweep, each with the varied value first.

    Attributes:
        values: The values of ``--set``.
        swept: The names of ``--sweep``.
        case: The case with the values of ``--set``.

    Raises:
        ArgumentError: A name is unknown, a value is of another type or out of range, or options exclude each
            other. All values are checked before anything runs.
    """

    def __init__(
        self,
        verb: str,
        case: C,
        kinds: Kinds,
        change: Callable[[C, Values], C],
        options: Shared,
        points: Callable[[str, list[Any]], list[Values]] = one_by_one,
    ) -> None:
        self._verb, self._options = verb, options
        self.values = dict(assignment(text, kinds) for text in options.settings or [])
        swept = [variation(text, kinds) for text in options.sweep or []]
        self.swept = [name for name, _ in swept]
        self.case = _named("set", partial(change, case, self.values))
        found = (
            [dict(zip(self.swept, pair, strict=True)) for pair in product(*(values for _, values in swept))]
            if options.grid
            else [point for name, values in swept for point in points(name, values)]
        )
        self._cases = [(point, _named("sweep", partial(change, self.case, point))) for point in found]

    def sweep(self, run: Callable[[C, Values], dict[str, Any]], bar: Bar) -> dict[str, Any]:
        """Run the sweep and return ``sweep`` or ``grid`` for the JSON, one line per case; {} without a sweep.

        ``run`` takes a case and its point, and returns the figures.
        """
        lines = []
        for number, (point, case) in enumerate(self._cases):
            bar.share(f"sweeping {', '.join(self.swept)}", number / len(self._cases))
            name, value = next(iter(point.items()))
            alone = {"name": name, "value": float(value) if type(value) is int else value}
            lines.append({**({"values": point} if self._options.grid else alone), **run(case, point)})
        return {"grid" if self._options.grid else "sweep": lines} if lines else {}

    def tables(self, content: Mapping[str, Any], columns: Iterable[Column]) -> list[Table]:
        """Return the sweep in ``content`` as tables for printing; an empty list without a sweep."""
        if "grid" in content:
            names = [Column(name.replace("_", " "), _value_of(name), told) for name in self.swept]
            return [Table([*names, *columns], content["grid"], "Grid")]
        if "sweep" not in content:
            return []
        varied = Column("varied", lambda line: line["name"].replace("_", " "), left=True)
        return [Table([varied, Column("value", "value", told), *columns], content["sweep"], "Sweep")]

    def finish(
        self,
        shown: Iterable[RenderableType],
        content: Mapping[str, Any],
        timeline: Callable[[], Trace] | None = None,
        picture: Callable[[], tuple[Mapping[str, Mapping[str, float]], str, str]] | None = None,
    ) -> None:
        """Print results, and write them to the files that the options name.

        Args:
            shown: Texts and tables, in order.
            content: The JSON.
            timeline: Makes the timeline; called only if ``--trace`` names a file.
            picture: Makes the bars of the picture, its title, and the machine's name.
        """
        console, options = output(), self._options
        if self.values:
            console.print("with " + ", ".join(f"{n}={told(v)}" for n, v in self.values.items()), markup=False)
            content = {**content, "set": self.values}
        write_json(options.json, f"simulate {self._verb}", content)
        for part in shown:
            console.print(part, markup=False)
        if options.trace is not None and timeline is not None:
            with progress(what="writing the timeline"):
                timeline().write(options.trace)
        if picture is not None and isinstance(options, OfGraphs) and options.plot is not None:
            bars, title, machine = picture()
            plot_phases(bars, title, f"simulated: {machine}", options.plot)


def _named(option: str, change: Callable[[], C]) -> C:
    """Return a case with other values; errors name the option that gave the values.

    Raises:
        OnehopError: A value is out of range, of the class that the case's own error has.
    """
    try:
        return change()
    except (ArgumentError, ConfigurationError) as error:
        raise type(error)(f"{option}: {str(error).removeprefix('plan: ')}") from error


def _value_of(name: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda line: line["values"][name]
