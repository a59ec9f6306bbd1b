from pathlib import Path

import numpy as np
import pytest
import torch
from inference_inputs import NODES, WIDTH
from torch import Tensor

from onehop import Graph
from onehop.graph.stored import StoredGraph


@pytest.fixture
def stored(edge_index: Tensor, tmp_path: Path) -> StoredGraph:
    return Graph.from_edge_index(edge_index, NODES).save(tmp_path / "graph")


@pytest.fixture
def x(tmp_path: Path, generator: torch.Generator) -> Tensor:
    values = torch.randn(NODES, WIDTH, generator=generator)
    np.save(tmp_path / "x.npy", values.numpy())
    return values
