"""Commands and groups of commands: errors in the words of the command line, usage, and whole help texts."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from onehop.cli.exit_codes import BAD_REQUEST
from onehop.errors import OnehopError

# The beginning of an error that names arguments: "graph: ...", "sweep, trace: ..." or "tile must be ...".
_NAMES = re.compile(r"([a-z_]+(?:, [a-z_]+)*)(?=: | must be )")
# A usage error of Typer's; newer releases of Typer have no public name for it.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class Refused(OnehopError):
    """An error whose sentence names options as they were typed."""


class Verb(TyperCommand):
    """A command whose errors name its options as they were typed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments."""
        typed = list(args)
        ctx.meta[__name__] = typed
        with self._in_words_of(typed):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with self._in_words_of(ctx.meta[__name__]):
            return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line after the command's name."""
        pieces = [self.options_metavar] if self.options_metavar else []
        for param in self.params:
            if param.param_type_name == "argument":
                name = (param.metavar or param.name).strip("[].")
                piece = name if param.required else f"[{name}]"
                pieces.append(piece + ("..." if param.nargs == -1 else ""))
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the lists of arguments and options."""
        parts: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and param.param_type_name == "argument":
                parts["Arguments"].append((_typed(param, []), record[1]))
            elif record is not None:
                parts["Options"].append(record)
        for title, records in parts.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    @contextlib.contextmanager
    def _in_words_of(self, typed: list[str]) -> Iterator[None]:
        """Replace the names of arguments in errors by the options of the command line."""
        try:
            yield
        except Refused:
            raise
        except OnehopError as error:
            raise Refused(self.in_words(str(error), typed)) from error
        except UsageError as error:
            raise Refused(self._of_usage(error, typed)) from error

    def in_words(self, sentence: str, typed: list[str]) -> str:
        """Return an error's sentence with options, as they were typed, instead of arguments' names."""
        beginning = _NAMES.match(sentence)
        if beginning is None:
            return sentence
        options = [self._option(name, typed) for name in beginning[1].split(", ")]
        if None in options:
            return sentence
        return ", ".join(map(str, options)) + sentence[beginning.end() :]

    def _option(self, name: str, typed: list[str]) -> str | None:
        """Return the option of an argument's name, or of an option's name without dashes."""
        for param in self.params:
            if name in (param.name, *(each.lstrip("-").replace("-", "_") for each in param.opts)):
                return _typed(param, typed)
        return None

    def _of_usage(self, error: Any, typed: list[str]) -> str:
        """Return one of Typer's errors as a sentence."""
        param, message = getattr(error, "param", None), str(error.message).strip()
        if param is not None:
            return f"{_typed(param, typed)}: {message.rstrip('.') or 'a value is required'}."
        return usage_sentence(error)


def _typed(param: Any, typed: list[str]) -> str:
    """Return the name under which a parameter was typed; its first name if it was not."""
    if param.param_type_name == "argument":
        return str(param.metavar or param.name).strip("[].")
    words = {each.partition("=")[0] for each in typed}
    names: list[str] = [*param.opts, *param.secondary_opts]
    return next((name for name in names if name in words), names[0])


def usage_sentence(error: Any) -> str:
    """Return one of Typer's errors, which concerns no single parameter, as a sentence."""
    sentence = str(error.format_message()).strip().rstrip(".")
    if error.ctx is None:
        return f"{sentence}."
    end = "" if sentence.endswith("?") else ";"
    return f"{sentence}{end} {error.ctx.command_path} --help lists what there is."


class Whole(TyperGroup):
    """Lists its commands with the first paragraph of each command's help, on as many lines as needed."""

    def helps(self, ctx: Any) -> list[tuple[str, str]]:
        """Return each command with its help."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        return [(name, _first_paragraph(each.help)) for name, each in commands if each is not None]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list."""
        with formatter.section("Commands"):
            formatter.write_dl(self.helps(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; without any, show the help."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(BAD_REQUEST)
        return super().parse_args(ctx, args)


def group(help: str) -> typer.Typer:
    """Return a verb that consists of several commands."""
    return typer.Typer(cls=Whole, add_completion=False, rich_markup_mode=None, help=help)


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())
