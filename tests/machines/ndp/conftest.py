"""A graph of which a machine has a few windows, and features of its nodes."""

import pytest
import torch

from onehop.graph import Graph
from tests.machines.ndp.graphs import random_graph


@pytest.fixture
def graph() -> Graph:
    return random_graph(600, 6000)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(600, 48, generator=torch.Generator().manual_seed(1))
