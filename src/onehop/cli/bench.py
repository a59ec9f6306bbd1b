"""``onehop bench``: measures operators, models and limits, and compares each with its baselines."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from onehop.bench import limits, models, ops, peers, plots, report, serving, sources, variants
from onehop.bench.cases import OPERATIONS
from onehop.bench.lists import graph_sizes, names, numbers, one_of
from onehop.bench.recipes import RECIPES, SERVED
from onehop.bench.results import write_json
from onehop.bench.servers import Case, Servers
from onehop.bench.sources import jobs
from onehop.bench.stamp import cores, machine_line
from onehop.cli.arguments.bench import Limits, Models, Ops, Serve
from onehop.cli.console import begin, progress
from onehop.tables import Table

Results = Sequence[ops.CaseResult | models.ModelResult]

# A peer that has used this many seconds on a case is measured only three times.
BUDGET_S = 5.0
# Exit code if onehop's own results are wrong.
WRONG = 1


def bench_ops(options: Ops) -> None:
    """Time operators in float32: sum, weighted sum, mean, max, min, and sum with its backward pass."""
    widths, named = numbers("widths", options.widths), names(options.graphs)
    operations = one_of("cases", options.cases, tuple(OPERATIONS))
    chosen = peers.choose(None if options.against == "all" else names(options.against))
    cases = list(product(operations, widths))
    console = begin(options.threads)
    results: list[ops.CaseResult] = []
    with progress(len(named) * len(cases)) as bar:
        for name in named:
            bar.describe(f"{name}: making the graph")
            found = []
            for result in ops.measure(sources.structure(name), cases, chosen, options.rounds, BUDGET_S):
                found.append(result)
                bar.advance(f"{result.graph}, {result.operation} {result.width} done")
            console.print(report.ops_table(found))
            results += found
    summaries = ops.summarise(results)
    content = {"results": [r.to_dict() for r in results], "summary": [asdict(s) for s in summaries]}
    write_json(options.json, "bench ops", content)
    _finish(console, results, report.summary_table(summaries))
    _draw(options.plot, plots.plot_ops, results)
    _judge(results)


def bench_models(options: Models) -> None:
    """Time whole training epochs (forward, backward, Adam) of PyG models; losses are compared first."""
    chosen = one_of("models", options.model_names, tuple(RECIPES))
    widths = None if options.hidden is None else numbers("hidden", options.hidden)
    planned = jobs(chosen, None if options.graphs is None else names(options.graphs), widths)
    against = None if options.against == "all" else names(options.against)
    ways = variants.choose(names(options.ablation), against, names(options.further))
    console = begin(options.threads)
    results: list[models.ModelResult] = []
    with progress(sum(len(job.cases) for job in planned)) as bar:
        for job in planned:
            bar.describe(f"{job.source}: making the graph")
            task = job.load()
            for note in task.notes:
                console.print(f"{task.name}: {note}.")
            for result in models.measure(task, job.cases, ways, options.rounds):
                results.append(result)
                # Done after each model, so that an interrupted run keeps what it has measured.
                write_json(options.json, "bench models", _content(results), complete=False)
                bar.advance(f"{result.graph}, {result.model} {result.hidden} done")
    write_json(options.json, "bench models", _content(results))
    parts = [report.parts_table(results)] if any(r.breakdown for r in results) else []
    _finish(console, results, report.models_table(results), *parts)
    _draw(options.plot, plots.plot_models, results)
    _draw(options.parts_plot, plots.plot_parts, [r.to_dict() for r in results])
    _judge(results)


def bench_limits(options: Limits) -> None:
    """Measure memory bandwidth, an upper limit for aggregation: streaming, and random rows by length."""
    widths = limits.row_lengths(numbers("widths", options.widths))
    size = limits.default_bytes() if options.megabytes is None else options.megabytes << 20
    console = begin(options.threads)
    with progress() as bar:
        bar.describe("streaming")
        streams = limits.streaming(size, options.rounds)
        bar.describe("gathering rows")
        roofs = limits.random_gather(widths, size, options.rounds)
    console.print(report.limits_table(streams, roofs, f"buffers of {size >> 20} MiB"))
    sums: list[ops.CaseResult] = []
    if options.graph is not None:
        with progress(len(widths), options.graph) as bar:
            workload, cases = sources.structure(options.graph), [("sum", width) for width in widths]
            for result in ops.measure(workload, cases, [], options.rounds, BUDGET_S):
                sums.append(result)
                bar.advance()
        console.print(report.roof_table(sums, roofs))
    content = {
        "buffer_bytes": size,
        "streaming": {name: bandwidth.to_dict() for name, bandwidth in streams.items()},
        "gather": [roof.to_dict() for roof in roofs],
        "graph": [result.to_dict() for result in sums],
    }
    write_json(options.json, "bench limits", content)
    _finish(console, sums)
    _draw(options.plot, plots.plot_limits, streams, roofs, sums)
    _judge(sums)


def bench_serve(options: Serve) -> None:
    """Time PyG models on the CPU, with a new graph per request: latencies at a rate, and requests per second.

    Worker processes answer one request at a time under torch.inference_mode(), alternately with PyG alone and
    with onehop.patch(). Latencies count from the arrival of a request, so they include waiting time.
    """
    chosen, sizes = one_of("models", options.model_names, SERVED), graph_sizes("sizes", options.sizes)
    load = serving.Load(options.rate, options.seconds, options.rounds, options.seed)
    cases = [Case(model, *size, serving.WIDTH, options.seed) for size in sizes for model in chosen]
    processes = min(cores(), 2) if options.processes is None else options.processes
    asked = {
        "processes": processes,
        "threads_a_process": options.threads,
        "seconds": options.seconds,
        "seed": options.seed,
    }
    console = begin(options.threads)
    results: list[serving.ServingResult] = []
    with progress(len(cases), still=True) as bar, Servers(processes, options.threads) as servers:
        bar.describe(f"starting {_count(processes, 'worker')}")
        for result in serving.measure(servers, cases, load):
            results.append(result)
            write_json(options.json, "bench serve", {**asked, **_content(results)}, complete=False)
            bar.advance(f"{result.where} done")
    write_json(options.json, "bench serve", {**asked, **_content(results)})
    workers = f"{_count(processes, 'worker')} of {_count(options.threads, 'thread')}"
    for part in (report.serving_table(results, workers), *report.serving_notes(results)):
        console.print(part)
    _draw(options.plot, plots.plot_serving, results)
    if any(result.is_wrong for result in results):
        raise typer.Exit(WRONG)


def _content(results: Sequence[Any]) -> dict[str, Any]:
    return {"results": [result.to_dict() for result in results]}


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _finish(console: Console, results: Results, *tables: Table) -> None:
    """Print tables, and notes on cases that were omitted or whose results were wrong."""
    for part in (*tables, *report.notes(results)):
        console.print(part)


def _draw(path: Path | None, draw: Callable[..., None], *found: Any) -> None:
    if path is not None:
        draw(*found, machine_line(), path)


def _judge(results: Results) -> None:
    """End with a separate exit code if a result of onehop itself is wrong."""
    if report.onehop_is_wrong(results):
        raise typer.Exit(WRONG)
