"""The twins of the works' graphs, and the progress that long computations report."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

from onehop import datasets
from onehop.datasets import Progress as Progress
from onehop.graph import Graph

T = TypeVar("T", bound="Twin")


def silent(_what: str, _done: float) -> None:
    """Ignore progress."""


def part(progress: Progress, begin: float, end: float) -> Progress:
    """Return the progress function of a part of a computation between two shares of the whole."""
    return lambda what, done: progress(what, begin + (end - begin) * done)


@dataclass(frozen=True)
class Twin:
    """A graph of a work: a twin, or a part of a twin.

    Attributes:
        name: The twin's name, one of :func:`onehop.datasets.names`.
        quick_scale: Share of the twin's nodes and edges that a quick run uses.
        scale: Share of the twin's nodes and edges that is used.
        seed: Seed of the generator.
    """

    name: str
    quick_scale: float
    scale: float = field(default=1.0, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def of_run(self, quick: bool) -> Self:
        """Return the twin that a run uses."""
        return replace(self, scale=self.quick_scale) if quick else self

    @property
    def label(self) -> str:
        """The twin's name in rows and pictures."""
        return f"{self.name} twin" if self.scale == 1 else f"{self.name} twin x {self.scale:g}"

    def data(self, progress: Progress = silent, *, features: bool = False) -> datasets.Dataset:
        """Load the twin's edges, labels and split, and its features if requested."""
        return datasets.load(
            f"twin:{self.name}", self.seed, scale=self.scale, progress=progress, features=features
        )

    def graph(self, progress: Progress) -> Graph:
        """Return the twin's structure."""
        data = self.data(progress)
        return Graph.from_edge_index(data.edge_index, num_nodes=data.num_nodes)


def loaded(twins: Sequence[T], progress: Progress) -> Iterator[tuple[T, Graph, Progress]]:
    """Yield each twin with its structure, and a progress function for what is computed on it."""
    for number, one in enumerate(twins):
        begin, middle, end = ((number + done) / len(twins) for done in (0.0, 0.4, 1.0))
        yield one, one.graph(part(progress, begin, middle)), part(progress, middle, end)
