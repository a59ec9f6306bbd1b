"""Mini-batches, as PyG's ``NeighborLoader`` draws them: the same batches for every way of training.

PyG draws with pyg-lib or torch-sparse where it has one of them, with and without the patch, from torch's
generator. Where it has neither, onehop's sampler is given to PyG's loader, with a seed: the same nodes have
the same neighbours, patched or not.
"""

import warnings
from collections.abc import Iterable
from typing import Any

from onehop.bench.tasks import LearningTask

# Nodes whose labels a batch learns from, as PyG's examples have it.
SEEDS = 1024
# Batches of an epoch at most: the first training nodes alone, for with all of arxiv's PyG takes a minute.
MOST_BATCHES = 16
ONEHOP = "onehop"
_DRAWS_SEED = 0


def pygs_sampler() -> str | None:
    """The package that PyG draws neighbours with here; None if it has none."""
    from torch_geometric import typing

    if typing.WITH_PYG_LIB:
        return "pyg-lib"
    return "torch-sparse" if typing.WITH_TORCH_SPARSE else None


def drawn_by() -> str:
    """The sampler of the batches: PyG's own package where there is one, as for its users, or else onehop."""
    return pygs_sampler() or ONEHOP


def batches(task: LearningTask, fan_out: tuple[int, ...]) -> Iterable[Any]:
    """The batches of an epoch, shuffled anew at each iteration, from torch's generator."""
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    import onehop

    data = Data(x=task.x, edge_index=task.edge_index, y=task.y)
    sampler = None
    if pygs_sampler() is None:
        graph = onehop.Graph.from_edge_index(task.edge_index, task.x.size(0))
        sampler = onehop.NeighborSampler(graph, fan_out, seed=_DRAWS_SEED)
    with warnings.catch_warnings():
        # PyG would rather have pyg-lib draw the neighbours; torch_sparse draws them as well.
        warnings.simplefilter("ignore", UserWarning)
        loader: Iterable[Any] = NeighborLoader(
            data,
            list(fan_out),
            input_nodes=task.train_mask.nonzero().view(-1)[: MOST_BATCHES * SEEDS],
            neighbor_sampler=sampler,
            batch_size=SEEDS,
            shuffle=True,
        )
    return loader
