"""Compiled messages that are reduced in several ways at once, or weighted by a softmax, beside PyG's."""

import math

import pytest
import torch
from torch_geometric import nn as gnn
from torch_geometric.nn import aggr

import onehop
from tests.integrations.pyg.compiled_layers import (
    COMPILED,
    DIM,
    EDGE_INDEX,
    NODES,
    WIDTH,
    assert_compiled,
    assert_nothing_of_edges_times_width_is_kept,
    compiled as compiled,
    inputs_of,
)
from tests.integrations.pyg.layers import SCALERS

DEGREES = torch.tensor([2, 3, 4, 5, 4, 2, 1])


def pna(towers=1, aggregators=("mean", "min", "max", "std"), **kwargs):
    return gnn.PNAConv(WIDTH, 6, list(aggregators), SCALERS, DEGREES, towers=towers, **kwargs).double()


# Layers, and the columns of their features of edges (0: none).
LAYERS = {
    "PNA": (pna, 0),
    "PNA attr": (lambda: pna(edge_dim=DIM), DIM),
    "PNA towers": (lambda: pna(towers=2), 0),
    "PNA towers attr": (lambda: pna(towers=3, edge_dim=DIM), DIM),
    "PNA towers divided": (lambda: pna(towers=2, divide_input=True), 0),
    "PNA towers divided attr": (lambda: pna(towers=3, divide_input=True, edge_dim=DIM), DIM),
    "PNA two layers": (lambda: pna(pre_layers=2, towers=2), 0),
    "PNA var": (lambda: pna(aggregators=("sum", "var", "std"), train_norm=True), 0),
    "PNA one": (lambda: pna(aggregators=("max",)), 0),
    "std": (lambda: gnn.CGConv(WIDTH, dim=DIM, aggr="std"), DIM),
    "var, half": (lambda: gnn.CGConv(WIDTH, aggr=aggr.VarAggregation(semi_grad=True)), 0),
    "several": (lambda: gnn.CGConv(WIDTH, aggr=aggr.MultiAggregation(["sum", "max", "min"], mode="sum")), 0),
    "half a gradient for all": (
        lambda: gnn.CGConv(
            WIDTH,
            aggr=aggr.MultiAggregation(
                [aggr.VarAggregation(semi_grad=True), aggr.StdAggregation(), "mean"], mode="max"
            ),
        ),
        0,
    ),
    "with a softmax": (
        lambda: gnn.CGConv(
            WIDTH, dim=DIM, aggr=aggr.MultiAggregation(["softmax", "std", "mean"], mode="mean")
        ),
        DIM,
    ),
    "GEN": (lambda: gnn.GENConv(WIDTH, 5), 0),
    "GEN attr": (lambda: gnn.GENConv(WIDTH, 5, edge_dim=DIM, t=0.7), DIM),
    "GEN learned": (lambda: gnn.GENConv(WIDTH, 5, learn_t=True, t=1.3, msg_norm=True), 0),
    "GEN sum": (lambda: gnn.GENConv(WIDTH, 5, aggr="add"), 0),
    "softmax, half": (lambda: gnn.CGConv(WIDTH, aggr=aggr.SoftmaxAggregation(t=2.0, semi_grad=True)), 0),
    "softmax, a factor a column": (
        lambda: gnn.CGConv(WIDTH, aggr=aggr.SoftmaxAggregation(learn=True, channels=WIDTH)), 0,
    ),
    "PNA softmax": (lambda: pna(towers=2, aggregators=("softmax", "mean")), 0),
}  # fmt: skip


def assert_as_pygs(name, inputs, edges=EDGE_INDEX):
    torch.manual_seed(0)
    assert_compiled(LAYERS[name][0](), inputs[0], edges, *inputs[1:])


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    assert_as_pygs(name, inputs_of(LAYERS[name][1]))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e200, 0.0])
@pytest.mark.parametrize("name", ["PNA", "PNA towers divided", "GEN", "GEN learned", "with a softmax"])
def test_extreme_numbers(name, number):
    inputs = inputs_of(LAYERS[name][1])
    inputs[0][3, 1:4] = number
    inputs[0][-1] = number
    assert_as_pygs(name, inputs)


@pytest.mark.parametrize("name", ["PNA", "PNA towers", "GEN", "with a softmax"])
def test_ties_and_equal_messages(name):
    # The standard deviation of equal messages is below its least, where its gradient ends.
    inputs = [tensor.mul(0.6).round() for tensor in inputs_of(LAYERS[name][1])]
    inputs[0][5:10] = inputs[0][5]
    assert_as_pygs(name, inputs)


@pytest.mark.parametrize("name", ["PNA", "GEN", "GEN learned"])
def test_one_edge_a_destination(name):
    nodes = torch.arange(NODES - 1)
    assert_as_pygs(name, inputs_of(LAYERS[name][1]), torch.stack([nodes, nodes.roll(3)]))


@pytest.mark.parametrize("make", [lambda: pna().float(), lambda: gnn.GENConv(WIDTH, WIDTH)])
def test_nothing_of_edges_times_width_is_kept(make):
    assert_nothing_of_edges_times_width_is_kept(make())


def test_reductions_that_run_in_blocks():
    (x,), edges = inputs_of(0), EDGE_INDEX
    (row,) = onehop.explain(gnn.CGConv(WIDTH, aggr="median").double(), x, edges).layers
    assert row.form == "its message in blocks"
    assert "its reduction, median, is not made of sums, means, extrema and softmax" in row.plan
    weighted = aggr.SoftmaxAggregation(learn=True, channels=WIDTH).float()
    (row,) = onehop.explain(gnn.CGConv(WIDTH, aggr=weighted).double(), x, edges).layers
    assert row.form == COMPILED
    layer = gnn.CGConv(WIDTH).double()
    layer.aggr_module = weighted.float()
    (row,) = onehop.explain(layer, x, edges).layers
    assert "its softmax has a factor of another kind than its messages" in row.plan
