"""Common arguments of the commands of ``onehop simulate``, and the group of the commands."""

from dataclasses import dataclass
from typing import Annotated

import typer

from onehop.bench import graph_names
from onehop.cli.groups import group
from onehop.cli.options import Common, Plot, Scale, Seed, Threads, Timeline, Width, named_graph
from onehop.errors import ArgumentError

app = group("Runs a graph on a simulated machine: the true result, and where time and energy go.")
DEFAULT_GRAPH = "twin:arxiv-communities"


@dataclass(frozen=True)
class Shared(Common):
    """Options of every command; each command's own options are in a subclass.

    Raises:
        ArgumentError: Options exclude each other.
    """

    scale: Scale = 1.0
    width: Width = 256
    seed: Seed = 0
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Another value of the plan or the machine; a wrong NAME is answered with all of them.",
        ),
    ] = None
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=A:B[:N]|A,B,...",
            help="Vary a value, each by itself: A:B is A, 2A, 4A, ... and B; A:B:N is N values from A to B.",
        ),
    ] = None
    grid: Annotated[
        bool, typer.Option("--grid", help="Vary the values of two --sweep together, every pair.")
    ] = False
    trace: Timeline = None

    def __post_init__(self) -> None:
        varied, fixed = _names(self.sweep), _names(self.settings)
        if varied and self.trace is not None:
            raise ArgumentError("trace: a sweep has no timeline; leave --trace or --sweep away.")
        if self.grid and (len(varied) != 2 or varied[0] == varied[1]):
            raise ArgumentError(
                "grid: expected two --sweep of different names, whose values are combined, got "
                f"{', '.join(varied) or 'none'}."
            )
        for name in fixed:
            if name in varied:
                raise ArgumentError(f"set, sweep: {name} is given by both; leave one of them away.")


def _names(texts: list[str] | None) -> list[str]:
    return [text.partition("=")[0] for text in texts or []]


@dataclass(frozen=True)
class OfGraphs(Shared):
    """Options of commands that run a graph and draw the phases of its time."""

    graph: Annotated[str, named_graph()] = DEFAULT_GRAPH
    threads: Threads = None
    plot: Plot = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_scale(self.graph, self.scale)


def check_scale(graph: str | None, scale: float) -> None:
    """Raise if a graph that is no twin is to be scaled.

    Raises:
        ArgumentError: The graph cannot be scaled.
    """
    if graph is not None and scale != 1 and not graph.startswith(graph_names.TWIN):
        raise ArgumentError(
            f"scale: only twins can be scaled, and {graph!r} is none; leave --scale away or name a twin."
        )
