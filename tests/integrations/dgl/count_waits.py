"""Counts what a host waits for in steps on DGL's graphs on another device: a program of its own.

Kernels are launched by triton on a driver that runs nothing; everything else runs on the device's contents.
Prints the operations for which the host of a graphics card would wait, step by step.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import onehop
from onehop.graph import placed
from tests import far_device
from tests.far_device import far, move
from tests.integrations.dgl.far_dgl import graphs_there
from tests.kernels.triton import stub_driver

import dgl  # isort: skip
import dgl.nn.pytorch as dnn  # isort: skip

WIDTH, OUT, STEPS = 6, 4, 3
Make = Callable[..., nn.Module]
# For GraphConv's own norm DGL asks for degrees, and waits itself.
LAYERS: dict[str, Make] = {
    "GraphConv": lambda **zeros: dnn.GraphConv(WIDTH, OUT, norm="none", **zeros),
    "SAGEConv mean": lambda **_: dnn.SAGEConv(WIDTH, OUT, "mean"),
    "SAGEConv pool": lambda **_: dnn.SAGEConv(WIDTH, OUT, "pool"),
    "GATConv": lambda **zeros: dnn.GATConv(WIDTH, OUT, 2, attn_drop=0.5, **zeros),
    "GATv2Conv": lambda **zeros: dnn.GATv2Conv(WIDTH, OUT, 2, **zeros),
    "DotGatConv": lambda **zeros: dnn.DotGatConv(WIDTH, OUT, 2, **zeros),
}


def batch(step: int) -> tuple[Any, torch.Tensor]:
    """A graph with a hub and with a loop at every node, and features: of other sizes in every step."""
    nodes, edges = 400 + step, 1500 + 7 * step
    generator = torch.Generator().manual_seed(step)
    source, target = torch.randint(0, nodes, (2, edges), generator=generator)
    target[:700] = 3
    graph = dgl.add_self_loop(dgl.graph((source, target), num_nodes=nodes))
    return graph, far(torch.randn(nodes, WIDTH, generator=generator))


def main(name: str, how: str) -> None:
    """Prints for every step what was waited for; raises if too few kernels were launched.

    Args:
        name: Of a layer.
        how: "fresh": a graph of its own in every step; "same": one graph, whose degrees the layer looks at;
            "by the host": fresh graphs, which are made on the host.
    """
    if how != "by the host":
        placed.MADE_ON.add("far")
    zeros = {} if how == "same" else {"allow_zero_in_degree": True}
    model = LAYERS[name](**zeros)
    move(model)
    first = batch(0)
    batches = [first] * STEPS if how == "same" else [batch(step) for step in range(STEPS)]
    with graphs_there(), onehop.patch(only="dgl"):
        for graph, x in batches:
            far_device.WAITS.clear()
            launched = len(stub_driver.LAUNCHED)
            model(graph, x.requires_grad_()).sum().backward()
            assert len(stub_driver.LAUNCHED) >= launched + 2, stub_driver.LAUNCHED[launched:]
            sys.stdout.write(" ".join(far_device.WAITS) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
