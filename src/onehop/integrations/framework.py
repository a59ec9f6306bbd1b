"""Frameworks that can be patched, each a table of rows, and a selection of them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from onehop.integrations.rows import Row
from onehop.integrations.settings import Settings

PYG, DGL, TORCH = "pyg", "dgl", "torch"


class Framework(ABC):
    """A framework that can be patched. It holds the rows of its patch table while they are installed."""

    name: str

    def __init__(self) -> None:
        self._rows: list[Row] = []

    @abstractmethod
    def layers(self) -> tuple[str, ...]:
        """The class names that ``patch(only=...)`` takes."""

    @abstractmethod
    def rows(self, settings: Settings) -> list[Row]:
        """The rows of the patch table for these settings."""

    def install(self, settings: Settings) -> None:
        """Installs the rows; has no effect if there are some already."""
        if not self._rows:
            self.add(self.rows(settings))

    def add(self, rows: list[Row]) -> None:
        """Installs more rows."""
        self._rows += rows
        for row in rows:
            row.install()

    def remove(self) -> None:
        """Restores what the rows replaced."""
        for row in reversed(self._rows):
            row.restore()
        self._rows = []

    def replaced(self) -> list[str]:
        """The dotted names of everything that is replaced now."""
        return [row.name for row in self._rows]

    @abstractmethod
    def silence(self, module: Any) -> str | None:
        """Return why a layer of this framework never reached the patch; None if it is no such layer."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The frameworks and layers that a patch includes.

    Attributes:
        frameworks: The frameworks.
        layers: The names of the layer classes; None means all.
    """

    frameworks: tuple[Framework, ...]
    layers: frozenset[str] | None
