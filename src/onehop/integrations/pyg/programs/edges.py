"""Edges of an attention layer that is traced, on their way through PyG's ``forward``."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, slots=True)
class EdgesInProgram:
    """A stand-in for ``edge_index`` in the ``forward`` of an attention layer that onehop's operators run.

    It is no tensor, so ``forward`` leaves its self loops alone: with them, the shape of the edges would
    depend on the data.

    Attributes:
        edge_index: [2, E].
        kind: Of the scores: "gat", "gatv2" or "dot".
    """

    edge_index: Tensor
    kind: str


@dataclass(frozen=True, slots=True)
class ScoredInProgram:
    """A stand-in for the attention weights: the operands of ``edge_updater``, by name."""

    operands: dict[str, Any]
