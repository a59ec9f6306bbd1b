"""What an aggregate needs beside its operands, and what many epochs add. Each in a process of its own."""

import json

import pytest

from tests.processes import run_python

# Argument 1 is the operator; argument 2 tells whether edges have weights or features.
EXTRA = """
import json, resource, sys, torch, onehop
from onehop import Graph
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
operator, features = sys.argv[1], sys.argv[2] == "features"
attends = operator in ("gat", "gatv2", "attention")
nodes, edges, heads, width = (1000, 500_000, 4, 64) if attends else (2000, 1_000_000, 1, 256)
edge_index = torch.randint(0, nodes, (2, edges), generator=torch.Generator().manual_seed(0))
graph = Graph.from_edge_index(edge_index, nodes)
graph.transposed_csr
def number(*shape):
    return torch.randn(*shape, requires_grad=True)
def operands(edges):
    if not attends:
        weight = number(edges) if features else None
        return onehop.aggregate, [number(nodes, width)], {"weight": weight, "reduce": operator}
    settings, function = {"dropout": 0.5}, getattr(onehop, operator)
    wide = [number(nodes, heads, width) for _ in range(3)]
    if operator == "gat":
        if features:
            settings["edge_score"] = torch.randn(edges, heads)
        return function, [wide[0], number(nodes, heads), number(nodes, heads)], settings
    if features:
        settings["edge"] = number(edges, 4), number(heads * width, 4)
    return function, [*wide[:2], number(heads, width) if operator == "gatv2" else wide[2]], settings
def run(graph, function, tensors, settings):
    function(graph, *tensors, **settings).sum().backward()
run(Graph.from_edge_index(edge_index[:, :100], nodes), *operands(100))  # what torch loads on first use
given = operands(edges)
before = peak()
run(graph, *given)
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


@pytest.mark.parametrize("features", ["plain", "features"])
@pytest.mark.parametrize("operator", ["sum", "mean", "max", "min", "gat", "gatv2", "attention"])
def test_nothing_per_edge_times_width(operator, features):
    result = told(EXTRA, operator, features)
    # Outputs, gradients and ties are 1 or 2 MB each, weights 4 MB, gradients of edge features 8 MB; edges
    # times width are 512 MB or 1 GB.
    assert result["extra"] < result["edges_times_width"] / 16


def test_two_hundred_epochs_hold_no_more_than_five():
    result = told(EPOCHS)
    assert result["held"][-1] == result["held"][4]
    # The process grows a little: torch's blocks of many sizes split the C library's heap, patched or not.
    # What leaks grows with every epoch: 1 MB each would come to 195 MB.
    assert result["peaks"][-1] - result["peaks"][4] < 60 << 20
