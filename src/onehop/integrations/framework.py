"""A framework that can be patched, and a choice among them."""

from dataclasses import dataclass
from typing import Any, Protocol

from onehop.integrations.settings import Settings

PYG, DGL, TORCH = "pyg", "dgl", "torch"


class Framework(Protocol):
    """A framework that can be patched."""

    name: str

    def layers(self) -> tuple[str, ...]:
        """The layer names that ``only`` may list."""
        ...

    def install(self, settings: Settings) -> None:
        """Puts in place what the settings ask for; again does nothing."""
        ...

    def remove(self) -> None:
        """Puts theirs back."""
        ...

    def replaced(self) -> list[str]:
        """The dotted names of what is ours now."""
        ...

    def silence(self, module: Any) -> str | None:
        """Return why a layer of this framework never reached the patch; None if it is no such layer."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """The frameworks and layers that a patch is for.

    Attributes:
        frameworks: Whose layers.
        layers: The names of their classes; None means all.
    """

    frameworks: tuple[Framework, ...]
    layers: frozenset[str] | None
