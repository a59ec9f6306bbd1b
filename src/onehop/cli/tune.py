"""``onehop tune``: finds the best plans for a graph, and draws a curve over widths."""

import json
from typing import Any

import typer

from onehop.bench import sources
from onehop.bench.results import write_json
from onehop.cli.arguments.tune import Options, read_widths
from onehop.cli.console import begin, progress
from onehop.cli.exit_codes import INTERRUPTED
from onehop.tables import Column, Table
from onehop.tuner import TuningResult
from onehop.tuner.result import TuningInterrupted
from onehop.tuner.tuning import tune as find_plans

# Options that are arguments of the function, with the same names.
_GIVEN = ("op", "reduce", "backward", "lossy", "again", "codegen", "device", "heads")


def tune(options: Options) -> None:
    """Find the plans of ``onehop tune``; see :class:`Options`."""
    columns = read_widths("widths", options.widths)
    console = begin(options.threads)
    given: dict[str, Any] = {name: getattr(options, name) for name in _GIVEN}
    interrupted = None
    with progress(what=f"{options.graph}: making the graph") as bar:
        graph = sources.structure(options.graph).graph
        try:
            result = find_plans(
                graph,
                columns,
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
    write_json(options.json, "tune", json.loads(result.to_json()))
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
