"""``onehop reproduce``: the figures of four published works, compared with the published values."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from onehop import pictures
from onehop.bench.results import write_json
from onehop.bench.stamp import commit
from onehop.cli.console import output, progress
from onehop.cli.options import Json, Threads, place, set_threads
from onehop.errors import ArgumentError
from onehop.reproduce import ON_GPU, WORKS, fit as fitted, on_a_gpu, reproduce as computed
from onehop.reproduce.pictures import draw, draw_fit
from onehop.reproduce.tables import headlines, table


def _check_folder(option: str, path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise ArgumentError(f"{option}: expected a folder for the pictures, and {path} is a file.")
    # The name of the picture does not matter, because only the folder is checked.
    pictures.check(option, path / "picture.png")


Gpu = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Of io-aware, only the times on a GPU, from this file of make gpu (gpu.json)."
    ),
]


def reproduce(
    work: Annotated[str, typer.Argument(help=f"One of {', '.join(WORKS)}, or all.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller graphs and fewer rounds: a few minutes.")
    ] = False,
    fit: Annotated[
        bool,
        typer.Option("--fit", help="Search the one machine that is nearest to all headline figures instead."),
    ] = False,
    gpu: Gpu = None,
    threads: Threads = None,
    json: Json = None,
    plot: Annotated[
        Path | None, place("Write the pictures to this folder.", check=_check_folder, what="FOLDER")
    ] = None,
) -> None:
    """Computes the figures of a published work that can be had here, beside the published ones.

    Every row has the paper's value, ours, their ratio, an interval if something is not published, and one
    sentence on the difference. Rows that need a GPU or other hardware say so. "all" shows the headline
    figures of every work, each with a verdict. --fit shows one configuration for all headline figures of a
    simulated work, its largest error, and how far each unknown moves each figure.
    """
    if work not in (*WORKS, "all"):
        raise ArgumentError(f"work: expected one of {', '.join(WORKS)}, or all, got {work!r}.")
    if gpu is not None and (work != ON_GPU or fit or quick):
        raise ArgumentError(
            f"--gpu: expected {ON_GPU} without --fit and --quick, because it computes nothing."
        )
    set_threads(threads)
    commit()  # results name the commit that the run began with
    console = output()
    if fit:
        _fit(console, work, quick, json, plot)
        return
    works = []
    for name in WORKS if work == "all" else (work,):
        with progress(100, name) as bar:
            works.append(computed(name, quick, bar.share) if gpu is None else on_a_gpu(gpu))
    if work == "all" or gpu is not None:
        known = [{"work": each.work, **row.as_dict()} for each in works for row in each.rows if row.headline]
        console.print(headlines(known))
    else:
        console.print(works[0].source, markup=False)
        console.print(table([row.as_dict() for row in works[0].rows]))
    content = {"works": [each.as_dict() for each in works]} if work == "all" else works[0].as_dict()
    options = "".join([" --quick" if quick else "", "" if gpu is None else f" --gpu {gpu}"])
    write_json(json, f"reproduce {work}{options}", {"quick": quick, **content})
    if plot is not None:
        for file in [file for each in works for file in draw(each, plot)]:
            console.print(f"wrote {file}", markup=False)


def _fit(console: Console, work: str, quick: bool, json: Path | None, plot: Path | None) -> None:
    """Show the nearest configuration of a work."""
    with progress(100, f"{work}: nearest configuration") as bar:
        nearest = fitted(work, quick, bar.share)
    console.print(nearest.summary, markup=False)
    for each in nearest.tables():
        console.print(each)
    write_json(
        json, f"reproduce {work}{' --quick' if quick else ''} --fit", {"quick": quick, **nearest.as_dict()}
    )
    if plot is not None:
        path = plot / f"{work}_fit.png"
        draw_fit(nearest, path)
        console.print(f"wrote {path}", markup=False)
