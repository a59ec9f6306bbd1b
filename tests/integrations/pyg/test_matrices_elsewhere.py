"""Sparse matrices where more than a result is asked for: attention weights, reports, other backends."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn

import onehop
from onehop.integrations import reports
from onehop.machines import pim
from tests.integrations.pyg.adjacencies import WARNINGS, matrix, model_of
from tests.integrations.pyg.layers import CASES, NODES, WIDTH, case_call, operands_of
from tests.integrations.same import BITS, fast, refused, same, same_error, step

pytestmark = [pytest.mark.filterwarnings(each) for each in WARNINGS]


@pytest.mark.parametrize("layout", ["csr", "coo"])
@pytest.mark.parametrize("name", ["GAT", "GAT without loops", "GAT dropout", "GATv2", "Transformer dropout"])
def test_attention_weights_that_are_asked_for(name, layout, at, values):
    model, x = model_of(name), torch.randn(NODES, WIDTH).double()
    adjacency = matrix(layout, at, values)

    def run() -> Any:
        out, (index, weights) = model(x, adjacency, return_attention_weights=True)
        return [out, weights, index.values()]

    same(run)


@pytest.mark.parametrize("name", ["SuperGAT MX", "SuperGAT SD", "GAT dropout", "GATv2 dropout", "FA"])
def test_attention_in_evaluation(name, at, values):
    model, operands = model_of(name).eval(), operands_of(CASES[name], torch.float64)
    fast(step(case_call(CASES[name], matrix("csr", at, values)), model, **operands))


def test_explain_shows_the_values(at, values):
    conv, x = gnn.SAGEConv(WIDTH, 4, aggr="sum").double(), torch.randn(NODES, WIDTH).double()
    with reports.recorded() as calls, onehop.patch():
        conv(x, matrix("csr", at, values))
        conv(x, matrix("csr", at, torch.ones_like(values)))
    assert [call.form.split(",")[0] for call in calls] == ["source * weight", "source"]
    shown = str(onehop.explain(conv, x, matrix("csr", at, values), verbose=True))
    assert "source * weight" in shown


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
@pytest.mark.parametrize("ones", [True, False])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_other_backends(backend, ones, aggr, at, values):
    adjacency = matrix("csr", at, torch.ones_like(values) if ones else values)
    model, x = gnn.SAGEConv(WIDTH, 4, aggr=aggr).double(), torch.randn(NODES, WIDTH).double()
    same(step(model, x, adjacency), backend=backend)


def test_a_machine_runs_sums_over_a_matrix(at, values):
    conv, x = gnn.SAGEConv(WIDTH, 4, aggr="sum"), torch.randn(NODES, WIDTH)
    adjacency = matrix("csr", at, values.float())
    expected = conv(x, adjacency)
    with onehop.patch(machine=pim.Machine()) as handle:
        torch.testing.assert_close(conv(x, adjacency), expected)
    assert handle.report.total_ns > 0


def test_small_matrices_are_left_to_pyg(at, values, monkeypatch):
    monkeypatch.setattr("onehop.thresholds.now", onehop.thresholds.ORDINARY)
    conv, x = gnn.SAGEConv(WIDTH, 4).double(), torch.randn(NODES, WIDTH).double()
    adjacency = matrix("csr", at, values)
    refused(lambda: conv(x, adjacency), "its graph has so few edges that PyG's own code is as fast", **BITS)


class Summing(gnn.MessagePassing):
    """A user's layer with the default message, which PyG does not fuse."""

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        return self.propagate(adjacency, x=x)


def test_a_users_layer_ignores_the_values_as_in_pyg(at, values):
    layer, x = Summing(aggr="sum"), torch.randn(NODES, WIDTH).double()
    fast(step(layer, x, matrix("csr", at, values)))
    same_error(lambda: layer(x, matrix("csc", at, values)))


@pytest.mark.parametrize("layout", ["csr", "coo"])
@pytest.mark.parametrize("name", ["GAT", "GATv2", "Transformer"])
def test_values_of_two_dimensions_are_features_of_edges(name, layout, at):
    kind = {"GAT": gnn.GATConv, "GATv2": gnn.GATv2Conv, "Transformer": gnn.TransformerConv}[name]
    loops = {} if name == "Transformer" else {"add_self_loops": False}
    model, x = kind(WIDTH, 4, heads=2, edge_dim=3, **loops).double(), torch.randn(NODES, WIDTH).double()
    adjacency = matrix(layout, at, torch.randn(at.size(1), 3).double(), shape=(NODES, NODES, 3))
    fast(step(model, x, adjacency))


@pytest.mark.parametrize("name", ["SAGE mean", "GCN", "GCN without loops", "LE", "Simple self loop"])
def test_values_of_two_dimensions_are_no_weights(name, at):
    model, x = model_of(name), torch.randn(NODES, WIDTH).double()
    adjacency = matrix("coo", at, torch.randn(at.size(1), 3).double(), shape=(NODES, NODES, 3))
    same_error(lambda: model(x, adjacency))
