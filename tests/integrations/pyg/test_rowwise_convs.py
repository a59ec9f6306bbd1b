"""Layers whose messages run in blocks, patched and unpatched: outputs and all gradients by name."""

import copy

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn

import onehop
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.conftest import make_edges
from tests.integrations.pyg.layers import (
    DEGREES,
    DIM,
    IN_BLOCKS,
    NODES,
    SCALERS,
    WIDTH,
    Mine,
    case_call,
    operands_of,
    pna,
    rowwise_mlp,
)
from tests.integrations.same import BITS, SINGLE, assert_same, fast, same_after, step
from tests.pairs import pairwise

EDGES = 120
EDGE_INDEX = make_edges(NODES, NODES, EDGES)


@pytest.fixture(autouse=True, params=[False, True], ids=["blocks", "compiled"])
def _blocks(request, monkeypatch):
    small_blocks.force(monkeypatch, compiled=request.param)


AGGREGATIONS: dict[str, object] = {
    "var": "var",
    "std": "std",
    "std semi": gnn.aggr.StdAggregation(semi_grad=True),
    "softmax": "softmax",
    "softmax at half the temperature": gnn.aggr.SoftmaxAggregation(t=2.0),
    "softmax at twice the temperature, semi": gnn.aggr.SoftmaxAggregation(t=0.5, semi_grad=True),
    "softmax of channels": gnn.aggr.SoftmaxAggregation(learn=True, channels=WIDTH),
    "powermean": gnn.aggr.PowerMeanAggregation(p=2.5, learn=True),
    "mul": "mul",
    "median": "median",
    "quantiles": gnn.aggr.QuantileAggregation([0.2, 0.7], "midpoint", fill_value=3.0),
    "several": ["mean", "std", "max", "median"],
    "several semi": [gnn.aggr.VarAggregation(semi_grad=True), gnn.aggr.StdAggregation()],
    "several projected": gnn.aggr.MultiAggregation(
        ["sum", "softmax"], mode="proj", mode_kwargs={"in_channels": WIDTH, "out_channels": WIDTH}
    ),
    "several at most": gnn.aggr.MultiAggregation(["sum", "min"], mode="max"),
    "scaled": gnn.aggr.DegreeScalerAggregation(["sum", "mean"], SCALERS, DEGREES, train_norm=True),
}


def compare(model, *operands, tolerance=2e-5, **named):
    fast(step(model, *operands, **named), rtol=tolerance, atol=tolerance, times=1)
    with onehop.patch():
        one, other = (step(model, *operands, **named)() for _ in range(2))
    assert_same(one, other, **BITS)


@pytest.mark.parametrize("name", IN_BLOCKS)
def test_pygs_layers_and_users(name, edge_index):
    case = IN_BLOCKS[name]
    torch.manual_seed(0)
    compare(case_call(case, edge_index), case.make(), **operands_of(case, torch.float32))


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_aggregations_of_a_plain_message(name):
    torch.manual_seed(0)
    model, x = gnn.SimpleConv(aggr=copy.deepcopy(AGGREGATIONS[name])), torch.randn(NODES, WIDTH).exp()
    # The gradient of a channel's temperature is one sum over all messages.
    compare(model, x, EDGE_INDEX, tolerance=1e-4 if name == "softmax of channels" else 2e-5)


@pairwise(aggr=["sum", "mean", "max", "std"], width=[1, 3, 17, 63])
def test_odd_widths_hubs_empty_rows_and_other_orders(width, aggr):
    torch.manual_seed(0)
    edges = make_edges(NODES, NODES, EDGES)
    edges[1, ::2] = 7
    edges = edges[:, edges[1] > 1]
    model = gnn.GINEConv(torch.nn.Linear(width * 1, 4), aggr=aggr)
    x, edge_attr = torch.randn(NODES, width), torch.randn(edges.size(1), width)
    if aggr == "std":
        # Its gradient is a difference of large numbers, whose last digits PyG's order of sums decides.
        model, x, edge_attr = model.double(), x.double(), edge_attr.double()
    compare(model, x, edges, edge_attr)
    compare(model, x, edges[:, edges[1].argsort(stable=True)], edge_attr)


def test_bipartite_and_point_clouds():
    edges = make_edges(NODES, 9, EDGES)
    pair = torch.randn(NODES, WIDTH), torch.randn(9, WIDTH)
    compare(
        gnn.GINEConv(rowwise_mlp(WIDTH), edge_dim=DIM), pair, edges, torch.rand(EDGES, DIM), size=(NODES, 9)
    )
    points = gnn.PointNetConv(rowwise_mlp(DIM), add_self_loops=False)
    compare(points, (None, None), (torch.randn(NODES, 3), torch.randn(9, 3)), edges)


def test_ties_split_evenly():
    x, edge_attr = torch.randint(0, 2, (NODES, WIDTH)).float(), torch.ones(EDGES, WIDTH)
    compare(gnn.GINEConv(torch.nn.Linear(WIDTH, 4), aggr="max"), x, EDGE_INDEX, edge_attr)


def test_what_is_set_between_forward_and_backward_does_not_count():
    edges = make_edges(NODES, NODES, EDGES)
    x = torch.randn(NODES, WIDTH)

    def run(disturb: bool) -> Tensor:
        torch.manual_seed(0)
        model = gnn.EdgeConv(gnn.MLP([2 * WIDTH, 5, 4])).eval()
        leaf = x.clone().requires_grad_()
        out = model(leaf, edges)
        if disturb:
            model.train()
            model.nn = torch.nn.Identity()
        out.sum().backward()
        return leaf.grad

    with onehop.patch():
        assert torch.equal(run(False), run(True))


def test_a_write_to_an_operand_before_backward_is_reported():
    x = torch.randn(NODES, WIDTH, requires_grad=True)
    operand = x * 1
    with onehop.patch():
        out = gnn.ResGatedGraphConv(WIDTH, 4)((operand, operand), make_edges(NODES, NODES, EDGES))
        mine = Mine()(operand, EDGE_INDEX, torch.rand(EDGES, DIM))
        operand.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (out.sum() + mine.sum()).backward()


def test_edits_of_the_edges_are_seen():
    edges, x, model = EDGE_INDEX.clone(), torch.randn(NODES, WIDTH), gnn.CGConv(WIDTH)
    same_after(lambda: model(x, edges), lambda: edges[1].copy_(edges[1].flip(0)), **SINGLE)


def test_explain_tells_of_the_blocks(monkeypatch):
    small_blocks.force(monkeypatch)
    (row,) = onehop.explain(
        pna(["mean", "std"]), torch.randn(NODES, WIDTH), make_edges(NODES, NODES, EDGES)
    ).layers
    assert row.form == "its message in blocks"
    assert row.reduce == "degree-scaled [mean, std]"
    assert "of about 8 edges each" in row.plan
