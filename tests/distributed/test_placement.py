"""Layers on the edges of a part refuse tensors that lie elsewhere."""

import pytest
import torch

import onehop
from onehop import ArgumentError
from onehop.distributed import DistributedGraph
from tests.distributed.cases import NODES, hostile
from tests.distributed.test_layers_of_one_process import _alone  # noqa: F401 - makes the group

pytest.importorskip("torch_geometric")

from torch_geometric import nn as gnn


@pytest.mark.parametrize("elsewhere", ["features", "weight"])
def test_features_and_weights_on_another_device_are_named(elsewhere: str) -> None:
    graph = DistributedGraph.from_edge_index(hostile(), NODES, method="greedy")
    device = {"features": "cpu", "weight": "cpu", elsewhere: "meta"}
    x = torch.ones(NODES, 6, device=device["features"])
    weight = torch.ones(graph.num_edges, device=device["weight"])
    layer = gnn.GraphConv(6, 4).to(device["features"])
    with (
        onehop.patch(associate=False),
        pytest.raises(ArgumentError, match=r"on cpu, (where its part is|got them on meta)"),
    ):
        layer(x, graph.edge_index, weight)
