"""A data set: a graph, and what is known about its nodes."""

from collections.abc import Callable
from dataclasses import dataclass, fields

from torch import Tensor

from onehop.errors import ArgumentError

# Called with the current step, and the share of the whole that is done, from 0 to 1.
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Dataset:
    """A graph for node classification, on the CPU.

    Attributes:
        name: The data set's name in tables.
        edge_index: [2, E], int64: sources in row 0, destinations in row 1.
        num_nodes: N.
        x: [N, F], float32; None if nodes have no features.
        y: [N], int64, from 0 to ``num_classes - 1``, -1 if unknown; None if nodes have no labels.
        num_classes: Number of classes; 0 without labels.
        train_mask: [N], bool: nodes for training; None if there is no split.
        val_mask: [N], bool: nodes for validation.
        test_mask: [N], bool: nodes for testing.

    Raises:
        ArgumentError: A tensor's length does not fit ``num_nodes``.

    Examples:
        >>> import torch
        >>> from onehop.datasets import Dataset
        >>> Dataset(name="mine", edge_index=torch.tensor([[0, 0, 1], [1, 2, 2]]), num_nodes=3)
        Dataset('mine', num_nodes=3, num_edges=3, num_features=0, num_classes=0)
    """

    name: str
    edge_index: Tensor
    num_nodes: int
    x: Tensor | None = None
    y: Tensor | None = None
    num_classes: int = 0
    train_mask: Tensor | None = None
    val_mask: Tensor | None = None
    test_mask: Tensor | None = None

    def __post_init__(self) -> None:
        if self.edge_index.dim() != 2 or self.edge_index.size(0) != 2:
            raise ArgumentError(f"edge_index: expected shape [2, E], got {list(self.edge_index.shape)}.")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor) and field.name != "edge_index" and value.size(0) != self.num_nodes:
                raise ArgumentError(
                    f"{field.name}: expected one entry for each of the {self.num_nodes} nodes, got "
                    f"{value.size(0)}."
                )

    @property
    def num_edges(self) -> int:
        """E, the number of edges; each direction counts."""
        return self.edge_index.size(1)

    @property
    def num_features(self) -> int:
        """F, the number of features; 0 without features."""
        return 0 if self.x is None else self.x.size(1)

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}, num_nodes={self.num_nodes}, num_edges={self.num_edges}, "
            f"num_features={self.num_features}, num_classes={self.num_classes})"
        )
