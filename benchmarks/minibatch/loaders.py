"""PyG's loader of sampled neighbourhoods, without its warnings, and how long it takes."""

import time
import warnings
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from onehop.bench.timing import quantile

with warnings.catch_warnings():
    # PyG calls torch.jit.script while it is imported, which newer releases of torch deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric import nn as nn
    from torch_geometric.data import Batch as Batch, Data as Data
    from torch_geometric.loader import NeighborLoader

SEEDS = 1024
"""Seeds of a batch."""


def loader_of(data: Data, fan_out: list[int], seeds: Tensor, shuffle: bool = False) -> Any:
    """PyG's loader; which library draws for it is decided when it does."""
    with warnings.catch_warnings():
        # PyG would rather have pyg-lib draw the neighbours; torch-sparse draws the same ones.
        warnings.simplefilter("ignore", UserWarning)
        return NeighborLoader(data, fan_out, input_nodes=seeds, batch_size=SEEDS, shuffle=shuffle)


def draws(loader: Any, batches: int) -> float:
    """Median seconds of the sampler alone."""
    seconds = []
    for indices in islice(loader.batch_sampler, batches):
        inputs = loader.input_data[torch.tensor(indices)]
        begin = time.perf_counter()
        loader.node_sampler.sample_from_nodes(inputs)
        seconds.append(time.perf_counter() - begin)
    return quantile(seconds, 0.5)


def whole(loader: Any, batches: int) -> float:
    """Median seconds of a batch with its features."""
    seconds, iterator = [], iter(loader)
    for _ in range(min(batches, len(loader))):
        begin = time.perf_counter()
        next(iterator)
        seconds.append(time.perf_counter() - begin)
    return quantile(seconds, 0.5)
