"""Options and steps that the verbs of ``simulate`` share: the graph, and the points of a sweep."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from onehop import datasets
from onehop.bench import sources, tables
from onehop.cli.console import Bar
from onehop.errors import ArgumentError
from onehop.graph import Graph

Source = Annotated[str, typer.Option("--graph", help=sources.GRAPH_HELP)]
Sweep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=A:B|A,B,...",
        help="Vary a value, each by itself: A:B is A, 2A, 4A, ... and B. The machines' pages list the names.",
    ),
]


# A name and its values, for each --sweep.
Points = list[tuple[str, list[float]]]


@dataclass(frozen=True)
class Loaded:
    """A graph that a verb runs on.

    Attributes:
        graph: Its structure.
        name: Name of its data set.
        num_features: Columns of its own features; 0 where it has none.
        num_classes: Its classes; 0 where it has none.
    """

    graph: Graph
    name: str
    num_features: int
    num_classes: int


def load_graph(source: str, seed: int, scale: float, bar: Bar) -> Loaded:
    """The graph that ``--graph`` names; a twin's features are not drawn.

    Args:
        source: A file, ``pyg:NAME``, ``ogb:NAME`` or ``twin:NAME``.
        seed: Of a twin.
        scale: Multiplies a twin's nodes and edges.
        bar: Told how far it is.

    Raises:
        ArgumentError: The graph is unknown, or cannot be scaled.
    """
    if source.startswith("twin:"):
        found = datasets.load(source, seed, scale, progress=bar.share, features=False)
        columns = datasets.num_features(source.removeprefix("twin:"))
    elif scale != 1:
        raise ArgumentError(
            f"scale: only twins can be scaled, and {source!r} is none; leave --scale away or name a twin."
        )
    else:
        found = sources.dataset(source, bar.share)
        columns = found.num_features
    bar.describe("building the graph")
    graph = Graph.from_edge_index(found.edge_index, num_nodes=found.num_nodes)
    return Loaded(graph, found.name, columns, found.num_classes)


def graph_facts(source: str, name: str, nodes: int, edges: float) -> dict[str, Any]:
    """``graph`` of the JSON of every verb.

    Args:
        source: What ``--graph`` said.
        name: Name of the data set.
        nodes: Nodes.
        edges: Edges that the verb ran on; of a sample, an estimate.
    """
    return {"source": source, "name": name, "nodes": nodes, "edges": edges}


def sweep_points(text: str, allowed: Sequence[str]) -> tuple[str, list[float]]:
    """The name and the values of a ``--sweep``.

    Args:
        text: ``NAME=A:B``, which is A, 2A, 4A, ... and B; or ``NAME=A,B,...``.
        allowed: Names that can be varied.

    Raises:
        ArgumentError: Not of this form, or another name.
    """
    name, equals, values = text.partition("=")
    if not equals or name not in allowed:
        raise ArgumentError(
            f"sweep: expected NAME=A:B or NAME=A,B,... with a NAME of {', '.join(allowed)}; got {text!r}."
        )
    try:
        if ":" in values:
            low, high = (float(each) for each in values.split(":"))
            if not 0 < low <= high < math.inf:
                raise ValueError
            doublings = math.ceil(math.log2(high / low) - 1e-9)
            return name, [*(low * 2**i for i in range(doublings)), high]
        return name, [float(each) for each in values.split(",")]
    except ValueError as error:
        raise ArgumentError(
            f"sweep: expected numbers A:B with 0 < A <= B, or A,B,..., got {values!r}."
        ) from error


def sweep_table(headings: Sequence[str], rows: Iterable[tuple[str, float, Sequence[str]]]) -> Table:
    """A sweep as it is printed: a row for each value.

    Args:
        headings: Of the verb's own columns.
        rows: The name that is varied, its value, and the cells of the verb's own columns.
    """
    found = tables.table("Sweep")
    found.add_column("varied")
    for heading in ("value", *headings):
        found.add_column(heading, justify="right")
    for name, value, cells in rows:
        found.add_row(name.replace("_", " "), f"{value:g}", *cells)
    return found


def whole(name: str, value: float) -> int:
    """A value of a sweep that has to be an integer.

    Raises:
        ArgumentError: It is none.
    """
    if not value.is_integer():
        raise ArgumentError(f"sweep: expected integers for {name}, got {value:g}.")
    return int(value)


def no_timeline(sweep: list[str] | None, trace: Path | None) -> None:
    """Refuses a timeline of a sweep.

    Raises:
        ArgumentError: Both were given.
    """
    if sweep and trace is not None:
        raise ArgumentError("trace: a sweep has no timeline; leave --trace or --sweep away.")
