"""The twins of the works' graphs; and progress, which long computations report."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

from onehop import datasets
from onehop.datasets import Progress as Progress
from onehop.graph import Graph

T = TypeVar("T", bound="Twin")


def silent(_what: str, _done: float) -> None:
    """Reports nothing."""


def part(progress: Progress, begin: float, end: float) -> Progress:
    """The progress of a part of a computation, which begins and ends at these shares of the whole."""
    return lambda what, done: progress(what, begin + (end - begin) * done)


@dataclass(frozen=True)
class Twin:
    """A graph of a work: a twin, or a part of one.

    Attributes:
        name: The twin's name, one of :func:`onehop.datasets.names`.
        quick_scale: Part of its nodes and edges that a quick run uses.
        scale: Part that is used.
        seed: Seed of the generator.
    """

    name: str
    quick_scale: float
    scale: float = field(default=1.0, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def of_run(self, quick: bool) -> Self:
        """The twin that a run uses."""
        return replace(self, scale=self.quick_scale) if quick else self

    @property
    def label(self) -> str:
        """The twin's name in rows and pictures."""
        return f"{self.name} twin" if self.scale == 1 else f"{self.name} twin x {self.scale:g}"

    def data(self, progress: Progress = silent, *, features: bool = False) -> datasets.Dataset:
        """The twin's edges, labels and split; its features only with ``features``."""
        return datasets.load(
            f"twin:{self.name}", self.seed, scale=self.scale, progress=progress, features=features
        )

    def graph(self, progress: Progress) -> Graph:
        """The twin's structure."""
        data = self.data(progress)
        return Graph.from_edge_index(data.edge_index, num_nodes=data.num_nodes)


def loaded(twins: Sequence[T], progress: Progress) -> Iterator[tuple[T, Graph, Progress]]:
    """Yields each twin with its structure, and the progress of what is computed on it."""
    for number, one in enumerate(twins):
        begin, middle, end = ((number + done) / len(twins) for done in (0.0, 0.4, 1.0))
        yield one, one.graph(part(progress, begin, middle)), part(progress, middle, end)
