"""``onehop demo``: unchanged PyG models, alone and patched."""

from typing import Any

from onehop import sizes
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
from onehop.cli.arguments.demo import Options
from onehop.cli.choices import DEMO_WIDTH
from onehop.cli.console import begin, progress
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
# With PyG alone, an epoch of the published models takes many seconds; an epoch on Cora takes milliseconds.
_PUBLISHED_EPOCHS, _ATTENTION_EPOCHS, _EPOCHS, _CORA_EPOCHS = 3, 2, 8, 100


def demo(options: Options) -> None:
    """Train the models of ``onehop demo``; see :class:`Options`."""
    models = one_of("models", options.models, tuple(TITLES))
    console = begin(options.threads)
    tasks: list[LearningTask] = []
    rows: list[dict[str, Any]] = []
    named = [options.graph] if options.graph else None
    hiddens = [options.hidden] if options.hidden else None
    for job in jobs(models, named, hiddens, elsewhere=[("arxiv", True)], widths=[DEMO_WIDTH]):
        with progress() as bar:
            task = job.load(bar.share)
        nodes, edges = task.x.size(0), task.edge_index.size(1)
        console.print(
            f"[bold]{task.name}[/bold]: {nodes:,} nodes, {edges:,} edges, {task.x.size(1)} features"
        )
        for note in task.notes:
            console.print(f"Note: {note}.")
        tasks.append(task)
        rows += _train(task, job, options.epochs)
    console.print(Table(_COLUMNS, rows))
    before = max(row[variant]["loaded_bytes"] for row in rows for variant in ("pyg", "onehop"))
    console.print(
        "PyG is plain PyG, onehop the same model after onehop.patch(). Epoch times are medians without the "
        "first epoch; peak memory is the whole process's, of which up to "
        f"{sizes.readable(before)} are there before training (Python, torch, PyG, the data); "
        "accuracy is that on the test nodes."
    )
    graphs = ", ".join(dict.fromkeys(task.name for task in tasks))
    if options.plot is not None:
        plot_demo(rows, graphs, machine_line(), options.plot)
        console.print(f"Chart: {options.plot}")
    content = {
        "graph": graphs,
        "nodes": tasks[0].x.size(0),
        "edges": tasks[0].edge_index.size(1),
        "hidden": rows[0]["hidden"],
        "epochs": max(row["epochs"] for row in rows),
        "notes": [note for task in tasks for note in task.notes],
    }
    write_json(options.json, "demo", {**content, "models": rows})


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
