"""``onehop demo``: unchanged PyG models, alone and patched."""

from pathlib import Path
from typing import Annotated, Any

import typer

from onehop import sizes
from onehop.bench import sources
from onehop.bench.lists import one_of
from onehop.bench.plots import plot_demo
from onehop.bench.recipes import PUBLISHED, recipe
from onehop.bench.report import milliseconds
from onehop.bench.results import write_json
from onehop.bench.runs import Order, Run, run, saved
from onehop.bench.sources import ModelsOfGraph, jobs
from onehop.bench.stamp import machine_line
from onehop.bench.tasks import LearningTask
from onehop.bench.variants import ONEHOP, PYG
from onehop.cli.console import begin, progress
from onehop.cli.options import Chart, Json, Threads
from onehop.sizes import mebibytes
from onehop.tables import Column, Table

# Names of models here that differ from those of onehop.bench.recipes.
_MODELS = {"gin": "gin-norm"}
TITLES = {
    "ogb-gcn": "OGB's GCN",
    "ogb-sage": "OGB's SAGE",
    "cora-gcn": "PyG's gcn.py",
    "cora-gat": "PyG's gat.py",
    "gat": "GAT",
    "gcn": "GCN",
    "sage": "GraphSAGE",
    "gin": "GIN",
    "gatv2": "GATv2",
    "transformer": "Transformer",
    "ogb-gat": "OGB's GAT",
    "products-gcn": "GCN, products",
    "products-sage": "SAGE, products",
}
DEFAULT = ("ogb-gcn", "ogb-sage", "cora-gcn", "cora-gat", "gat")
_WIDTH = 64
# With PyG alone, an epoch of the published models takes many seconds; an epoch on Cora takes milliseconds.
_PUBLISHED_EPOCHS, _ATTENTION_EPOCHS, _EPOCHS, _CORA_EPOCHS = 3, 2, 8, 100


def demo(
    graph: Annotated[
        str | None,
        typer.Option(
            help=f"{sources.GRAPH_HELP} By default that of each model's authors, twin:arxiv for the others."
        ),
    ] = None,
    model: Annotated[
        str, typer.Option("--models", "--model", help=f"With commas, or all: {', '.join(TITLES)}.")
    ] = ",".join(DEFAULT),
    hidden: Annotated[
        int | None,
        typer.Option(help=f"Width between layers; by default the authors', {_WIDTH} for the others.", min=1),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help=f"Epochs of each training run; by default {_ATTENTION_EPOCHS} to {_CORA_EPOCHS}.", min=1
        ),
    ] = None,
    threads: Threads = None,
    plot: Chart = Path("onehop-demo.png"),
    json: Json = None,
) -> None:
    """Trains plain PyG models with PyG alone and with onehop.patch(), and compares."""
    models = one_of("models", model, tuple(TITLES))
    console = begin(threads)
    tasks: list[LearningTask] = []
    rows: list[dict[str, Any]] = []
    named = [graph] if graph else None
    hiddens = [hidden] if hidden else None
    for job in jobs(models, named, hiddens, elsewhere=[("arxiv", True)], widths=[_WIDTH]):
        with progress() as bar:
            task = job.load(bar.share)
        nodes, edges = task.x.size(0), task.edge_index.size(1)
        console.print(
            f"[bold]{task.name}[/bold]: {nodes:,} nodes, {edges:,} edges, {task.x.size(1)} features"
        )
        for note in task.notes:
            console.print(f"Note: {note}.")
        tasks.append(task)
        rows += _train(task, job, epochs)
    console.print(Table(_COLUMNS, rows))
    before = max(row[variant]["loaded_bytes"] for row in rows for variant in ("pyg", "onehop"))
    console.print(
        "PyG is plain PyG, onehop the same model after onehop.patch(). Epoch times are medians without the "
        "first epoch; peak memory is the whole process's, of which up to "
        f"{sizes.readable(before)} are there before training (Python, torch, PyG, the data); "
        "accuracy is that on the test nodes."
    )
    graphs = ", ".join(dict.fromkeys(task.name for task in tasks))
    plot_demo(rows, graphs, machine_line(), plot)
    console.print(f"Chart: {plot}")
    content = {
        "graph": graphs,
        "nodes": tasks[0].x.size(0),
        "edges": tasks[0].edge_index.size(1),
        "hidden": rows[0]["hidden"],
        "epochs": max(row["epochs"] for row in rows),
        "notes": [note for task in tasks for note in task.notes],
    }
    write_json(json, "demo", {**content, "models": rows})


def _length(model: str, job: ModelsOfGraph) -> int:
    """Return the epochs of a model, chosen so that all of them take a few minutes on two cores."""
    if job.is_own and job.source == "cora":
        return _CORA_EPOCHS
    if model in PUBLISHED:
        return _PUBLISHED_EPOCHS
    return _ATTENTION_EPOCHS if recipe(_MODELS.get(model, model)).attention else _EPOCHS


def _train(task: LearningTask, job: ModelsOfGraph, epochs: int | None) -> list[dict[str, Any]]:
    rows = []
    lengths = {model: epochs or _length(model, job) for model, _ in job.cases}
    with saved(task) as path, progress(2 * sum(lengths.values())) as bar:
        for model, hidden in job.cases:
            runs = []
            for way, title in ((PYG.name, "PyG alone"), (ONEHOP.name, "with onehop")):
                bar.describe(f"{TITLES[model]}, {title}")
                order = Order(path, _MODELS.get(model, model), way, hidden, lengths[model])
                runs.append(run(order, bar.advance))
            where = {"graph": task.name, "hidden": hidden, "epochs": lengths[model]}
            rows.append({**where, **_row(model, *runs)})
    return rows


def _row(model: str, pyg: Run, onehop: Run) -> dict[str, Any]:
    return {
        "model": model,
        "title": TITLES[model],
        "pyg": pyg.to_dict(),
        "onehop": onehop.to_dict(),
        "speedup": pyg.epoch_s / onehop.epoch_s,
        "peak_memory_ratio": pyg.peak_bytes / onehop.peak_bytes,
        "largest_loss_difference": max(abs(a - b) for a, b in zip(pyg.losses, onehop.losses, strict=True)),
    }


_COLUMNS = (
    Column("model", "title", left=True, wraps=False),
    Column("graph", "graph", left=True, wraps=False),
    Column("hidden", "hidden"),
    Column("epoch\nPyG", lambda row: _epoch(row["pyg"])),
    Column("epoch\nonehop", lambda row: _epoch(row["onehop"])),
    Column("speed-up", "speedup", "{:.1f}x", style="bold"),
    Column("peak MiB\nPyG", lambda row: mebibytes(row["pyg"]["peak_bytes"])),
    Column("peak MiB\nonehop", lambda row: mebibytes(row["onehop"]["peak_bytes"])),
    Column("largest loss\ndifference", "largest_loss_difference", "{:.1e}"),
    Column("accuracy\nPyG", lambda row: row["pyg"]["test_accuracy"], "{:.1%}"),
    Column("accuracy\nonehop", lambda row: row["onehop"]["test_accuracy"], "{:.1%}"),
)


def _epoch(run: dict[str, Any]) -> str:
    return f"{milliseconds(run['epoch_s'])} ms"
