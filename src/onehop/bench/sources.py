"""The graphs that ``--graph`` and ``--graphs`` name, and the models that are measured on each graph."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from onehop import datasets
from onehop.bench import graph_names, graphs
from onehop.bench.cases import Workload
from onehop.bench.recipes import recipe
from onehop.bench.tasks import LearningTask
from onehop.datasets import splits
from onehop.errors import ArgumentError

# At full size, PyG's messages for all edges of products would need a hundred gigabytes.
PRODUCTS_SCALE = 0.02
# Cora's public split has 20 training nodes per class, 500 nodes for validation and 1,000 for testing.
_PUBLIC = (20, 500 / 2_708, 1_000 / 2_708)
# Widths for models without their own graph, and for models whose authors chose no width.
WIDTHS = (32, 128)
_BENCHMARK_GRAPHS = tuple((name, False) for name in graphs.GRAPHS)


def dataset(
    source: str,
    progress: datasets.Progress | None = None,
    seed: int = 0,
    scale: float = 1.0,
    *,
    features: bool = True,
) -> datasets.Dataset:
    """Load the data set that ``source`` names.

    Args:
        source: A file, ``twin:NAME``, ``pyg:NAME`` or ``ogb:NAME``; or a twin's name alone.
        progress: Called with the current step and the share that is done.
        seed: Seed of a twin.
        scale: Multiplies a twin's numbers of nodes and edges.
        features: Whether a twin's features are generated.

    Raises:
        ArgumentError: The kind or the name is unknown, the file does not exist, or the data set cannot be
            scaled.
    """
    source = graph_names.full("graph", source)
    if scale != 1 and not source.startswith(graph_names.TWIN):
        raise ArgumentError(
            f"scale: only twins can be scaled, and {source!r} is none; leave --scale away or name a twin."
        )
    if source.startswith(datasets.PREFIXES):
        return datasets.load(source, seed, scale, progress, features=features)
    return datasets.from_file(source)


def structure(source: str) -> Workload:
    """Return the edges that ``source`` names: a benchmark graph's bare name, or as for :func:`dataset`."""
    if source in graphs.GRAPHS:
        return graphs.workload(source)
    data = dataset(source)
    return Workload(data.name, data.edge_index, data.num_nodes)


def _arxiv(progress: datasets.Progress | None) -> LearningTask:
    return LearningTask.of(datasets.twin("arxiv", progress=progress))


def _products(progress: datasets.Progress | None) -> LearningTask:
    return LearningTask.of(datasets.twin("products", scale=PRODUCTS_SCALE, progress=progress))


def _cora(progress: datasets.Progress | None) -> LearningTask:
    """Load Cora with features divided by their sums, from a file in ONEHOP_DATA's folder or as the twin."""
    folder = os.environ.get("ONEHOP_DATA")
    path = None if folder is None else Path(folder) / "cora.npz"
    if path is None or not path.exists():
        task = LearningTask.of(datasets.twin("cora", progress=progress)).row_normalised()
        note = "it stands for Cora, as ONEHOP_DATA names no folder with cora.npz"
        return replace(task, notes=(*task.notes, note))
    data = datasets.from_file(path)
    if data.y is None:
        raise ArgumentError(f"ONEHOP_DATA: {path} has no labels; expected Cora with its classes.")
    split = splits.by_class(data.y.numpy(), *_PUBLIC, np.random.default_rng(0))
    return LearningTask.of(replace(data, name="cora", **split._asdict())).row_normalised()


OWN: dict[str, Callable[[datasets.Progress | None], LearningTask]] = {
    "arxiv": _arxiv,
    "products": _products,
    "cora": _cora,
}
"""Loaders of the graphs of :data:`onehop.bench.recipes.PUBLISHED`."""


@dataclass(frozen=True)
class ModelsOfGraph:
    """The models that are measured on one graph.

    Attributes:
        source: The name of the graph.
        is_own: Whether the name is a key of :data:`OWN` instead of a value of ``--graphs``.
        cases: Models, each with a width between its layers.
    """

    source: str
    is_own: bool
    cases: tuple[tuple[str, int], ...]

    def load(self, progress: datasets.Progress | None = None) -> LearningTask:
        """Load the task on the graph."""
        if self.is_own:
            return OWN[self.source](progress)
        return LearningTask.of(dataset(self.source, progress))


def jobs(
    models: Sequence[str],
    graph_names: Sequence[str] | None = None,
    hidden: Sequence[int] | None = None,
    elsewhere: Sequence[tuple[str, bool]] = _BENCHMARK_GRAPHS,
    widths: Sequence[int] = WIDTHS,
) -> list[ModelsOfGraph]:
    """Return all measurements to make, graph by graph.

    Args:
        models: Keys of :data:`onehop.bench.recipes.RECIPES`.
        graph_names: The graphs of ``--graphs``, for all models. None means that each published model is
            trained on its authors' graph, and the other models on the graphs of ``elsewhere``.
        hidden: Widths of all models; None means the authors' widths, and ``widths`` for the other models.
        elsewhere: Graphs for models without their own graph, as the first two fields of a job.
        widths: Widths of models whose authors chose none.
    """
    grouped: dict[tuple[str, bool], list[tuple[str, int]]] = {}
    for model in models:
        model_recipe = recipe(model)
        places = elsewhere if model_recipe.graph is None else [(model_recipe.graph, True)]
        if graph_names is not None:
            places = [(name, False) for name in graph_names]
        for place in places:
            chosen = hidden or (widths if model_recipe.hidden is None else (model_recipe.hidden,))
            grouped.setdefault(place, []).extend((model, width) for width in chosen)
    return [ModelsOfGraph(*place, tuple(cases)) for place, cases in grouped.items()]
