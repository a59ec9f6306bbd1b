"""Trains patched models whose tensors lie on a device that is not the CPU, through the GPU's kernels.

A program of its own, for a process can have one such device. The backend that takes it is the Triton backend
with its kernels interpreted: it is handed the device's tensors, and runs on their contents.
"""

import dataclasses
import sys

import torch
from torch import Tensor
from torch_geometric.nn import SAGEConv

import onehop
from onehop import thresholds
from tests.far_device import far, is_far, move, near
from tests.far_triton import FarTriton
from tests.integrations.pyg.two_layers import LAYERS, TwoLayers


def gradients(name: str, away: bool) -> list[Tensor]:
    """The output and the parameters' gradients; away under the patch, else PyG's on the CPU."""
    model = TwoLayers(LAYERS[name], 6, 5, 3)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(20, 6, generator=generator)
    edges = torch.randint(0, 20, (2, 60), generator=generator)
    if not away:
        out = model(x, edges)
        (out * out).sum().backward()
        return [out, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]
    move(model)
    x, edges = far(x), far(edges)
    with onehop.patch():
        rows = onehop.explain(model, x, edges).layers
        assert [row.backend for row in rows] == ["triton"] * 2, rows
        out = model(x, edges)
        (out * out).sum().backward()
        before = onehop.cache_info()
        model(x, edges)
        after = onehop.cache_info()
    assert after.hits > before.hits
    assert after.entries == before.entries, "graphs are made anew for the same edge_index"
    return [near(out), *(near(p.grad) for p in model.parameters() if p.grad is not None)]


# Its graphs are small, and what is tested is ours.
thresholds.now = dataclasses.replace(thresholds.now, few_edges=0)
for name in LAYERS:
    FarTriton.ran.clear()
    found, expected = gradients(name, away=True), gradients(name, away=False)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    sys.stdout.write(f"{name}: {' '.join(sorted(FarTriton.ran))}\n")

x, edges = far(torch.randn(20, 6)), far(torch.randint(0, 20, (2, 60)))
graph = onehop.Graph.from_edge_index(edges, 20)
assert torch.equal(graph.edge_index(), near(edges))
assert is_far(onehop.aggregate(graph, x))
try:
    onehop.aggregate(graph, x, torch.ones(60))
except onehop.ArgumentError as error:
    sys.stdout.write(f"{error}\n")
layer = SAGEConv(6, 4)
move(layer)
with onehop.patch():
    try:
        onehop.explain(layer, x, near(edges))
    except (AssertionError, RuntimeError):
        sys.stdout.write("PyG reported the rest\n")
