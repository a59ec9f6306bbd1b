"""``onehop tune``: finds the best plans for a graph, and draws a curve over widths."""

from dataclasses import dataclass
from typing import Annotated

import typer

from onehop.bench import sources
from onehop.bench.lists import numbers
from onehop.cli.console import begin, progress
from onehop.cli.exit_codes import INTERRUPTED
from onehop.cli.options import Json, Plot, Threads, command
from onehop.errors import ArgumentError
from onehop.storage import write_text
from onehop.tables import Column, Table
from onehop.tuner import TuningResult, cpu
from onehop.tuner.gpu import target as gpu
from onehop.tuner.operations import GPU_OPS, OPS, REDUCTIONS
from onehop.tuner.result import TuningInterrupted
from onehop.tuner.tuning import tune as find_plans


@dataclass(frozen=True)
class Options:
    """Options of ``tune``."""

    graph: Annotated[str, typer.Option(help=sources.BENCHMARK_HELP)]
    widths: Annotated[
        str, typer.Option(help="Feature columns with commas, or FROM:TO for the powers of two.")
    ] = "16:512"
    op: Annotated[str, typer.Option(help=f"One of {', '.join(OPS)}; on GPUs of {', '.join(GPU_OPS)}.")] = (
        "aggregate"
    )
    reduce: Annotated[str, typer.Option(help=f"Of aggregate: one of {', '.join(REDUCTIONS)}.")] = "sum"
    backward: Annotated[bool, typer.Option(help="Tune the gradient too.")] = True
    budget: Annotated[
        float | None,
        typer.Option(
            help=f"Seconds for everything; by default {cpu.BUDGET_S:g} a width, {gpu.BUDGET_S:g} on GPUs."
        ),
    ] = None
    lossy: Annotated[bool, typer.Option(help="Try 16 bits for features; not kept for later.")] = False
    again: Annotated[bool, typer.Option(help="Tune also what was tuned before.")] = False
    codegen: Annotated[
        bool, typer.Option(help="Generate kernels too, where a C++ compiler is there; doubles the time.")
    ] = False
    device: Annotated[str, typer.Option(help="cpu, or cuda for the Triton kernels.")] = "cpu"
    heads: Annotated[int, typer.Option(help="Of attention and sddmm on GPUs.")] = 1
    verbose: Annotated[bool, typer.Option("--verbose", help="Print the plans in full.")] = False
    threads: Threads = None
    json: Json = None
    plot: Plot = None


@command
def tune(options: Options) -> None:
    """Finds the fastest plans for a graph on this machine and keeps them: all programs use them from then on.

    If it is interrupted with Ctrl-C, it prints and keeps the plans confirmed so far, and resumes from there
    when it is called again.
    """
    columns = _widths(options.widths)
    console = begin(options.threads)
    given = {
        name: getattr(options, name) for name in ("backward", "lossy", "again", "codegen", "device", "heads")
    }
    interrupted = None
    with progress(what=f"{options.graph}: making the graph") as bar:
        graph = sources.structure(options.graph).graph
        try:
            result = find_plans(
                graph,
                columns,
                options.op,
                options.reduce,
                budget_s=options.budget,
                progress=bar.share,
                **given,
            )
        except TuningInterrupted as error:
            result, interrupted = error.result, error
    if options.device != "cpu":
        console.print(f"GPU: {result.machine['gpu']}, triton {result.machine['triton']}")
    console.print(_table(result))
    console.print(result.details() if options.verbose else str(result), markup=False, soft_wrap=True)
    suggested = result.suggested_widths()
    if suggested:
        console.print(
            f"Most columns a second on this machine: width {', '.join(map(str, suggested))} "
            f"(all within 10 % of the best)."
        )
    if options.json is not None:
        write_text("json", options.json, result.to_json() + "\n")
    if options.plot is not None and (result.confirmed or interrupted is None):
        result.plot(options.plot)
    if interrupted is not None:
        typer.echo(str(interrupted), err=True)
        raise typer.Exit(INTERRUPTED)


def _table(result: TuningResult) -> Table:
    seconds = (("tuned", "tuned_s"), ("default", "default_s"), ("torch CSR", "torch_s"))
    ratios = (("over default", "over_default"), ("over torch", "over_torch"))
    columns = (
        Column("width", "width", wraps=False),
        *(Column(title, field, _ms, absent="-", wraps=False) for title, field in seconds),
        *(Column(title, field, "{:.2f}x", absent="-", wraps=False) for title, field in ratios),
        Column("predicted", "predicted_s", _ms, absent="-", wraps=False),
    )
    return Table(columns, result.curve, f"{result.op} {result.reduce}: milliseconds, medians")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}"


def _widths(text: str) -> list[int]:
    first, colon, last = text.partition(":")
    if not colon:
        return numbers("widths", text)
    if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise ArgumentError(f"widths: expected FROM:TO with 1 <= FROM <= TO, or a list, got {text!r}.")
    found = [int(first)]
    while found[-1] * 2 <= int(last):
        found.append(found[-1] * 2)
    return found
