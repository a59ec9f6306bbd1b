"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated

import torch
import typer

Threads = Annotated[int | None, typer.Option(help="Threads to use; torch's number by default.", min=1)]
Json = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write everything measured to this file.")
]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a picture to this PNG file.")]
Rounds = Annotated[int, typer.Option(help="Measurements of each.", min=1)]


def set_threads(threads: int | None) -> None:
    """Sets torch's number of threads, which is onehop's as well; None leaves it."""
    if threads is not None:
        torch.set_num_threads(threads)
