"""A node with most of the edges: its row is cut where sums allow, so that no tensor grows with it."""

import pytest
import torch
from torch_geometric import nn as gnn

import onehop
from onehop.integrations.pyg import propagate
from onehop.integrations.pyg.leave import Leave
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.test_rowwise_memory import Largest

NODES, EDGES, WIDTH, BLOCK = 30, 4000, 32, 200


@pytest.mark.parametrize("compiled", [False, True], ids=["blocks", "compiled"])
@pytest.mark.parametrize(("aggr", "cut"), [("sum", True), ("mean", True), ("max", False)])
def test_the_row_of_a_hub_is_cut_for_sums_and_means(aggr, cut, compiled, monkeypatch):
    small_blocks.force(monkeypatch, BLOCK, compiled)
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, NODES, (2, EDGES), generator=generator)
    edges[1, EDGES // 4 :] = 7
    x = torch.randn(NODES, WIDTH, generator=generator, dtype=torch.float64, requires_grad=True)
    edge_attr = torch.randn(EDGES, 2, generator=generator, dtype=torch.float64)
    layer = gnn.GINEConv(torch.nn.Linear(WIDTH, 4), edge_dim=2, aggr=aggr)
    layer.lin = gnn.Linear(2, WIDTH)
    layer.double()
    expected = layer(x, edges, edge_attr)
    tasks = []
    planned = propagate.planned

    def keep(*args):
        # The patch does nothing while a dispatch mode is at work, so the plan is taken out and run under it.
        tasks.append(planned(*args))
        raise Leave("kept for the test")

    monkeypatch.setattr(propagate, "planned", keep)
    with onehop.patch():
        layer(x, edges, edge_attr)
    (task,) = tasks
    with Largest() as ours:
        aggregated = task.run()
        aggregated.sum().backward()
    hub = int((edges[1] == 7).sum())
    assert (ours.entries <= BLOCK * WIDTH) == (cut or compiled)
    assert ours.entries <= hub * WIDTH
    torch.testing.assert_close(layer.nn(aggregated + x), expected, rtol=1e-10, atol=1e-10)
