"""``onehop ingest``: a graph on disk from a file of edges that may be larger than memory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from onehop import sizes
from onehop.bench.results import write_json
from onehop.cli.console import output, progress
from onehop.cli.options import Json, Threads, command, set_threads
from onehop.errors import ArgumentError
from onehop.streaming import ingest as make


@dataclass(frozen=True)
class Options:
    """Options of ``ingest``."""

    path: Annotated[Path, typer.Argument(metavar="FILE", help="Edges: Parquet, CSV, .npy or .bin.")]
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to make.")]
    source: Annotated[str | None, typer.Option(help="Column of sources; found by its name.")] = None
    target: Annotated[str | None, typer.Option(help="Column of destinations; likewise.")] = None
    weight: Annotated[str | None, typer.Option(help="Column of weights; a .npy file beside arrays.")] = None
    edge_type: Annotated[str | None, typer.Option("--type", help="Column of types; likewise.")] = None
    nodes: Annotated[
        str | None,
        typer.Option(help="Ids are node numbers already: how many nodes, or SOURCES,DESTINATIONS."),
    ] = None
    bipartite: Annotated[bool, typer.Option(help="Number sources and destinations apart.")] = False
    text_ids: Annotated[bool, typer.Option(help="Take ids as text.")] = False
    delimiter: Annotated[
        str | None,
        typer.Option(help="Between the columns of a text file; by default that of its name's ending."),
    ] = None
    header: Annotated[
        bool | None, typer.Option(help="Whether the first line of a text file names the columns.")
    ] = None
    dtype: Annotated[str, typer.Option(help="Of a .bin file's numbers.")] = "int64"
    weight_dtype: Annotated[str, typer.Option(help="Of the stored weights.")] = "float32"
    memory: Annotated[
        str | None, typer.Option(help="Bytes it may take, as 4GiB; six tenths of what is free by default.")
    ] = None
    threads: Threads = None
    json: Json = None


@command
def ingest(options: Options) -> None:
    """Makes a graph on disk of a file of edges that need not fit into memory.

    Edges are sorted by destination, and nodes are numbered; ids may be of any kind. An interrupted run
    resumes after its last finished step when the command is called again.
    """
    set_threads(options.threads)
    given = vars(options).copy()
    for name in ("path", "out", "threads", "json"):
        del given[name]
    given["nodes"] = None if options.nodes is None else _nodes(options.nodes)
    given["memory"] = None if options.memory is None else _bytes(options.memory)
    with progress() as bar:
        graph = make(options.path, options.out, **given, progress=bar.share)
    files = sorted(file.name for file in options.out.iterdir())
    output().print(f"{graph}\nfiles: {', '.join(files)}", markup=False, soft_wrap=True)
    counts = {"num_src": graph.num_src, "num_dst": graph.num_dst, "num_edges": graph.num_edges}
    write_json(options.json, "ingest", {"folder": str(options.out), **counts, "files": files})


def _nodes(text: str) -> int | tuple[int, int]:
    numbers = text.split(",")
    if len(numbers) > 2 or not all(number.strip().isdecimal() for number in numbers):
        raise ArgumentError(f"nodes: expected a number, or two with a comma, got {text!r}.")
    return int(numbers[0]) if len(numbers) == 1 else (int(numbers[0]), int(numbers[1]))


def _bytes(text: str) -> int:
    size = sizes.parsed(text)
    if size is None:
        raise ArgumentError(f"memory: expected bytes, or a number with KiB, MiB or GiB, got {text!r}.")
    return size
