"""Groups of commands whose help is never cut off."""

from typing import Any

import typer
from typer.core import TyperGroup


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


def group(help: str) -> typer.Typer:
    """Return a verb that consists of several commands."""
    return typer.Typer(
        cls=Whole, add_completion=False, no_args_is_help=True, rich_markup_mode=None, help=help
    )


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())
