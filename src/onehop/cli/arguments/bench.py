"""The arguments of ``onehop bench``."""

from dataclasses import dataclass
from math import inf
from typing import Annotated

import typer

from onehop.bench import graph_names
from onehop.bench.lists import graph_sizes, numbers
from onehop.cli import choices
from onehop.cli.groups import Verb, group
from onehop.cli.options import (
    Common,
    PartsPlot,
    Plot,
    Rounds,
    Threads,
    checked,
    command,
    named_graphs,
    named_structure,
    several,
    several_numbers,
)
from onehop.errors import ArgumentError

app = group("Measures against peers in the same process, in turns, results checked first.")


def _check_row_lengths(name: str, text: str) -> None:
    for width in numbers(name, text):
        if width % choices.ROW_MULTIPLE:
            raise ArgumentError(f"{name}: expected multiples of {choices.ROW_MULTIPLE}, got {width}.")


def _check_positive(name: str, value: float) -> None:
    unit = {"rate": "requests a second", "seconds": "s"}[name]
    if not 0 < value < inf:
        raise ArgumentError(f"{name}: expected a number above 0 ({unit}), got {value:g}.")


@dataclass(frozen=True)
class Ops(Common):
    """Time operators in float32: sum, weighted sum, mean, max, min, and sum with its backward pass."""

    graphs: Annotated[str, named_graphs()] = ",".join(graph_names.BENCHMARK_GRAPHS)
    widths: Annotated[str, several_numbers("Feature columns, with commas.")] = ",".join(
        map(str, choices.OPERATION_WIDTHS)
    )
    cases: Annotated[str, several(choices.OPERATIONS, "With commas, or all: ")] = "all"
    against: Annotated[str, several(choices.OPERATION_PEERS, "With commas, or all: ", "--peers")] = "all"
    rounds: Rounds = 7
    threads: Threads = None
    plot: Plot = None


@dataclass(frozen=True)
class Models(Common):
    """Time whole training epochs (forward, backward, Adam) of PyG models; losses are compared first.

    The first models of the list are published, and trained as their authors do; the others have two layers
    and no dropout.
    """

    graphs: Annotated[
        str | None,
        named_graphs(
            f"With commas: {graph_names.HELP} By default published models have their own, the others "
            f"{', '.join(f'{graph_names.TWIN}{name}' for name in graph_names.BENCHMARK_GRAPHS)}."
        ),
    ] = None
    model_names: Annotated[str, several(choices.MODELS, "With commas, or all: ", "--models", "--model")] = (
        ",".join(choices.PUBLISHED_MODELS)
    )
    hidden: Annotated[
        str | None,
        several_numbers("Widths between the layers, with commas; by default the authors', or 32,128."),
    ] = None
    ablation: Annotated[str, several(choices.ABLATIONS, "With commas: ", can_be_empty=True)] = ""
    further: Annotated[
        str, several(choices.VARIANTS, "Further ways, with commas: ", "--variants", can_be_empty=True)
    ] = ""
    against: Annotated[
        str, several(choices.MODEL_PEERS, "With commas, or all: ", "--peers", can_be_empty=True)
    ] = "all"
    rounds: Rounds = 3
    threads: Threads = None
    plot: Plot = None
    parts_plot: PartsPlot = None


@dataclass(frozen=True)
class Limits(Common):
    """Measure memory bandwidth, an upper limit for aggregation: streaming, and random rows by length."""

    widths: Annotated[
        str,
        checked(
            _check_row_lengths,
            "Row lengths in float32, multiples of 16, with commas.",
            metavar="NUMBERS",
        ),
    ] = ",".join(map(str, choices.ROW_FLOATS))
    graph: Annotated[
        str | None,
        named_structure("Also gather in this graph's own order, and aggregate: as one of --graphs."),
    ] = None
    megabytes: Annotated[
        int | None, typer.Option(help="Size of buffers; by default sixteen times the last cache.", min=1)
    ] = None
    rounds: Rounds = 7
    threads: Threads = None
    plot: Plot = None


@dataclass(frozen=True)
class Serve(Common):
    """Time PyG models on the CPU, with a new graph per request: latencies at a rate, and requests per second.

    Worker processes answer one request at a time under torch.inference_mode(), alternately with PyG alone and
    with onehop.patch(). Latencies count from the arrival of a request, so they include waiting time.
    """

    model_names: Annotated[
        str, several(choices.SERVED_MODELS, "With commas, or all: ", "--models", "--model")
    ] = "all"
    sizes: Annotated[
        str,
        checked(graph_sizes, "Nodes and edges of a request's graph, with commas.", metavar="NODES:EDGES,..."),
    ] = ",".join(f"{nodes}:{edges}" for nodes, edges in choices.REQUEST_SIZES)
    rate: Annotated[
        float | None,
        checked(_check_positive, "Requests that arrive in a second; half of what PyG can answer by default."),
    ] = None
    processes: Annotated[
        int | None, typer.Option(help="Worker processes; one a core, at most 2, by default.", min=1)
    ] = None
    threads: Annotated[int, typer.Option(help="Threads of each worker process.", min=1)] = 1
    seconds: Annotated[float, checked(_check_positive, "About how long each measurement lasts.")] = 0.3
    seed: Annotated[int, typer.Option(help="Of parameters, requests and arrivals.", min=0)] = 0
    rounds: Rounds = 3
    plot: Plot = None


for name, options in {"ops": Ops, "models": Models, "limits": Limits, "serve": Serve}.items():
    app.command(name, cls=Verb)(command(options, f"onehop.cli.bench:bench_{name}"))
