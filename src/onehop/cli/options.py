"""Options that several verbs share, and verbs whose options are the fields of a dataclass.

Output paths are checked before a verb starts.
"""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import torch
import typer

from onehop import pictures, storage


def place(
    help: str, *names: str, check: Callable[[str, Path], None] = storage.check, what: str = "FILE"
) -> Any:
    """Return an option for an output path; ``check`` raises an error if the path cannot be written."""

    def checked(context: typer.Context, option: typer.CallbackParam, path: Path | None) -> Path | None:
        if path is not None and not context.resilient_parsing:
            check(str(option.name), path)
        return path

    return typer.Option(*names, metavar=what, help=help, callback=checked)


Threads = Annotated[int | None, typer.Option(help="Threads to use; torch's number by default.", min=1)]
Json = Annotated[Path | None, place("Write everything to this file, as JSON.", "--json")]
Report = Annotated[Path | None, place("Write the table to this file, as JSON.", "--report", "--json")]
Timeline = Annotated[Path | None, place("Write the timeline; ui.perfetto.dev opens it.")]
Export = Annotated[Path | None, place("Write the requests to this file as well.")]
Commands = Annotated[
    Path | None,
    place("Write every DRAM command: .csv for DRAMPower, .trace as Ramulator 2.1 records them."),
]
Plot = Annotated[Path | None, place("Write a picture to this PNG, PDF or SVG file.", check=pictures.check)]
PartsPlot = Annotated[
    Path | None, place("Write a picture of the epochs' parts, beside their floors.", check=pictures.check)
]
# The demo always draws its chart.
Chart = Annotated[Path, place("The bar chart: PNG, PDF or SVG.", "--plot", check=pictures.check)]
Scale = Annotated[float, typer.Option(help="Multiplies a twin's numbers of nodes and edges.", min=0.0)]
Seed = Annotated[int, typer.Option(help="Of random numbers, and of a twin.", min=0)]
Width = Annotated[int, typer.Option(help="Feature columns.", min=1)]
Rounds = Annotated[int, typer.Option(help="Measurements of each.", min=1)]


def set_threads(threads: int | None) -> None:
    """Set torch's number of threads, which onehop uses too; None leaves it."""
    if threads is not None:
        torch.set_num_threads(threads)


def command(verb: Callable[[Any], None]) -> Callable[..., None]:
    """Return the function from which Typer makes a command, for a verb that takes a dataclass.

    The command's options are the dataclass's fields, with their names, types, default values and help.
    Inherited fields come last.
    """
    kind = next(iter(get_type_hints(verb).values()))

    @functools.wraps(verb)
    def run(**given: Any) -> None:
        verb(kind(**given))

    own = inspect.get_annotations(kind)
    fields = sorted(inspect.signature(kind).parameters.values(), key=lambda field: field.name not in own)
    run.__signature__ = inspect.Signature(fields)  # type: ignore[attr-defined]
    run.__annotations__ = get_type_hints(kind, include_extras=True)
    return run
