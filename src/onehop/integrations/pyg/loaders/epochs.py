"""Batch numbers for PyG's node and link loaders, which give each batch its own random numbers.

A worker knows its loader's seed, its own number, and the numbers of its batches, because torch distributes
batches in turn. Workers that persist after an epoch get a new fetcher from torch for each epoch, and count
these.
"""

from collections.abc import Callable
from typing import Any

from torch.utils.data import get_worker_info
from torch.utils.data.dataloader import _DatasetKind
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.sampler import HGTSampler, NeighborSampler

from onehop.integrations.pyg.loaders.neighbours import Inherited, draws_neighbours, needed
from onehop.integrations.rows import Row, replacing
from onehop.loaders.keys import drawing_at
from onehop.loaders.neighbor_sampler import NeighborSampler as OwnSampler

# The attributes that onehop adds to loaders; the second one only in workers.
_INHERITED, _EPOCHS = "_onehop_inherited", "_onehop_epochs"


def rows() -> list[Row]:
    """Return the rows of the patch table."""
    return [
        replacing(NodeLoader, "__iter__", _iterate),
        replacing(LinkLoader, "__iter__", _iterate),
        replacing(_DatasetKind, "create_fetcher", _create_fetcher),
    ]


class Numbered:
    """Makes the batches of one epoch in one process; the draws for a batch depend on its number.

    Attributes:
        base: The seed of the loader's iterator.
        epoch: The number of epochs with this seed before the current one.
        number: The number of the next batch.
        step: The difference between consecutive batch numbers, which is the number of workers.
    """

    def __init__(self, collate: Callable[[Any], Any], base: int, epoch: int, number: int, step: int) -> None:
        self.collate, self.base, self.epoch, self.number, self.step = collate, base, epoch, number, step

    def __call__(self, chosen: Any) -> Any:
        """Makes a batch."""
        number, self.number = self.number, self.number + self.step
        with drawing_at(self.base, self.epoch, number):
            return self.collate(chosen)


def _iterate(theirs: Callable[..., Any], loader: Any) -> Any:
    """Begins an epoch: numbers the batches that this process will make."""
    if _is_ours(loader):
        loader.__dict__.setdefault(_INHERITED, Inherited())
    iterator = theirs(loader)
    # PyG's iterator may wrap torch's, which draws a seed whenever it starts, even without workers.
    plain = getattr(iterator, "iterator", iterator)
    fetcher = getattr(plain, "_dataset_fetcher", None)
    if fetcher is not None:
        fetcher.collate_fn = Numbered(fetcher.collate_fn, plain._base_seed, 0, 0, 1)
    return iterator


def _is_ours(loader: Any) -> bool:
    """Return whether onehop draws the batches of a loader."""
    sampler = getattr(loader, "node_sampler", None) or getattr(loader, "link_sampler", None)
    if isinstance(sampler, NeighborSampler):
        return draws_neighbours()
    return needed() if isinstance(sampler, HGTSampler) else isinstance(sampler, OwnSampler)


def _create_fetcher(
    theirs: Callable[..., Any],
    kind: Any,
    dataset: Any,
    auto_collation: bool,
    collate_fn: Any,
    drop_last: bool,
) -> Any:
    """Begins an epoch in a worker: numbers the worker's batches."""
    worker, loader = get_worker_info(), getattr(collate_fn, "__self__", None)
    if worker is None or not isinstance(loader, NodeLoader | LinkLoader):
        return None
    epoch = loader.__dict__[_EPOCHS] = loader.__dict__.get(_EPOCHS, -1) + 1
    numbered = Numbered(collate_fn, worker.seed - worker.id, epoch, worker.id, worker.num_workers)
    return theirs(kind, dataset, auto_collation, numbered, drop_last)
