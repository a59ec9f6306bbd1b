"""Options that several verbs share, and how lists are read."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from onehop.errors import ArgumentError

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


def names(text: str) -> list[str]:
    """The entries of a list with commas."""
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def one_of(option: str, text: str, allowed: tuple[str, ...]) -> list[str]:
    """The entries of a list with commas, each one of ``allowed``; "all" means all of them.

    Raises:
        ArgumentError: An entry is not allowed, or there are none.
    """
    chosen = list(allowed) if text == "all" else names(text)
    for entry in chosen:
        if entry not in allowed:
            raise ArgumentError(f"{option}: expected some of {', '.join(allowed)}, or all, got {entry!r}.")
    if not chosen:
        raise ArgumentError(f"{option}: expected at least one of {', '.join(allowed)}.")
    return chosen


def numbers(option: str, text: str) -> list[int]:
    """The positive numbers of a list with commas.

    Raises:
        ArgumentError: An entry is no positive number, or there are none.
    """
    chosen = []
    for entry in names(text):
        if not entry.isdecimal() or int(entry) < 1:
            raise ArgumentError(
                f"{option}: expected numbers of at least 1 with commas between them, got {entry!r}."
            )
        chosen.append(int(entry))
    if not chosen:
        raise ArgumentError(f"{option}: expected at least one number.")
    return chosen
