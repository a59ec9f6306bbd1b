"""The arguments of ``onehop run`` and ``onehop explain``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from onehop.cli.options import Json, Quiet, Report, command
from onehop.errors import ArgumentError

# Arguments after the script's name belong to the script.
SETTINGS = {"allow_interspersed_args": False}
# Standard input instead of a script.
STDIN = "-"

Name = Annotated[str, typer.Argument(metavar="SCRIPT", help="The script, or with -m the module.")]
Arguments = Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="The script's own arguments.")]
IsModule = Annotated[bool, typer.Option("-m", help="SCRIPT is a module, as after python -m.")]
Only = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES", help="Patch these classes of layers alone; with commas, such as GCNConv,pyg."
    ),
]


@dataclass(frozen=True)
class Program:
    """Options that say what runs.

    Raises:
        ArgumentError: The script does not exist.
    """

    name: Name
    arguments: Arguments = None
    module: IsModule = False

    def __post_init__(self) -> None:
        if not self.module and self.name != STDIN and not Path(self.name).exists():
            raise ArgumentError(f"{self.name}: no such script. For a module, write -m before its name.")


@dataclass(frozen=True)
class Run(Program):
    """Runs an unedited script under the patch, and then says what each class of its layers did.

    Output, errors and exit code are the script's own. The tables go to standard error when Python ends. They
    show the layers, the functions of torch and PyG that the patch serves, and the three largest parts of the
    time that onehop does not run. Backward passes are counted separately.
    """

    json: Report = None
    quiet: Quiet = False
    only: Only = None
    dropout: Annotated[
        bool | None, typer.Option(help="Torch's dropout on onehop's kernels, with its numbers.")
    ] = None
    products: Annotated[bool | None, typer.Option(help="Linear steps in the fastest library at hand.")] = None
    indexing: Annotated[
        bool | None, typer.Option(help="Torch's large gathers and scatters on onehop's kernels.")
    ] = None
    reuse: Annotated[bool | None, typer.Option(help="Keep aggregates of features that do not change.")] = None
    associate: Annotated[
        bool | None, typer.Option(help="Multiply before or after aggregation, as is cheaper.")
    ] = None
    keep_memory: Annotated[bool | None, typer.Option(help="Keep freed memory in the process.")] = None


@dataclass(frozen=True)
class Explain(Program):
    """Runs an unedited script under the patch, and then says how its layers ran: plans, programs, reasons.

    Output, errors and exit code are the script's own; the report goes to standard error when Python ends.
    """

    only: Only = None
    json: Json = None
    quiet: Quiet = False


run = command(Run, "onehop.cli.run:run")
explain = command(Explain, "onehop.cli.run:explain")
