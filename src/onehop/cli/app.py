"""The verbs, and what becomes of errors."""

from typing import Any

import typer
from typer.core import TyperGroup

from onehop.cli import bench, demo, info, simulate, tune
from onehop.cli.exit_codes import BAD_REQUEST, INTERRUPTED
from onehop.errors import OnehopError


class Sentences(TyperGroup):
    """Prints errors that users can mend as one sentence; any other is a defect, and shows itself."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            typer.echo("onehop: interrupted.", err=True)
            raise typer.Exit(INTERRUPTED) from error
        except OnehopError as error:
            sentence = str(error)
        except FileNotFoundError as error:
            sentence = str(error) if error.filename is None else f"{error.filename}: no such file."
        except (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError) as error:
            sentence = f"{error.filename}: cannot be read or written ({error.strerror})."
        typer.echo(f"onehop: {sentence}", err=True)
        raise typer.Exit(BAD_REQUEST)


app = typer.Typer(
    cls=Sentences,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Neighbour aggregation for graph neural networks, as fast as memory allows.",
)
app.command()(demo.demo)
app.add_typer(bench.app, name="bench")
app.command()(info.info)
app.add_typer(simulate.app, name="simulate")
app.command()(tune.tune)
