"""The verbs, each imported when it is called, and the handling of errors."""

import contextlib
import importlib
from collections.abc import Iterator
from typing import Annotated, Any

import typer

import onehop
from onehop.cli.exit_codes import BAD_REQUEST, INTERRUPTED
from onehop.cli.groups import UsageError, Verb, Whole, usage_sentence
from onehop.cli.interrupts import SENTENCE
from onehop.errors import OnehopError

# Help texts of the verbs for --help.
VERBS = {
    "run": "Runs an unedited script under the patch, and then says what each class of its layers did.",
    "explain": "Runs an unedited script under the patch, and then says how its layers ran.",
    "demo": "Trains plain PyG models with PyG alone and with onehop.patch().",
    "info": "Prints what a report of an error needs, and what slows this machine, in ten lines.",
    "tune": "Finds the fastest plans for a graph on this machine and keeps them.",
    "ingest": "Makes a graph on disk of a file of edges that need not fit into memory.",
    "bench": "Measures against peers in the same process, in turns, results checked first.",
    "reproduce": "Computes the figures of a published work that can be had here, beside the published ones.",
    "simulate": "Runs a graph on a simulated machine: the true result, and where time and energy go.",
}
_MODULES = {"explain": "run"}


class Verbs(Whole):
    """Imports a verb's arguments when it is called; prints errors that users can correct as one sentence.

    The verb's work, which needs torch, is imported after its arguments were read. Any other error is a bug in
    onehop, and its traceback is shown.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb's command; None if there is no such verb."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"onehop.cli.arguments.{_MODULES.get(cmd_name, cmd_name)}")
        command = typer.main.get_command(_application(cmd_name, module))
        command.name = cmd_name
        return command

    def helps(self, ctx: Any) -> list[tuple[str, str]]:
        """Return each verb with its help."""
        return list(VERBS.items())

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the options that precede the verb."""
        with _refusing():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            with _refusing():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            typer.echo(SENTENCE, err=True)
            raise typer.Exit(INTERRUPTED) from error


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Print an error that users can correct as one sentence, and end with the code of a bad request."""
    try:
        yield
        return
    except UsageError as error:
        sentence = usage_sentence(error)
    except OnehopError as error:
        sentence = str(error)
    except FileNotFoundError as error:
        sentence = str(error) if error.filename is None else f"{error.filename}: no such file."
    except (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError) as error:
        sentence = f"{error.filename}: cannot be read or written ({error.strerror})."
    typer.echo(f"onehop: {sentence}", err=True)
    raise typer.Exit(BAD_REQUEST)


def _application(verb: str, module: Any) -> typer.Typer:
    """Return a verb's Typer application: the group's own, or a new one around a single command."""
    group: typer.Typer | None = getattr(module, "app", None)
    if group is not None:
        return group
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(cls=Verb, context_settings=getattr(module, "SETTINGS", None))(getattr(module, verb))
    return single


app = typer.Typer(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Neighbour aggregation for graph neural networks, as fast as memory allows.",
    epilog="Begin with: onehop run SCRIPT.py, a script of yours that uses PyG, unedited.",
)


def _version(given: bool) -> None:
    if given:
        typer.echo(f"onehop {onehop.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Hold the options that precede every verb."""
