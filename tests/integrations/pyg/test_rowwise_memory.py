"""Nothing of edges times width is made; and how a graph is cut into blocks.

The row of a node with most of the edges is cut where sums allow, so that no tensor grows with it.
"""

from typing import Any

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
from onehop.integrations.pyg import stages
from onehop.integrations.pyg.leave import Leave
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.conftest import make_edges
from tests.integrations.same import assert_same

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


def entries_of(
    layer: torch.nn.Module, monkeypatch: pytest.MonkeyPatch, *args: Any, **kwargs: Any
) -> tuple[int, Tensor]:
    """The entries of the largest tensor in a forward and backward pass under the patch, and what came out.

    The patch does nothing while a dispatch mode is at work, so the plan is taken out and run under it.
    """
    tasks: list[Any] = []
    planned = stages.planned

    def keep(*given: Any) -> None:
        tasks.append(planned(*given))
        raise Leave("kept for the test")

    with monkeypatch.context() as patch, onehop.patch():
        patch.setattr(stages, "planned", keep)
        layer(*args, **kwargs)
    (task,) = tasks
    with Largest() as ours:
        out = task.run()
        out.sum().backward()
    return ours.entries, out


def layer_of(aggr: Any) -> torch.nn.Module:
    layer = gnn.GINEConv(
        torch.nn.Linear(WIDTH * (2 if isinstance(aggr, list) else 1), 4), edge_dim=2, aggr=aggr
    )
    layer.lin = gnn.Linear(2, WIDTH)
    return layer.double()


WAYS = pytest.mark.parametrize("compiled", [False, True], ids=["blocks", "compiled"])


@WAYS
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", ["std", "softmax"]], ids=str)
def test_the_largest_tensor_is_a_blocks(aggr, compiled, monkeypatch):
    small_blocks.force(monkeypatch, BLOCK, compiled)
    edges, x = make_edges(NODES, NODES, EDGES), torch.randn(NODES, WIDTH).double().requires_grad_()
    given = (x, None), edges, torch.randn(EDGES, 2).double(), (NODES, NODES)
    layer = layer_of(aggr)
    ours, _ = entries_of(layer, monkeypatch, *given)
    with Largest() as theirs:
        layer(*given)
    assert theirs.entries >= EDGES * WIDTH
    longest = int(edges[1].bincount().max())
    assert ours <= max(BLOCK, longest) * WIDTH
    assert ours < EDGES * WIDTH / 4


@WAYS
@pytest.mark.parametrize(("aggr", "cut"), [("sum", True), ("mean", True), ("max", False)])
def test_the_row_of_a_hub_is_cut_for_sums_and_means(aggr, cut, compiled, monkeypatch):
    small_blocks.force(monkeypatch, BLOCK, compiled)
    edges, x = make_edges(NODES, NODES, EDGES), torch.randn(NODES, WIDTH).double().requires_grad_()
    edges[1, EDGES // 4 :] = 7
    edge_attr, layer = torch.randn(EDGES, 2).double(), layer_of(aggr)
    expected = layer(x, edges, edge_attr)
    ours, aggregated = entries_of(layer, monkeypatch, x, edges, edge_attr)
    assert (ours <= BLOCK * WIDTH) == (cut or compiled)
    assert ours <= int((edges[1] == 7).sum()) * WIDTH
    assert_same(layer.nn(aggregated + x), expected)


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
