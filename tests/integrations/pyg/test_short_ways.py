"""Messages over few edges: PyG's own code runs, by the sizes alone."""

import pytest
import torch
from torch_geometric import nn as gnn

import onehop
from onehop import thresholds
from onehop.integrations import reports
from onehop.integrations.pyg.leave import TOO_SMALL
from tests.integrations.same import BITS, refused, step

WIDTH, NODES, EDGES = 8, 20, 90
PNA = {"aggregators": ["mean", "max"], "scalers": ["identity"], "deg": torch.tensor([2, 9, 9])}
# Layers of PyG whose messages treat each edge on its own, and whether they take features of edges.
LAYERS = {
    "ResGated": (lambda **options: gnn.ResGatedGraphConv(WIDTH, 4, edge_dim=3, **options), True),
    "Edge": (lambda **options: gnn.EdgeConv(torch.nn.Linear(2 * WIDTH, 4), **options), False),
    "GINE": (lambda **options: gnn.GINEConv(torch.nn.Linear(WIDTH, 4), edge_dim=3, **options), True),
    "PNA": (lambda **options: gnn.PNAConv(WIDTH, 4, **PNA, edge_dim=3, **options), True),
    "median": (lambda **options: gnn.SAGEConv(WIDTH, 4, aggr="median", **options), False),
    "dropout in it": (lambda **options: gnn.EdgeConv(_dropping(), **options), False),
}


def _dropping() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(2 * WIDTH, 4), torch.nn.Dropout(0.5))


@pytest.fixture(autouse=True)
def bounds_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)


@pytest.mark.parametrize("name", LAYERS)
def test_messages_over_few_edges_have_the_bits_of_pyg(name, edge_index):
    torch.manual_seed(0)
    make, takes_features = LAYERS[name]
    layer, x = make(flow="target_to_source"), torch.randn(NODES, WIDTH)
    others = [torch.randn(EDGES, 3)] if takes_features else []
    refused(step(layer, x, edge_index, *others), TOO_SMALL, **BITS)


def test_a_larger_graph_of_the_same_class_is_compiled(edge_index):
    layer, x = gnn.ResGatedGraphConv(WIDTH, 4), torch.randn(20, WIDTH)
    many = edge_index.repeat(1, thresholds.now.few_edges // EDGES + 1)
    with onehop.patch(), reports.recorded() as calls:
        for index in (edge_index, many, edge_index):
            layer(x, index)
    assert [call.reason or call.form for call in calls] == [TOO_SMALL, "its message, compiled", TOO_SMALL]
