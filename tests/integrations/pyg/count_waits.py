"""Counts what a host waits for in steps of mini-batches on another device: a program of its own.

Every step has a fresh ``edge_index``, as a loader's batches have. Kernels are launched by triton on a driver
that runs nothing; everything else runs on the device's contents. Prints the operations for which the host of
a GPU would wait, for each layer and step, as JSON.
"""

import json
import sys

import torch
from torch_geometric.nn import GATv2Conv, GraphConv, SAGEConv, TransformerConv

import onehop
from onehop import thresholds
from onehop.graph import placed
from onehop.kernels.triton import merges, work
from tests import far_device
from tests.far_device import far, move
from tests.integrations.pyg.two_layers import TwoLayers
from tests.kernels.triton import stub_driver

WIDTH, CLASSES, STEPS = 6, 3, 3
LAYERS = {
    # First, because the others set where edges are made.
    "by the host": SAGEConv,
    "SAGE": SAGEConv,
    "SAGE max": lambda i, o: SAGEConv(i, o, aggr="max"),
    "Graph": GraphConv,
    "GATv2": lambda i, o: GATv2Conv(i, o, heads=2, concat=False, add_self_loops=False),
    "Transformer": lambda i, o: TransformerConv(i, o, heads=2, concat=False),
}
# Of these, hubs of both layers are merged in several launches each.
ATTENTION = {"GATv2", "Transformer"}


def batch(step):
    """Nodes, edges with a hub, features: of other sizes in every step, as they come from the device."""
    nodes, edges = 400 + step, 1500 + 7 * step
    generator = torch.Generator().manual_seed(step)
    edge_index = torch.randint(0, nodes, (2, edges), generator=generator)
    edge_index[1, :700] = 3
    return far(torch.randn(nodes, WIDTH, generator=generator)), far(edge_index)


def waits(name):
    """The operations that are waited for, step by step; raises if no kernel is launched."""
    if name != "by the host":
        placed.MADE_ON.add("far")
    model = TwoLayers(LAYERS[name], WIDTH, 5, CLASSES)
    move(model)
    steps = []
    for x, edge_index in [batch(step) for step in range(STEPS)]:
        far_device.WAITS.clear()
        launched = len(stub_driver.LAUNCHED)
        out = model(x, edge_index)
        out.sum().backward()
        found = stub_driver.LAUNCHED[launched:]
        assert len(found) >= 4, found
        assert not ATTENTION & {name} or found.count("merge_kernel") > 2, found
        steps.append(list(far_device.WAITS))
    return steps


if __name__ == "__main__":
    # So small that the hub is merged in levels.
    merges.MOST_SLOTS, work._LONGEST_PART = 2, 1
    with onehop.patch(), thresholds.changed(few_edges=0, few_work=0):
        json.dump({name: waits(name) for name in LAYERS}, sys.stdout)
