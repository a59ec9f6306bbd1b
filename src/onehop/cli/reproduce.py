"""``onehop reproduce``: the figures of four published works, beside the published values."""

from pathlib import Path
from typing import Annotated

import typer

from onehop import pictures
from onehop.bench.results import write_json
from onehop.cli.console import output, progress
from onehop.cli.options import Json, Threads, set_threads
from onehop.errors import ArgumentError
from onehop.reproduce import WORKS, reproduce as computed
from onehop.reproduce.pictures import draw
from onehop.reproduce.tables import table


def _folder(context: typer.Context, option: typer.CallbackParam, path: Path | None) -> Path | None:
    if path is not None and not context.resilient_parsing:
        if path.exists() and not path.is_dir():
            raise ArgumentError(f"{option.name}: expected a folder for the pictures, and {path} is a file.")
        # Any picture's name will do: what is checked is the folder.
        pictures.check(str(option.name), path / "picture.png")
    return path


def reproduce(
    work: Annotated[str, typer.Argument(help=f"One of {', '.join(WORKS)}.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller graphs and fewer rounds: a few minutes.")
    ] = False,
    threads: Threads = None,
    json: Json = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the pictures to this folder.", callback=_folder),
    ] = None,
) -> None:
    """Computes the figures of a published work that can be had here, beside the published ones.

    Every row has the paper's value, ours, their ratio, an interval where constants are assumed, and one
    sentence on the difference. What needs a GPU or other hardware says so.
    """
    if work not in WORKS:
        raise ArgumentError(f"work: expected one of {', '.join(WORKS)}, got {work!r}.")
    set_threads(threads)
    with progress(100, work) as bar:
        found = computed(work, quick, bar.share)
    console = output()
    console.print(found.source, markup=False)
    console.print(table([row.as_dict() for row in found.rows]))
    name = f"reproduce {work}{' --quick' if quick else ''}"
    write_json(json, name, {"quick": quick, **found.as_dict()})
    if plot is not None:
        for file in draw(found, plot):
            console.print(f"wrote {file}", markup=False)
