"""The arguments of ``onehop ingest``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from onehop import sizes
from onehop.cli.choices import ID_DTYPES, WEIGHT_DTYPES
from onehop.cli.options import Common, Threads, checked, choice, command
from onehop.errors import ArgumentError


def read_nodes(name: str, text: str) -> int | tuple[int, int]:
    """Return the number of nodes of ``--nodes``, or the numbers of sources and destinations.

    Raises:
        ArgumentError: The text is neither one number nor two with a comma.
    """
    numbers = text.split(",")
    if len(numbers) > 2 or not all(number.strip().isdecimal() for number in numbers):
        raise ArgumentError(f"{name}: expected a number, or two with a comma, got {text!r}.")
    return int(numbers[0]) if len(numbers) == 1 else (int(numbers[0]), int(numbers[1]))


def read_memory(name: str, text: str) -> int:
    """Return the bytes of ``--memory``.

    Raises:
        ArgumentError: The text is not a size.
    """
    size = sizes.parsed(text)
    if size is None:
        raise ArgumentError(f"{name}: expected bytes, or a number with KiB, MiB or GiB, got {text!r}.")
    return size


@dataclass(frozen=True)
class Options(Common):
    """Makes a graph on disk of a file of edges that need not fit into memory.

    Edges are sorted by destination, and nodes are numbered; ids may be of any kind. An interrupted run
    resumes after its last finished step when the command is called again.
    """

    path: Annotated[Path, typer.Argument(metavar="FILE", help="Edges: Parquet, CSV, .npy or .bin.")]
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to make.")]
    source: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of sources; found by its name.")
    ] = None
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of destinations; found by its name.")
    ] = None
    weight: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of weights; a .npy file beside arrays.")
    ] = None
    edge_type: Annotated[
        str | None,
        typer.Option("--type", metavar="COLUMN", help="Column of types; a .npy file beside arrays."),
    ] = None
    nodes: Annotated[
        str | None,
        checked(
            read_nodes,
            "Ids are node numbers already: how many nodes, or SOURCES,DESTINATIONS.",
            metavar="N[,N]",
        ),
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
    dtype: Annotated[str, choice(ID_DTYPES, "Of a .bin file's numbers: ", metavar="DTYPE")] = "int64"
    weight_dtype: Annotated[str, choice(WEIGHT_DTYPES, "Of the stored weights: ", metavar="DTYPE")] = (
        "float32"
    )
    memory: Annotated[
        str | None,
        checked(
            read_memory, "Bytes it may take, as 4GiB; six tenths of what is free by default.", metavar="SIZE"
        ),
    ] = None
    threads: Threads = None

    def __post_init__(self) -> None:
        if not self.path.exists():
            raise ArgumentError(f"path: {self.path}: there is no such file.")


ingest = command(Options, "onehop.cli.ingest:ingest")
