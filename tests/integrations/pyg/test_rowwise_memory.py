"""Nothing of edges times width is made; and how a graph is cut into blocks."""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch_geometric import nn as gnn

import onehop
from onehop.compiler.blocks import blocks_of
from onehop.graph import Graph
from onehop.graph.held import bytes_held
from onehop.integrations.pyg import propagate
from onehop.integrations.pyg.leave import Leave
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.conftest import make_edges

NODES, EDGES, WIDTH, BLOCK = 30, 4000, 32, 200


class Largest(TorchDispatchMode):
    """Notes the largest tensor that an operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        made = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.entries = max([self.entries, *made])
        return result


@pytest.mark.parametrize("compiled", [False, True], ids=["blocks", "compiled"])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", ["std", "softmax"]], ids=str)
def test_the_largest_tensor_is_a_blocks(aggr, compiled, monkeypatch):
    small_blocks.force(monkeypatch, BLOCK, compiled)
    edges, x = make_edges(NODES, NODES, EDGES), torch.randn(NODES, WIDTH, requires_grad=True)
    edge_attr = torch.randn(EDGES, 2)
    out_width = WIDTH * (2 if isinstance(aggr, list) else 1)
    layer = gnn.GINEConv(torch.nn.Linear(out_width, 4), edge_dim=2, aggr=aggr)
    layer.lin = gnn.Linear(2, WIDTH)
    tasks = []

    def keep(*args):
        # The patch does nothing while a dispatch mode is at work, so the plan is taken out and run under it.
        tasks.append(planned(*args))
        raise Leave("kept for the test")

    planned = propagate.planned
    monkeypatch.setattr(propagate, "planned", keep)
    with onehop.patch():
        layer((x, None), edges, edge_attr, size=(NODES, NODES))
    (task,) = tasks
    with Largest() as ours:
        task.run().sum().backward()
    with Largest() as theirs:
        layer((x, None), edges, edge_attr, size=(NODES, NODES))
    assert theirs.entries >= EDGES * WIDTH
    longest = int(edges[1].bincount().max())
    assert ours.entries <= max(BLOCK, longest) * WIDTH
    assert ours.entries < EDGES * WIDTH / 4


def cut(targets: list[int], rows: int, block_edges: int, parts: bool):
    target = torch.tensor(targets, dtype=torch.long)
    edges = torch.stack([torch.zeros_like(target), target])
    graph = Graph.from_edge_index(edges, size=(1, rows))
    return [(b.rows, b.edges, b.share) for b in blocks_of(graph, block_edges, parts)]


def test_blocks_hold_whole_rows():
    targets = [1, 1, 2, 4, 4, 4, 4, 4, 5, 7]
    assert cut(targets, 10, 3, False) == [
        ((0, 4), (0, 3), 1.0),
        ((4, 5), (3, 8), 1.0),
        ((5, 10), (8, 10), 1.0),
    ]


def test_a_long_row_is_cut_where_that_is_allowed():
    assert cut([3] * 10, 6, 4, True) == [
        ((3, 4), (0, 4), 0.4),
        ((3, 4), (4, 8), 0.4),
        ((3, 4), (8, 10), 0.2),
    ]
    assert cut([3] * 10, 6, 4, False) == [((0, 6), (0, 10), 1.0)]


def test_blocks_are_made_once():
    edges = make_edges(NODES, NODES, EDGES)
    graph = Graph.from_edge_index(edges, size=(NODES, NODES))
    first = blocks_of(graph, BLOCK, True)
    assert blocks_of(graph, BLOCK, True) is first
    assert blocks_of(graph, BLOCK // 2, True) is not first
    assert sum(bytes_held(first).values()) > 4 * EDGES
