"""``onehop simulate``: graphs and models on simulated machines, a verb for each machine."""

import typer

from onehop.cli.groups import Whole
from onehop.cli.simulate import dram, gpu
from onehop.cli.simulate.ndp import ndp
from onehop.cli.simulate.pim import pim

app = typer.Typer(
    cls=Whole,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Runs a graph on a simulated machine: the true result, and where time and energy go.",
)


@app.callback()
def simulate() -> None:
    """Runs a graph on a simulated machine: the true result, and where time and energy go."""


app.command()(ndp)
app.command()(pim)
app.command()(dram.dram)
app.command()(gpu.gpu)
