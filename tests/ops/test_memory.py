"""What an aggregate needs beside its operands, and what many epochs add. Each in a process of its own."""

import json
import os
import subprocess
import sys

import pytest

EXTRA = """
import json, resource, sys, torch, onehop
from onehop import Graph
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
reduce, weighted = sys.argv[1], sys.argv[2] == "weighted"
nodes, edges, width = 2000, 1_000_000, 256
edge_index = torch.randint(0, nodes, (2, edges), generator=torch.Generator().manual_seed(0))
graph = Graph.from_edge_index(edge_index, nodes)
graph.transposed_csr
x = torch.randn(nodes, width, requires_grad=True)
weight = torch.rand(edges, requires_grad=True) if weighted else None
small = Graph.from_edge_index(edge_index[:, :100], nodes)
onehop.aggregate(small, x, None, reduce).sum().backward()  # what torch loads on first use
before = peak()
onehop.aggregate(graph, x, weight, reduce).sum().backward()
print(json.dumps({"extra": peak() - before, "edges_times_width": edges * width * 4}))
"""

EPOCHS = """
import json, resource, torch, onehop
from torch_geometric.nn import GCNConv, SAGEConv
onehop.patch()
generator = torch.Generator().manual_seed(0)
edge_index = torch.randint(0, 20000, (2, 100000), generator=generator)
x, y = torch.randn(20000, 64), torch.randint(0, 8, (20000,))
torch.manual_seed(0)
first, second = GCNConv(64, 64), SAGEConv(64, 8, aggr="max")
optimiser = torch.optim.Adam([*first.parameters(), *second.parameters()])
peaks, held = [], []
for _ in range(200):
    optimiser.zero_grad()
    torch.nn.functional.cross_entropy(second(first(x, edge_index).relu(), edge_index), y).backward()
    optimiser.step()
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    pool, cache = onehop.native.extension.pool_info(), onehop.cache_info()
    held.append([pool["mapped"], pool["in_use_bytes"] + pool["kept_bytes"], cache.entries, cache.bytes])
print(json.dumps({"peaks": peaks, "held": held}))
"""


def run_python(code, *arguments):
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


@pytest.mark.parametrize("weighted", ["plain", "weighted"])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_nothing_per_edge_times_width(reduce, weighted):
    result = run_python(EXTRA, reduce, weighted)
    # Outputs, gradients and ties are 2 MB each and weights 4 MB; edges times width are 1 GB.
    assert result["extra"] < result["edges_times_width"] / 16


def test_two_hundred_epochs_hold_no_more_than_five():
    result = run_python(EPOCHS)
    assert result["held"][-1] == result["held"][4]
    # The process grows a little: torch's blocks of many sizes split the C library's heap, patched or not.
    # What leaks grows with every epoch: 1 MB each would come to 195 MB.
    assert result["peaks"][-1] - result["peaks"][4] < 60 << 20
