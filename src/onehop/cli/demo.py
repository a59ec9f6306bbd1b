"""``onehop demo``: unchanged PyG models, alone and patched."""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table

from onehop.bench import sources
from onehop.bench.lists import one_of
from onehop.bench.models import ATTENTION_NAMES
from onehop.bench.plots import plot_demo
from onehop.bench.report import milliseconds
from onehop.bench.results import write_json
from onehop.bench.runs import Order, Run, run
from onehop.bench.stamp import machine_line
from onehop.bench.tasks import Task, save_task
from onehop.cli.console import output, progress
from onehop.cli.options import Json, Threads, set_threads

# Models of onehop.bench.plain_models.
_MODELS = {"gin": "gin-norm"}
TITLES = {
    "gcn": "GCN",
    "sage": "GraphSAGE",
    "gin": "GIN",
    "gat": "GAT",
    "gatv2": "GATv2",
    "transformer": "Transformer",
}
_EPOCHS = 8
# PyG alone takes seconds for an epoch of these.
_ATTENTION_EPOCHS = 2


def demo(
    graph: Annotated[str, typer.Option(help=sources.GRAPH_HELP)] = "twin:arxiv",
    model: Annotated[str, typer.Option(help=f"{', '.join(TITLES)}, several with commas, or all.")] = "all",
    hidden: Annotated[int, typer.Option(help="Width between the two layers.", min=1)] = 64,
    epochs: Annotated[
        int | None,
        typer.Option(
            help=f"Epochs of each training run; by default {_EPOCHS}, for attention {_ATTENTION_EPOCHS}.",
            min=1,
        ),
    ] = None,
    threads: Threads = None,
    plot: Annotated[Path, typer.Option(metavar="FILE", help="The bar chart.")] = Path("onehop-demo.png"),
    json: Json = None,
) -> None:
    """Trains plain PyG models with PyG alone and with onehop.patch(), and compares."""
    models = one_of("model", model, tuple(TITLES))
    set_threads(threads)
    with progress() as bar:
        task = Task.of(sources.dataset(graph, bar.share))
    console = output()
    nodes, edges = task.x.size(0), task.edge_index.size(1)
    console.print(f"[bold]{task.name}[/bold]: {nodes:,} nodes, {edges:,} edges, {task.x.size(1)} features")
    for note in task.notes:
        console.print(f"Note: {note}.")
    lengths = {name: epochs or (_ATTENTION_EPOCHS if name in ATTENTION_NAMES else _EPOCHS) for name in models}
    different = " or ".join(str(count) for count in sorted(set(lengths.values()), reverse=True))
    console.print(f"{machine_line()}; {different} epochs, hidden {hidden}")
    rows = _train(task, lengths, hidden)
    console.print(_table(rows))
    before = max(row[variant]["loaded_bytes"] for row in rows for variant in ("pyg", "onehop"))
    console.print(
        "PyG is plain PyG, onehop the same model after onehop.patch(). Epoch times are medians without the "
        "first epoch; peak memory is the whole process's, of which "
        f"{_gigabytes(before)} are there before training (Python, torch, PyG, the data); "
        "accuracy is that on the test nodes."
    )
    plot_demo(rows, task.name, machine_line(), plot)
    console.print(f"Chart: {plot}")
    if json is not None:
        content = {
            "graph": task.name,
            "nodes": nodes,
            "edges": edges,
            "hidden": hidden,
            "epochs": max(lengths.values()),
        }
        write_json(json, "demo", {**content, "notes": task.notes, "models": rows})


def _train(task: Task, lengths: dict[str, int], hidden: int) -> list[dict[str, Any]]:
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="onehop-demo-") as folder,
        progress(2 * sum(lengths.values())) as bar,
    ):
        path = Path(folder) / "task.npz"
        save_task(task, path)
        for model, epochs in lengths.items():
            runs = []
            for patched in (False, True):
                bar.describe(f"{TITLES[model]}, {'with onehop' if patched else 'PyG alone'}")
                name = _MODELS.get(model, model)
                order = Order(str(path), name, patched, hidden, epochs, torch.get_num_threads())
                runs.append(run(order, bar.advance))
            rows.append(_row(model, *runs))
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


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(header_style="bold")
    table.add_column("model", no_wrap=True)
    for heading in (
        "epoch\nPyG",
        "epoch\nonehop",
        "speed-up",
        "peak mem.\nPyG",
        "peak mem.\nonehop",
        "largest loss\ndifference",
        "accuracy\nPyG",
        "accuracy\nonehop",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        pyg, onehop = row["pyg"], row["onehop"]
        table.add_row(
            row["title"],
            _epoch(pyg["epoch_s"]),
            _epoch(onehop["epoch_s"]),
            f"[bold]{row['speedup']:.1f}x[/bold]",
            _gigabytes(pyg["peak_bytes"]),
            _gigabytes(onehop["peak_bytes"]),
            f"{row['largest_loss_difference']:.1e}",
            f"{pyg['test_accuracy']:.1%}",
            f"{onehop['test_accuracy']:.1%}",
        )
    return table


def _epoch(seconds: float) -> str:
    return f"{milliseconds(seconds)} ms"


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
