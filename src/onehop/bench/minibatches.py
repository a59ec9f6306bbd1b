"""Mini-batches, as PyG's ``NeighborLoader`` draws them."""

import importlib.util
import warnings
from collections.abc import Iterable
from typing import Any

from onehop.bench.tasks import LearningTask

# Nodes whose labels a batch learns from, as PyG's examples have it.
SEEDS = 1024
_SAMPLERS = ("pyg_lib", "torch_sparse")


def sampler_reason() -> str | None:
    """The reason why no mini-batches can be drawn here; None if they can."""
    if any(importlib.util.find_spec(name) is not None for name in _SAMPLERS):
        return None
    return "PyG's NeighborLoader needs pyg-lib or torch_sparse, and neither is installed"


def batches(task: LearningTask, fan_out: tuple[int, ...]) -> Iterable[Any]:
    """The batches of an epoch, drawn anew at each iteration, from torch's generator."""
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    data = Data(x=task.x, edge_index=task.edge_index, y=task.y)
    with warnings.catch_warnings():
        # PyG would rather have pyg-lib draw the neighbours; torch_sparse draws them as well.
        warnings.simplefilter("ignore", UserWarning)
        loader: Iterable[Any] = NeighborLoader(
            data, list(fan_out), input_nodes=task.train_mask, batch_size=SEEDS, shuffle=True
        )
    return loader
