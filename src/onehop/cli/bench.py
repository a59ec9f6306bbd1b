"""``onehop bench``: operators, models and limits, each beside what it has to be compared with."""

from dataclasses import asdict
from typing import Annotated

import typer

from onehop.bench import graphs, limits, models, ops, peers, plots, report, sources, variants
from onehop.bench.cases import OPERATIONS, WIDTHS
from onehop.bench.lists import names, numbers, one_of
from onehop.bench.recipes import PUBLISHED, RECIPES
from onehop.bench.results import write_json
from onehop.bench.sources import jobs
from onehop.bench.stamp import machine_line
from onehop.bench.tasks import LearningTask
from onehop.cli.console import output, progress
from onehop.cli.groups import Whole
from onehop.cli.options import Json, PartsPlot, Plot, Rounds, Threads, set_threads

app = typer.Typer(
    cls=Whole,
    add_completion=False,
    help="Measures against peers in the same process, in turns, results checked first.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
# A peer that has used this many seconds on a case is measured three times only.
BUDGET_S = 5.0
# Exit code where onehop's own results are wrong.
WRONG = 1
_GRAPHS = f"With commas: {', '.join(graphs.GRAPHS)}; a file; pyg:NAME, ogb:NAME or twin:NAME."


@app.command("ops")
def bench_ops(
    graph_names: Annotated[str, typer.Option("--graphs", help=_GRAPHS)] = ",".join(graphs.GRAPHS),
    widths: Annotated[str, typer.Option(help="Feature columns, with commas.")] = ",".join(map(str, WIDTHS)),
    cases: Annotated[str, typer.Option(help=f"With commas, or all: {', '.join(OPERATIONS)}.")] = "all",
    against: Annotated[
        str, typer.Option("--peers", help=f"With commas, or all: {', '.join(peers.PEERS)}.")
    ] = "all",
    rounds: Rounds = 7,
    threads: Threads = None,
    json: Json = None,
    plot: Plot = None,
) -> None:
    """Operators in float32: sum, weighted sum, mean, max, min, and sum with its backward pass."""
    columns, operations = numbers("widths", widths), one_of("cases", cases, tuple(OPERATIONS))
    chosen = peers.choose(None if against == "all" else names(against))
    set_threads(threads)
    console = output()
    console.print(machine_line())
    results: list[ops.CaseResult] = []
    with progress(len(names(graph_names)) * len(operations) * len(columns)) as bar:
        for name in names(graph_names):
            bar.describe(f"{name}: making the graph")
            workload = sources.structure(name)

            def done(result: ops.CaseResult) -> None:
                bar.describe(f"{result.graph}, {result.operation} {result.width} done")
                bar.advance()

            results += ops.measure([workload], operations, columns, chosen, rounds, BUDGET_S, done)
            console.print(report.ops_table([r for r in results if r.graph == workload.name]))
    summaries = ops.summarise(results)
    console.print(report.summary_table(summaries))
    for note in report.notes(results):
        console.print(note)
    if json is not None:
        content = {"results": [r.to_dict() for r in results], "summary": [asdict(s) for s in summaries]}
        write_json(json, "bench ops", content)
    if plot is not None:
        plots.plot_ops(results, machine_line(), plot)
    if report.onehop_is_wrong(results):
        raise typer.Exit(WRONG)


@app.command("models")
def bench_models(
    graph_names: Annotated[
        str | None,
        typer.Option(
            "--graphs", help=f"{_GRAPHS} By default published models have their own, the others all of these."
        ),
    ] = None,
    model_names: Annotated[
        str,
        typer.Option(
            "--models",
            help=f"With commas, or all: {', '.join(RECIPES)}. The first {len(PUBLISHED)} are published, and "
            "trained as their authors do; the others have two layers and no dropout.",
        ),
    ] = ",".join(PUBLISHED),
    hidden: Annotated[
        str | None,
        typer.Option(help="Widths between the layers, with commas; by default the authors', or 32,128."),
    ] = None,
    ablation: Annotated[str, typer.Option(help=f"With commas: {', '.join(variants.ABLATIONS)}.")] = "",
    further: Annotated[
        str, typer.Option("--variants", help=f"Further ways, with commas: {', '.join(variants.FURTHER)}.")
    ] = "",
    against: Annotated[
        str, typer.Option("--peers", help=f"With commas, or all: {', '.join(variants.PEERS)}.")
    ] = "all",
    rounds: Rounds = 3,
    threads: Threads = None,
    json: Json = None,
    plot: Plot = None,
    parts_plot: PartsPlot = None,
) -> None:
    """Whole training epochs (forward, backward, Adam) of PyG models, losses compared first."""
    chosen = one_of("models", model_names, tuple(RECIPES))
    widths = None if hidden is None else numbers("hidden", hidden)
    planned = jobs(chosen, None if graph_names is None else names(graph_names), widths)
    ways = variants.choose(names(ablation), None if against == "all" else names(against), names(further))
    set_threads(threads)
    console = output()
    console.print(machine_line())
    results: list[models.ModelResult] = []
    with progress(sum(len(job.cases) for job in planned)) as bar:
        for job in planned:
            bar.describe(f"{job.source}: making the graph")
            task = job.load()
            for note in task.notes:
                console.print(f"{task.name}: {note}.")

            def done(result: models.ModelResult, task: LearningTask = task) -> None:
                models.measure_peaks(task, result)
                results.append(result)
                # After each model: a run of an hour that is interrupted keeps what it has measured.
                if json is not None:
                    write_json(json, "bench models", {"results": [r.to_dict() for r in results]})
                bar.describe(f"{result.graph}, {result.model} {result.hidden} done")
                bar.advance()

            models.measure(task, job.cases, ways, rounds, done)
    console.print(report.models_table(results))
    if any(r.breakdown is not None for r in results):
        console.print(report.parts_table(results))
    for note in report.notes(results):
        console.print(note)
    if plot is not None:
        plots.plot_models(results, machine_line(), plot)
    if parts_plot is not None:
        plots.plot_parts([r.to_dict() for r in results], machine_line(), parts_plot)
    if report.onehop_is_wrong(results):
        raise typer.Exit(WRONG)


@app.command("limits")
def bench_limits(
    widths: Annotated[
        str, typer.Option(help="Row lengths in float32, multiples of 16, with commas.")
    ] = ",".join(map(str, limits.ROW_FLOATS)),
    graph: Annotated[
        str | None,
        typer.Option(help="Also gather in this graph's own order, and aggregate: as one of --graphs."),
    ] = None,
    megabytes: Annotated[
        int | None, typer.Option(help="Size of buffers; by default sixteen times the last cache.", min=1)
    ] = None,
    rounds: Rounds = 7,
    threads: Threads = None,
    json: Json = None,
    plot: Plot = None,
) -> None:
    """Memory bandwidth: streaming, and random rows by their length, the roof for aggregation."""
    columns = limits.row_lengths(numbers("widths", widths))
    set_threads(threads)
    size = limits.default_bytes() if megabytes is None else megabytes << 20
    console = output()
    console.print(machine_line())
    with progress() as bar:
        bar.describe("streaming")
        streams = limits.streaming(size, rounds)
        bar.describe("gathering rows")
        roofs = limits.random_gather(columns, size, rounds)
    console.print(report.limits_table(streams, roofs, f"buffers of {size >> 20} MiB"))
    cases: list[ops.CaseResult] = []
    if graph is not None:
        with progress(len(columns)) as bar:
            bar.describe(graph)
            cases = ops.measure(
                [sources.structure(graph)], ["sum"], columns, [], rounds, BUDGET_S, lambda _: bar.advance()
            )
        console.print(report.roof_table(cases, roofs))
    if json is not None:
        content = {
            "buffer_bytes": size,
            "streaming": {name: bandwidth.to_dict() for name, bandwidth in streams.items()},
            "gather": [roof.to_dict() for roof in roofs],
            "graph": [case.to_dict() for case in cases],
        }
        write_json(json, "bench limits", content)
    if plot is not None:
        plots.plot_limits(streams, roofs, cases, machine_line(), plot)
