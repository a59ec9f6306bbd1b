"""The arguments of ``onehop reproduce``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from onehop import pictures
from onehop.cli.choices import FITTED_WORKS, WORK_ON_GPU, WORKS
from onehop.cli.options import Common, Threads, check_file, command, place
from onehop.errors import ArgumentError


def _check_work(name: str, work: str) -> None:
    if work not in (*WORKS, "all"):
        raise ArgumentError(f"{name}: expected one of {', '.join(WORKS)}, or all, got {work!r}.")


def _check_folder(option: str, path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise ArgumentError(f"{option}: expected a folder for the pictures, and {path} is a file.")
    # The name of the picture does not matter, because only the folder is checked.
    pictures.check(option, path / "picture.png")


@dataclass(frozen=True)
class Options(Common):
    """Computes the figures of a published work that can be had here, beside the published ones.

    Every row has the paper's value, ours, their ratio, an interval if something is not published, and one
    sentence on the difference. Rows that need a GPU or other hardware say so. "all" shows the headline
    figures of every work, each with a verdict. --fit shows one configuration for all headline figures of a
    simulated work, its largest error, and how far each unknown moves each figure.
    """

    work: Annotated[str, typer.Argument(metavar="WORK", help=f"One of {', '.join(WORKS)}, or all.")]
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller graphs and fewer rounds: a few minutes.")
    ] = False
    fit: Annotated[
        bool,
        typer.Option("--fit", help="Search the one machine that is nearest to all headline figures instead."),
    ] = False
    gpu: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"Of {WORK_ON_GPU}, only the times on a GPU, from this file of make gpu (gpu.json).",
        ),
    ] = None
    threads: Threads = None
    plot: Annotated[
        Path | None, place("Write the pictures to this folder.", check=_check_folder, what="FOLDER")
    ] = None

    def __post_init__(self) -> None:
        _check_work("work", self.work)
        if self.gpu is not None and (self.work != WORK_ON_GPU or self.fit or self.quick):
            raise ArgumentError(
                f"gpu: expected {WORK_ON_GPU} without --fit and --quick, because it computes nothing."
            )
        if self.fit and self.work not in FITTED_WORKS:
            raise ArgumentError(
                f"work: {self.work} has no simulator, so no configuration can be fitted; expected one of "
                f"{', '.join(FITTED_WORKS)}."
            )
        check_file("gpu", self.gpu)


reproduce = command(Options, "onehop.cli.reproduce:reproduce")
