"""Options that several verbs share, and commands whose options are the fields of a dataclass.

Nothing here imports torch. So a command line is read, and wrong values are refused, within a moment.
"""

import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from onehop import extras, pictures, storage
from onehop.bench import graph_names
from onehop.bench.lists import names, numbers, one_of
from onehop.cli import interrupts, printing
from onehop.cli.choices import COMMAND_FILES
from onehop.errors import ArgumentError, check_choice

# Checks a value; the first argument is the option's name.
Check = Callable[[str, Any], object]


def checked(check: Check, help: str, *names: str, **settings: Any) -> Any:
    """Return an option whose value, unless it is None, is checked when the command line is read."""

    def checking(name: str, value: Any) -> Any:
        check(name, value)
        return value

    return converted(checking, help, *names, **settings)


def converted(convert: Check, help: str, *names: str, **settings: Any) -> Any:
    """Return an option whose value, unless it is None, is converted when the command line is read."""

    def callback(context: typer.Context, option: typer.CallbackParam, value: Any) -> Any:
        if value is None or context.resilient_parsing:
            return value
        return convert(str(option.name), value)

    return typer.Option(*names, help=help, callback=callback, **settings)


def place(help: str, *names: str, check: Check = storage.check, what: str = "FILE") -> Any:
    """Return an option for an output path; ``check`` raises an error if the path cannot be written."""
    return checked(check, help, *names, metavar=what)


def check_file(name: str, path: Path | None) -> None:
    """Raise unless an option's file can be read.

    Raises:
        ArgumentError: There is no such file.
    """
    if path is not None and not path.is_file():
        raise ArgumentError(f"{name}: {path}: {'expected a file' if path.exists() else 'no such file'}.")


def choice(allowed: Sequence[str], help: str, *names: str, also: str = "", **settings: Any) -> Any:
    """Return an option that is one of some names; ``also`` describes further values, as in "a TOML file".

    A further value is a path: it names an existing file, or has an ending.
    """

    def check(name: str, value: str) -> None:
        if value in allowed:
            return
        if not also:
            check_choice(name, value, allowed)
        file = value.partition(":")[0] if value.partition(":")[0].endswith(".py") else value
        if Path(file).is_file():
            return
        if Path(file).suffix:
            raise ArgumentError(f"{name}: {file}: no such file.")
        raise ArgumentError(f"{name}: expected one of {', '.join(allowed)}, or {also}, got {value!r}.")

    further = f", or {also}" if also else ""
    return checked(check, f"{help}{', '.join(allowed)}{further}.", *names, **settings)


def several(allowed: Sequence[str], help: str, *names: str, can_be_empty: bool = False) -> Any:
    """Return an option that is a list of some names with commas between them, or "all"."""

    def check(name: str, text: str) -> None:
        if text or not can_be_empty:
            one_of(name, text, tuple(allowed))

    return checked(check, f"{help}{', '.join(allowed)}.", *names, metavar="NAMES")


def several_numbers(help: str) -> Any:
    """Return an option that is a list of positive numbers with commas between them."""
    return checked(numbers, help, metavar="NUMBERS")


def _check_json(name: str, path: Path) -> None:
    if path != storage.STANDARD_OUTPUT:
        storage.check(name, path)


def _check_commands(name: str, path: Path) -> None:
    if path.suffix not in COMMAND_FILES:
        known = " or ".join(COMMAND_FILES)
        raise ArgumentError(f"{name}: expected the name of a file that ends in {known}, got {path}.")
    storage.check(name, path)


def _check_graphs(name: str, text: str) -> None:
    for source in names(text):
        if source not in graph_names.BENCHMARK_GRAPHS:
            graph_names.full(name, source)
    if not names(text):
        raise ArgumentError(f"{name}: expected at least one graph.")


_STRUCTURES = f"{', '.join(graph_names.BENCHMARK_GRAPHS)}, which have no features"


def named_graph(help: str = graph_names.HELP, **settings: Any) -> Any:
    """Return an option that is a graph; a twin's name alone is completed."""
    return converted(graph_names.full, help, metavar="GRAPH", **settings)


def named_structure(help: str = f"{graph_names.HELP[:-1]}; or one of {_STRUCTURES}.") -> Any:
    """Return an option that is a graph, or a structure without features."""
    return checked(_check_graphs, help, metavar="GRAPH")


def named_graphs(help: str = f"With commas: {graph_names.HELP[:-1]}; or {_STRUCTURES}.") -> Any:
    """Return an option ``--graphs`` that is a list of graphs with commas between them."""
    return checked(_check_graphs, help, "--graphs", metavar="GRAPHS")


Threads = Annotated[int | None, typer.Option(help="Threads to use; torch's number by default.", min=1)]
Json = Annotated[
    Path | None,
    place("Write everything to this file, as JSON; - is standard output.", "--json", check=_check_json),
]
Report = Annotated[
    Path | None,
    place(
        "Write the table to this file, as JSON; - is standard output.",
        "--json",
        "--report",
        check=_check_json,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print neither tables nor progress.")]
Timeline = Annotated[Path | None, place("Write the timeline; ui.perfetto.dev opens it.")]
Export = Annotated[Path | None, place("Write the requests to this file as well.")]
Commands = Annotated[
    Path | None,
    place(
        "Write every DRAM command: .csv for DRAMPower, .trace as Ramulator 2.1 records them.",
        check=_check_commands,
    ),
]
Plot = Annotated[Path | None, place("Write a picture to this PNG, PDF or SVG file.", check=pictures.check)]
PartsPlot = Annotated[
    Path | None, place("Write a picture of the epochs' parts, beside their floors.", check=pictures.check)
]
Scale = Annotated[float, typer.Option(help="Multiplies a twin's numbers of nodes and edges.", min=0.0)]
Seed = Annotated[int, typer.Option(help="Of random numbers, and of a twin.", min=0)]
Width = Annotated[int, typer.Option(help="Feature columns.", min=1)]
Rounds = Annotated[int, typer.Option(help="Measurements of each.", min=1)]


@dataclass(frozen=True, kw_only=True)
class Common:
    """Options of every verb."""

    json: Json = None
    quiet: Quiet = False


# How help shows values of a type if an option does not say it.
_METAVARS = {int: "N", float: "NUMBER", str: "TEXT"}


def _show_type(hint: Any) -> None:
    """Make help show an option's type in the usual form."""
    kind, info = get_args(hint)[:2]
    if info.metavar is None:
        info.metavar = next((_METAVARS[each] for each in (kind, *get_args(kind)) if each in _METAVARS), None)


def command(options: type, work: str) -> Callable[..., None]:
    """Return the function from which Typer makes a command.

    The command's options are the dataclass's fields, with their names, types, default values and help.
    Inherited fields come last. The dataclass's docstring is the command's help.

    Args:
        options: The dataclass.
        work: The function that takes the dataclass, as ``"module:function"``. Its module is imported when the
            command runs, after its options were read and checked.
    """
    module, _, name = work.partition(":")

    def run(context: typer.Context, **values: Any) -> None:
        chosen = options(**values)
        with extras.needed(context.command_path, "cli"):
            function = getattr(importlib.import_module(module), name)
        with interrupts.raised(), printing.of(chosen):
            function(chosen)

    own = inspect.get_annotations(options)
    fields = sorted(inspect.signature(options).parameters.values(), key=lambda field: field.name not in own)
    where = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    keywords = [field.replace(kind=inspect.Parameter.KEYWORD_ONLY) for field in fields]
    run.__signature__ = inspect.Signature([where, *keywords])  # type: ignore[attr-defined]
    hints = get_type_hints(options, include_extras=True)
    for hint in hints.values():
        _show_type(hint)
    run.__annotations__ = {"context": typer.Context, **hints}
    run.__doc__ = inspect.getdoc(options)
    return run
