"""A program: another thread writes to what native code reads, all the time.

Arguments: what is called, and how many times. Each call has to end with torch's or onehop's error, or with a
result whose numbers are in range.
"""

import contextlib
import random
import sys
import threading
from collections.abc import Callable

import numpy as np
import torch
from torch_geometric import utils

import onehop
from onehop import thresholds
from onehop.graph.build import with_loops
from onehop.graph.edge_columns import EdgeColumns
from onehop.kernels.cpu.negatives import Kind, Pairs
from onehop.loaders.walks import random_walk

NODES, EDGES, FAR = 300, 60_000, 1 << 30
X = torch.randn(EDGES, 4)
rng = np.random.default_rng(0)
good, other, bad = rng.integers(0, NODES, (3, 2, EDGES))
bad[:, EDGES // 2 :: 1000] = FAR
# With many loops, and with none.
other[1], good[1] = other[0], (good[0] + rng.integers(1, NODES, EDGES)) % NODES
marks = [rng.random(EDGES) < share for share in (0.1, 0.9)]
pointers = np.sort(rng.integers(0, EDGES + 1, (3, NODES + 1)))
pointers[:, 0], pointers[:, -1] = 0, EDGES
pointers[2, 100:200] = FAR

edge_index, mask, rowptr = (np.array(each) for each in (good, marks[0], pointers[0]))
EDGE_INDEX, MASK, ROWPTR = map(torch.from_numpy, (edge_index, mask, rowptr))


def graph_is_sound(graph: onehop.Graph) -> None:
    counts = graph.rowptr.diff()
    assert int(graph.rowptr[0]) == 0
    assert int(graph.rowptr[-1]) == graph.num_edges
    assert int(counts.min()) >= 0
    assert 0 <= int(graph.col.min()) <= int(graph.col.max()) < graph.num_src
    if graph.perm is not None:
        assert torch.equal(graph.perm.sort().values.long(), torch.arange(graph.num_edges))


def masks() -> None:
    x = X.clone().requires_grad_()
    out = x[MASK]
    assert out.shape[1:] == x.shape[1:]
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape


def rows() -> None:
    X[:NODES][EDGE_INDEX[0]]


def sums() -> None:
    torch.zeros(NODES, 4).index_add(0, EDGE_INDEX[0], X)


def made() -> None:
    graph_is_sound(onehop.Graph.from_edge_index(EDGE_INDEX, NODES))


def looped() -> None:
    graph_is_sound(onehop.Graph(with_loops(EDGE_INDEX, NODES, True)))


def ascending() -> None:
    # Nearly in order, so that the pass over sorted edges goes far.
    edge_index[1] = np.sort(good[1])
    made()


def compressed() -> None:
    graph_is_sound(onehop.Graph.from_csr(ROWPTR, EDGE_INDEX[0], NODES))


def sorted_edges() -> None:
    edges = EdgeColumns(EDGE_INDEX)
    if edges.are_valid:
        edges.sorted(numbered=True).edge_index(once=False)


def integers() -> None:
    for x in (EDGE_INDEX, EDGE_INDEX[1]):
        values, places, counts = x.unique(return_inverse=True, return_counts=True)
        assert 0 <= int(places.min()) <= int(places.max()) < len(values) == len(counts)
    pairs, places, counts = EDGE_INDEX.unique(dim=1, return_inverse=True, return_counts=True)
    assert 0 <= int(places.min()) <= int(places.max()) < pairs.size(1) == len(counts)
    order = EDGE_INDEX[0].sort(stable=True, descending=True).indices
    assert torch.equal(order.sort().values, torch.arange(EDGES))
    torch.isin(EDGE_INDEX[0], EDGE_INDEX[1, : EDGES // 2])


def marked() -> None:
    utils.contains_isolated_nodes(EDGE_INDEX, NODES)
    utils.subgraph(torch.arange(NODES // 2), EDGE_INDEX, num_nodes=NODES, relabel_nodes=True)


def negatives() -> None:
    pairs = Pairs(EDGE_INDEX, Kind.ALL, NODES, NODES)
    if pairs.count() is not None:
        pairs.edges_with(torch.zeros(EDGES, dtype=torch.int64))


def walks() -> None:
    random_walk(ROWPTR, EDGE_INDEX[0], torch.arange(NODES), 5, p=2.0, weight=X[:, 0].abs())


def write(stop: threading.Event) -> None:
    draw = random.Random(0)
    while not stop.is_set():
        np.copyto(edge_index, draw.choice((good, other, bad)))
        np.copyto(mask, draw.choice(marks))
        np.copyto(rowptr, draw.choice(pointers))


def run(call: Callable[[], None], rounds: int) -> None:
    with onehop.patch(), thresholds.lifted():
        for _ in range(rounds):
            with contextlib.suppress(RuntimeError, IndexError, ValueError):  # torch's or ours
                call()
            onehop.clear_cache()


if __name__ == "__main__":
    stop = threading.Event()
    writer = threading.Thread(target=write, args=(stop,))
    writer.start()
    try:
        run(globals()[sys.argv[1]], int(sys.argv[2]))
    finally:
        stop.set()
        writer.join()
