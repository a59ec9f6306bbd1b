"""The command line of the programs in ``benchmarks/``: shared options, and the output of results.

The command ``onehop`` has its own command line with the same options; both read lists with the same
functions.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from onehop import pictures
from onehop.bench.lists import names as names, numbers
from onehop.bench.results import write_json
from onehop.bench.stamp import commit
from onehop.errors import ArgumentError, OnehopError


def parser(
    description: str | None,
    rounds: int | None = None,
    threads: bool = False,
    json: bool = True,
    plot: bool = False,
) -> argparse.ArgumentParser:
    """Return a parser with the options that the programs share.

    Args:
        description: The program's docstring.
        rounds: Default of ``--rounds``; None means that there is no such option.
        threads: Whether to add ``--threads``, torch's number of threads; by default it is not changed.
        json: Whether to add ``--json``, the file for the results.
        plot: Whether to add ``--plot``, the file for a picture of the results.
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
    """Return a file to which a picture can be written; used as the type of an option.

    Raises:
        argparse.ArgumentTypeError: The file cannot be written.
    """
    try:
        pictures.check("--plot", text)
    except OnehopError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("--plot: ")) from error
    return Path(text)


def integers(text: str) -> list[int]:
    """Return the positive numbers of a comma-separated list; used as the type of an option.

    Raises:
        argparse.ArgumentTypeError: An entry is not a positive number, or the list is empty.
    """
    try:
        return numbers("", text)
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix(": ")) from error


def read(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the options, by default from the command line, and set the number of threads.

    A program that measures with several numbers of threads has a list there, and sets each number itself.
    """
    options = parser.parse_args(arguments)
    commit()  # results name the commit that the run began with
    if isinstance(getattr(options, "threads", None), int):
        torch.set_num_threads(options.threads)
    return options


def write(options: argparse.Namespace, command: str, content: Mapping[str, Any]) -> None:
    """Write results to the file of ``--json`` with :func:`onehop.bench.results.write_json`, if given."""
    write_json(options.json, command, content, getattr(options, "rounds", None))
