"""PyG's loader of sampled neighbourhoods, without its warnings."""

import warnings
from typing import Any

from torch import Tensor

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
