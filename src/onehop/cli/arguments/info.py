"""The arguments of ``onehop info``."""

from dataclasses import dataclass
from typing import Annotated

import typer

from onehop.cli.options import Common, command


@dataclass(frozen=True)
class Options(Common):
    """Prints what a report of an error needs, and what slows this machine, in ten lines."""

    every: Annotated[
        bool, typer.Option("--all", help="Also caches, backends, dense products, packages, all settings.")
    ] = False
    measure: Annotated[bool, typer.Option(help="Measure the memory, in about two seconds.")] = True


info = command(Options, "onehop.cli.info:info")
