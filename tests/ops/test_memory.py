"""What an aggregate needs beside its operands, and what many epochs add. Each in a process of its own."""

import json

import pytest

from tests.processes import run_python

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

ATTENTION = """
import json, resource, sys, torch, onehop
from onehop import Graph
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
operator, features = sys.argv[1], sys.argv[2] == "features"
nodes, edges, heads, width = 1000, 500_000, 4, 64
edge_index = torch.randint(0, nodes, (2, edges), generator=torch.Generator().manual_seed(0))
graph = Graph.from_edge_index(edge_index, nodes)
graph.transposed_csr
def operands(edges):
    wide = lambda: torch.randn(nodes, heads, width, requires_grad=True)
    if operator == "gat":
        scores = [torch.randn(nodes, heads, requires_grad=True) for _ in range(2)]
        return [wide(), *scores], {"edge_score": torch.randn(edges, heads)} if features else {}
    last = torch.randn(heads, width, requires_grad=True) if operator == "gatv2" else wide()
    pair = (torch.randn(edges, 4, requires_grad=True), torch.randn(heads * width, 4, requires_grad=True))
    return [wide(), wide(), last], {"edge": pair} if features else {}
def run(graph, tensors, settings):
    getattr(onehop, operator)(graph, *tensors, dropout=0.5, **settings).sum().backward()
run(Graph.from_edge_index(edge_index[:, :100], nodes), *operands(100))  # what torch loads on first use
tensors, settings = operands(edges)
before = peak()
run(graph, tensors, settings)
print(json.dumps({"extra": peak() - before, "edges_times_width": edges * heads * width * 4}))
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


def told(code, *arguments):
    finished = run_python(["-c", code, *arguments])
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


@pytest.mark.parametrize("weighted", ["plain", "weighted"])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_nothing_per_edge_times_width(reduce, weighted):
    result = told(EXTRA, reduce, weighted)
    # Outputs, gradients and ties are 2 MB each and weights 4 MB; edges times width are 1 GB.
    assert result["extra"] < result["edges_times_width"] / 16


@pytest.mark.parametrize("features", ["plain", "features"])
@pytest.mark.parametrize("operator", ["gat", "gatv2", "attention"])
def test_attention_makes_nothing_per_edge_times_width(operator, features):
    result = told(ATTENTION, operator, features)
    # Outputs and gradients are 1 MB each, gradients of edge features 8 MB; edges times width are 512 MB.
    assert result["extra"] < result["edges_times_width"] / 16


def test_two_hundred_epochs_hold_no_more_than_five():
    result = told(EPOCHS)
    assert result["held"][-1] == result["held"][4]
    # The process grows a little: torch's blocks of many sizes split the C library's heap, patched or not.
    # What leaks grows with every epoch: 1 MB each would come to 195 MB.
    assert result["peaks"][-1] - result["peaks"][4] < 60 << 20
