"""Small operands for the tests of the benchmarks."""

import torch

from onehop.bench.cases import Workload
from onehop.bench.tasks import LearningTask
from onehop.datasets import chung_lu


def workload(num_nodes=40, num_edges=300):
    """Random edges with repeated ones, self loops and, at the end, nodes without any."""
    generator = torch.Generator().manual_seed(5)
    edge_index = torch.randint(num_nodes - 3, (2, num_edges), generator=generator)
    return Workload("small", edge_index, num_nodes)


def simple_workload(num_nodes=40, num_edges=300):
    """Random edges, none repeated, no self loops: PyG itself treats those differently by input type."""
    return Workload("small", chung_lu(num_nodes, num_edges), num_nodes)


def task(num_nodes=40):
    """Features that tell the class."""
    edges = simple_workload(num_nodes).edge_index
    y = torch.arange(num_nodes) % 3
    x = torch.nn.functional.one_hot(y, 8).float()
    train = torch.arange(num_nodes) % 2 == 0
    return LearningTask("small", edges, x, y, 3, train, ~train)
