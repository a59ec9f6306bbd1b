"""``onehop reproduce``: the figures of four published works, compared with the published values."""

from pathlib import Path
from typing import Annotated

import typer

from onehop import pictures
from onehop.bench.results import write_json
from onehop.cli.console import output, progress
from onehop.cli.options import Json, Threads, place, set_threads
from onehop.errors import ArgumentError
from onehop.reproduce import WORKS, reproduce as computed
from onehop.reproduce.pictures import draw
from onehop.reproduce.tables import headlines, table


def _check_folder(option: str, path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise ArgumentError(f"{option}: expected a folder for the pictures, and {path} is a file.")
    # The name of the picture does not matter, because only the folder is checked.
    pictures.check(option, path / "picture.png")


def reproduce(
    work: Annotated[str, typer.Argument(help=f"One of {', '.join(WORKS)}, or all.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller graphs and fewer rounds: a few minutes.")
    ] = False,
    threads: Threads = None,
    json: Json = None,
    plot: Annotated[
        Path | None, place("Write the pictures to this folder.", check=_check_folder, what="FOLDER")
    ] = None,
) -> None:
    """Computes the figures of a published work that can be had here, beside the published ones.

    Every row has the paper's value, ours, their ratio, an interval if constants are assumed, and one sentence
    on the difference. Rows that need a GPU or other hardware say so. "all" shows the headline figures of
    every work, each with a verdict.
    """
    if work not in (*WORKS, "all"):
        raise ArgumentError(f"work: expected one of {', '.join(WORKS)}, or all, got {work!r}.")
    set_threads(threads)
    console = output()
    works = []
    for name in WORKS if work == "all" else (work,):
        with progress(100, name) as bar:
            works.append(computed(name, quick, bar.share))
    if work == "all":
        known = [{"work": each.work, **row.as_dict()} for each in works for row in each.rows if row.headline]
        console.print(headlines(known))
    else:
        console.print(works[0].source, markup=False)
        console.print(table([row.as_dict() for row in works[0].rows]))
    content = {"works": [each.as_dict() for each in works]} if work == "all" else works[0].as_dict()
    write_json(json, f"reproduce {work}{' --quick' if quick else ''}", {"quick": quick, **content})
    if plot is not None:
        for file in [file for each in works for file in draw(each, plot)]:
            console.print(f"wrote {file}", markup=False)
