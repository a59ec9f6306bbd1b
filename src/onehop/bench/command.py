"""The command line of the programs in ``benchmarks/``: options that they share, and where results go.

The command ``onehop`` has its own, with the same options; lists are read by the same functions.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from onehop import pictures
from onehop.bench.lists import names as names, numbers
from onehop.bench.results import write_json
from onehop.errors import ArgumentError, OnehopError


def parser(
    description: str | None,
    rounds: int | None = None,
    threads: bool = False,
    json: bool = True,
    plot: bool = False,
) -> argparse.ArgumentParser:
    """A parser that knows the options that programs share.

    Args:
        description: The program's docstring.
        rounds: What ``--rounds`` is by default; None means that there is no such option.
        threads: Whether there is ``--threads``: torch's number, by default the one it has.
        json: Whether there is ``--json``: the file of the results.
        plot: Whether there is ``--plot``: a picture of them.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if json:
        parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements to this file")
    if plot:
        parser.add_argument("--plot", type=picture, metavar="FILE", help="a PNG, PDF or SVG file")
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds, help=f"measurements of each ({rounds})")
    if threads:
        parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser


def picture(text: str) -> Path:
    """A file that a picture can be written to, as the type of an option.

    Raises:
        argparse.ArgumentTypeError: It cannot.
    """
    try:
        pictures.check("--plot", text)
    except OnehopError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("--plot: ")) from error
    return Path(text)


def integers(text: str) -> list[int]:
    """The positive numbers of a list with commas, as the type of an option.

    Raises:
        argparse.ArgumentTypeError: An entry is no positive number, or there are none.
    """
    try:
        return numbers("", text)
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix(": ")) from error


def read(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options, by default from the command line; ``--threads`` is put to use.

    A program that measures with several numbers of threads has a list there, and sets each one itself.
    """
    options = parser.parse_args(arguments)
    if isinstance(getattr(options, "threads", None), int):
        torch.set_num_threads(options.threads)
    return options


def write(options: argparse.Namespace, command: str, content: Mapping[str, Any]) -> None:
    """Writes results where ``--json`` says, as :func:`onehop.bench.results.write_json` does; else nowhere."""
    write_json(options.json, command, content)
