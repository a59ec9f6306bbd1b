"""The arguments of ``onehop tune``."""

from dataclasses import dataclass
from typing import Annotated

import typer

from onehop.bench.lists import numbers
from onehop.cli.choices import GPU_OPS, GPU_TUNING_S, REDUCTIONS, TUNED_OPS, TUNING_S
from onehop.cli.options import Common, Plot, Threads, checked, choice, command, named_structure
from onehop.errors import ArgumentError, check_choice


def read_widths(name: str, text: str) -> list[int]:
    """Return the widths of ``--widths``: a list, or the powers of two from one width to another.

    Raises:
        ArgumentError: The text has neither form.

    Examples:
        >>> read_widths("widths", "16:100")
        [16, 32, 64]
    """
    first, colon, last = text.partition(":")
    if not colon:
        return numbers(name, text)
    if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise ArgumentError(f"{name}: expected FROM:TO with 1 <= FROM <= TO, or a list, got {text!r}.")
    columns = [int(first)]
    while columns[-1] * 2 <= int(last):
        columns.append(columns[-1] * 2)
    return columns


@dataclass(frozen=True)
class Options(Common):
    """Finds the fastest plans for a graph on this machine and keeps them: all programs use them from then on.

    If it is interrupted with Ctrl-C, it prints and keeps the plans confirmed so far, and resumes from there
    when it is called again.
    """

    graph: Annotated[str, named_structure()]
    widths: Annotated[
        str,
        checked(
            read_widths, "Feature columns with commas, or FROM:TO for the powers of two.", metavar="NUMBERS"
        ),
    ] = "16:512"
    op: Annotated[
        str,
        checked(
            lambda name, op: check_choice(name, op, GPU_OPS),
            f"One of {', '.join(TUNED_OPS)}; on GPUs of {', '.join(GPU_OPS)}.",
            metavar="NAME",
        ),
    ] = "aggregate"
    reduce: Annotated[str, choice(REDUCTIONS, "Of aggregate: one of ", metavar="NAME")] = "sum"
    backward: Annotated[bool, typer.Option(help="Tune the gradient too.")] = True
    budget: Annotated[
        float | None,
        typer.Option(
            help=f"Seconds for everything; by default {TUNING_S:g} a width, {GPU_TUNING_S:g} on GPUs."
        ),
    ] = None
    lossy: Annotated[bool, typer.Option(help="Try 16 bits for features; not kept for later.")] = False
    again: Annotated[bool, typer.Option(help="Tune also what was tuned before.")] = False
    codegen: Annotated[
        bool, typer.Option(help="Generate kernels too, where a C++ compiler is there; doubles the time.")
    ] = False
    device: Annotated[str, typer.Option(metavar="DEVICE", help="cpu, or cuda for the Triton kernels.")] = (
        "cpu"
    )
    heads: Annotated[int, typer.Option(help="Of attention and sddmm on GPUs.", min=1)] = 1
    verbose: Annotated[bool, typer.Option("--verbose", help="Print the plans in full.")] = False
    threads: Threads = None
    plot: Plot = None

    def __post_init__(self) -> None:
        if self.budget is not None and not self.budget > 0:
            raise ArgumentError(f"budget: expected more than 0 seconds, got {self.budget:g}.")
        if self.device == "cpu" and self.op not in TUNED_OPS:
            check_choice("op", self.op, TUNED_OPS)


tune = command(Options, "onehop.cli.tune:tune")
