"""Trains patched models whose tensors lie on a device that is not the CPU, through the GPU's kernels.

A program of its own, for a process can have one such device. The backend that takes it is the Triton backend
with its kernels interpreted: it is handed the device's tensors, and runs on their contents.
"""

import dataclasses
import sys
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, SAGEConv, TransformerConv

import onehop
from onehop import thresholds
from tests.far_device import far, is_far, move, near
from tests.far_triton import FarTriton


class Model(Module):
    """Two layers."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = make(6, 5), make(5, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """[N, 6] -> [N, 3]."""
        out: Tensor = self.second(self.first(x, edges).relu(), edges)
        return out


MODELS = {
    "GCN": lambda i, o: GCNConv(i, o),
    "SAGE mean": lambda i, o: SAGEConv(i, o),
    "SAGE max": lambda i, o: SAGEConv(i, o, aggr="max"),
    "GAT": lambda i, o: GATConv(i, o, heads=2, concat=False),
    "GATv2": lambda i, o: GATv2Conv(i, o, heads=2, concat=False),
    "Transformer": lambda i, o: TransformerConv(i, o, heads=2, concat=False),
}


def gradients(name: str, away: bool) -> list[Tensor]:
    """The output and the parameters' gradients; away under the patch, else PyG's on the CPU."""
    model = Model(MODELS[name])
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
for name in MODELS:
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
