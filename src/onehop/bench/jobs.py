"""Jobs of the benchmark: which model is measured on which graph, and at which width."""

from collections.abc import Sequence
from dataclasses import dataclass

from onehop import datasets
from onehop.bench import graphs, sources
from onehop.bench.recipes import PUBLISHED, recipe
from onehop.bench.tasks import LearningTask

# Of models whose authors chose none.
WIDTHS = (32, 128)


@dataclass(frozen=True)
class ModelsOfGraph:
    """The models of one graph.

    Attributes:
        source: What names the graph.
        own: Whether the name is a key of :data:`onehop.bench.sources.OWN`, not what ``--graphs`` takes.
        cases: Models, each with a width between its layers.
    """

    source: str
    own: bool
    cases: tuple[tuple[str, int], ...]

    def load(self, progress: datasets.Progress | None = None) -> LearningTask:
        """The task on the graph."""
        if self.own:
            return sources.own_task(self.source, progress)
        return LearningTask.of(sources.training_set(self.source, progress))


def jobs(
    models: Sequence[str], graph_names: Sequence[str] | None = None, hidden: Sequence[int] | None = None
) -> list[ModelsOfGraph]:
    """Everything to be measured, graph by graph.

    Args:
        models: Keys of :data:`onehop.bench.recipes.RECIPES`.
        graph_names: What ``--graphs`` names, for all models alike; None means that each published model is
            trained on the graph of its authors, and the others on all benchmark graphs.
        hidden: Widths of all models; None means those of the authors, and 32 and 128 for the others.
    """
    found = []
    if graph_names is not None:
        found = [ModelsOfGraph(name, False, _cases(models, hidden)) for name in graph_names]
    else:
        published = [model for model in models if model in PUBLISHED]
        for own in dict.fromkeys(PUBLISHED[model].graph for model in published):
            if own is not None:
                chosen = [model for model in published if PUBLISHED[model].graph == own]
                found.append(ModelsOfGraph(own, True, _cases(chosen, hidden)))
        others = [model for model in models if model not in PUBLISHED]
        if others:
            found += [ModelsOfGraph(name, False, _cases(others, hidden)) for name in graphs.GRAPHS]
    return found


def _cases(models: Sequence[str], hidden: Sequence[int] | None) -> tuple[tuple[str, int], ...]:
    return tuple((model, width) for model in models for width in hidden or _widths(model))


def _widths(model: str) -> tuple[int, ...]:
    own = recipe(model).hidden
    return WIDTHS if own is None else (own,)
