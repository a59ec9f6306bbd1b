"""The arguments of ``onehop demo``."""

from dataclasses import dataclass
from typing import Annotated

import typer

from onehop.bench import graph_names
from onehop.cli.choices import DEMO_DEFAULT, DEMO_EPOCHS, DEMO_MODELS, DEMO_WIDTH
from onehop.cli.options import Common, Plot, Threads, command, named_graph, several


@dataclass(frozen=True)
class Options(Common):
    """Trains plain PyG models with PyG alone and with onehop.patch(), and compares."""

    graph: Annotated[
        str | None,
        named_graph(
            f"{graph_names.HELP} By default that of each model's authors, twin:arxiv for the others."
        ),
    ] = None
    models: Annotated[str, several(DEMO_MODELS, "With commas, or all: ", "--models", "--model")] = ",".join(
        DEMO_DEFAULT
    )
    hidden: Annotated[
        int | None,
        typer.Option(
            help=f"Width between layers; by default the authors', {DEMO_WIDTH} for the others.", min=1
        ),
    ] = None
    epochs: Annotated[
        int | None,
        typer.Option(
            help=f"Epochs of each training run; by default {' to '.join(map(str, DEMO_EPOCHS))}.", min=1
        ),
    ] = None
    threads: Threads = None
    plot: Plot = None


demo = command(Options, "onehop.cli.demo:demo")
